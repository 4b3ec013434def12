"""The settings that the manager's decisions depend on.

They are part of the store, so that a recording has them and a replay decides by the same ones.
"""

from enum import StrEnum
from typing import Annotated, Any, Self

import msgspec

from slicebus.bus.sizes import MESSAGE_BYTES
from slicebus.proto.messages import Manifest
from slicebus.runtime.environment import Count, Seconds, Share
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.placement.fleet import Strategy
from slicebus.slices.quota.consumption import ResourceWeight, UsageRule
from slicebus.slices.workload.device_claims import DeviceClassMapping

_DAY_S = 24 * 3600.0


class AdmissionModeName(StrEnum):
    """Who admits workloads."""

    BUILTIN = "builtin"
    """The manager."""
    KUEUE = "kueue"
    """A Kueue on the manager's cluster; the manager answers its AdmissionCheck."""


class Shard(msgspec.Struct, frozen=True):
    """One of several processes that share the trees of quota, from 0 on."""

    index: int = 0
    count: int = 1


class ManagerDecisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a user sets. Times in seconds."""

    admission: AdmissionModeName = AdmissionModeName.BUILTIN
    fixed_jobs: bool = False
    """Whether jobs without the elastic annotation are run too, each as one Workload whose size is fixed."""
    cluster_lost_requeue_s: Seconds | None = None
    """After this silence the jobs of a cluster are requeued on others; None leaves them there."""
    drain_at_once: Count = 10
    """How many jobs of a drained cluster are evicted at a time."""
    refused_requeue_s: Annotated[float, msgspec.Meta(ge=0, le=_DAY_S)] = 600.0
    """How long a job that its controller refuses on its cluster keeps its quota there; 0 for ever."""
    pods_ready_s: Seconds | None = None
    """How long the pods of an admitted job have to get ready before it is evicted; None for ever."""
    pods_recovery_s: Seconds | None = None
    """The same for pods that were ready."""
    scale_up_ready_s: Seconds | None = None
    """How long the pods of a scale-up have to get ready before it alone is taken back; None: as `pods_ready_s`."""
    epoch_skew_s: Seconds = 300.0
    """How far the clock of an agent may be ahead of the manager's: a later epoch is refused."""
    placement_strategy: Strategy = Strategy.SPREAD
    """Which cluster with room a new job gets, unless its ClusterQueue names a strategy."""
    fair_sharing: FairSharing = FairSharing.OFF
    """Whether the queues of a cohort borrow, and are preempted, by their shares of the cohort."""
    resize_factor: Annotated[int, msgspec.Meta(ge=0)] = 100
    """How many times the pods of its spec a job may be resized to on its worker, where neither its spec nor an
    annotation bounds that; 0 for any size."""
    growth_victims: Annotated[int, msgspec.Meta(ge=0)] = 10
    """How many workloads the growth of jobs on one cluster may preempt within `growth_window_s`, in each tree of quota;
    0 for any number."""
    growth_window_s: Seconds = 600.0
    notice_cap_s: Annotated[float, msgspec.Meta(ge=0, le=_DAY_S)] = 0.0
    """The longest notice that a job gets of pods that it loses to others, however long a one it asks for."""
    pods_before_jobs: bool = True
    """Whether a job with a least size may lose some of its pods before all, where its ClusterQueue does not say."""
    idle_growth_s: Annotated[float, msgspec.Meta(ge=0, le=_DAY_S)] = 300.0
    """How often a running job with a greatest size may grow into quota that nobody waits for; 0 for never."""
    idle_headroom: Share = 0.05
    """The part of each queue's quota and of each cluster that such growth leaves free."""
    usage_half_life_s: Annotated[float, msgspec.Meta(ge=0, le=366 * _DAY_S)] = 7 * _DAY_S
    """After so long what a LocalQueue has used counts half, for ClusterQueues that go by that; 0: only what it uses."""
    usage_sampling_s: Seconds = 300.0
    """For so long what a LocalQueue uses counts beforehand."""
    usage_weights: tuple[ResourceWeight, ...] = ()
    """How much an amount of each resource counts there; 1 for one that is not among them."""
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()
    """By which resources devices are charged that pods claim; a claim of another DeviceClass is refused."""
    slice_history_limit: Count = 10
    """How many finished slices of a job are kept."""
    slice_history_s: Annotated[float, msgspec.Meta(gt=0, le=366 * _DAY_S)] = 7 * _DAY_S
    """How long a finished slice is kept."""

    @property
    def usage_rule(self) -> UsageRule:
        """How the use of LocalQueues counts."""
        return UsageRule(self.usage_half_life_s, self.usage_sampling_s, self.usage_weights)

    @property
    def waits_for_pods(self) -> bool:
        """Whether pods have a limited time to get ready."""
        return (self.pods_ready_s, self.pods_recovery_s, self.scale_up_ready_s) != (None, None, None)

    def leading(self, **more: Any) -> "LeaderSettings":
        """These settings, with those of one process that leads by their names."""
        return LeaderSettings(**msgspec.structs.asdict(self), **more)

    def to_annotation(self) -> str:
        """What is not the default, as JSON."""
        own, default = msgspec.structs.asdict(self), msgspec.structs.asdict(ManagerDecisionSettings())
        return msgspec.json.encode({name: own[name] for name in own if own[name] != default[name]}).decode()

    @classmethod
    def from_lease(cls, lease: Manifest) -> Self | None:
        """The settings that a manager's Lease tells; None where it tells none."""
        notes = lease["metadata"].get("annotations") or {}
        return cls.from_annotation(notes.get(api_names.SETTINGS_ANNOTATION))

    @classmethod
    def from_annotation(cls, text: str | None) -> Self | None:
        """The settings of another process; None where this version cannot read them."""
        return read_json(text, msgspec.json.Decoder(cls))


class LeaderSettings(ManagerDecisionSettings, frozen=True, kw_only=True):
    """The decision settings, with what one process adds when it begins to lead."""

    message_bytes: int = MESSAGE_BYTES
    """The limit of a message."""
    shard: Shard = Shard()
    leads_since: str = ""
    """RFC 3339. What happened before is not timed: the manager that led then may have gone on."""
