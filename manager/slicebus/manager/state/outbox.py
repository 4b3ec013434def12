"""The outbox of a job: what its worker shall hold, and how far that has come.

What it shall hold is recorded on the manager's objects before it is published (rule 5 of the design). The annotations
have sentinels in place of a hash. They are read here, and nowhere else: decisions ask for the `OutboxState`.
"""

from collections.abc import Iterable
from enum import StrEnum
from operator import attrgetter
from typing import Final, Literal, NamedTuple, Self

import msgspec

from slicebus.manager.state.annotations import annotation
from slicebus.proto.messages import ClusterName, Manifest, RequestKey, Version
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json, read_number
from slicebus.slices.api.conditions import Finding, conditions_of

LOST = "lost"
"""The hash of a dispatch that the worker does not hold although it reported it: it has to be dispatched anew."""

NO_REQUEST = RequestKey()
MOST_BELIEVED = 2**52
"""The highest version of a job that the manager takes from others where it does not know it. No job has so many orders,
and its next ones are far from the `MOST_VERSION` of records."""


class Held(StrEnum):
    """What a worker shall hold for a job."""

    HOLD = "hold"
    """A copy whose pods may run, as many as are granted."""
    SUSPENDED = "suspended"
    """A copy without pods, or none: the job has lost its quota. Of a kind that cannot be suspended, one whose notice
    runs: nothing comes after it."""
    ABSENT = "absent"
    """Nothing. Once that is written, only its report ends it: no copy comes in between."""


class Progress(StrEnum):
    """How far a dispatch has come."""

    WRITTEN = "written"
    """It is written on the object. This process has not published it since the worker's agent last said hello."""
    PUBLISHED = "published"
    """It is published, and its report is awaited. A new process does not know that, and publishes it again."""
    APPLIED = "applied"
    """The worker has reported it."""
    LOST = "lost"
    """The worker holds something else, although it had reported it. Only a newer version can change that."""


class OutboxState(NamedTuple):
    """The state of a job's outbox."""

    held: Held
    progress: Progress


HOLDING: Final = OutboxState(Held.HOLD, Progress.APPLIED)
"""The worker has the copy that it shall have."""
WITHDRAWN: Final = OutboxState(Held.ABSENT, Progress.APPLIED)
"""The worker surely holds nothing, as before the first dispatch."""
STOPPED: Final = OutboxState(Held.SUSPENDED, Progress.APPLIED)
"""The worker surely has no pod of the job, and has reported that with the version. Of a kind that cannot be suspended
it has reported that the notice is over."""


class Dispatch(msgspec.Struct, frozen=True):
    """What a worker shall hold for a job: a version that only grows, and the hash of the content."""

    version: Version
    hash: str
    answers: RequestKey = NO_REQUEST
    """The newest request when it was written."""
    cluster: str = ""
    """The cluster that it is for; empty in old records, which are for the cluster of the chain."""
    place: str = ""
    """A hash of the flavors that the worker's copy was made for: its pods have their node labels."""
    bounds: str = ""
    """A hash of what the autoscaler of the worker's copy goes by; empty without one, and in old records."""
    autoscaled: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker's copy was made with Ray's autoscaler, which no edit turns on or off there. Unset for kinds
    without one, without a copy, and in old records."""
    taken_back: str | msgspec.UnsetType = msgspec.UNSET
    """The last scale-up that was taken back."""
    suspended: bool = False
    """Whether the worker shall hold the job without pods."""
    notice_s: float | msgspec.UnsetType = msgspec.UNSET
    """How long before that the job is told, as it was first ordered. Unset for anything else, and in old records."""
    previous_cluster: str = msgspec.field(default="", name="left")
    """The cluster of the dispatches before, where that was another. Messages from there are late."""
    since: Version | msgspec.UnsetType = msgspec.UNSET
    """The first version of the present run. Reports of older versions are of an earlier run."""
    cleared: Version | msgspec.UnsetType = msgspec.UNSET
    """The version of the last delete that the worker has reported: it had no copy of an older version from then on."""
    lost_version: Version | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="withoutCopy")
    """The version at which the worker had lost its copy and had no other. Set until it has reported a newer order."""
    left_copies: dict[str, Version] = msgspec.field(default_factory=dict, name="behind")
    """The given-up clusters that may have a copy left, with the version that removes it."""
    unknown_end: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker's copy is gone and may have ended. Set until the job has given its quota back."""
    vanished: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker has reported that its copy is gone without an order. The next dispatch clears it."""

    moved: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker has had a version that the manager does not know, as after a restore of the manager's etcd:
    its job may be on another slice. Set until the worker has reported."""

    @staticmethod
    def absent(cluster: ClusterName) -> "Dispatch":
        """The dispatch of nothing, without its version."""
        return Dispatch(version=0, hash=api_names.ABSENT, cluster=cluster)

    @property
    def has_copy(self) -> bool:
        """Whether the worker has a copy by it, as far as the manager knows."""
        return self.held is not Held.ABSENT and not self.has_vanished

    @property
    def cleared_version(self) -> Version:
        """`cleared`, or 0 where no delete was reported."""
        return 0 if self.cleared is msgspec.UNSET else self.cleared

    @property
    def newest_gone(self) -> Version:
        """The newest version whose copy the worker surely has no more, by its report or its inventory; 0 for none."""
        return max(self.cleared_version, 0 if self.lost_version is msgspec.UNSET else self.lost_version)

    @property
    def is_without_copy(self) -> bool:
        """Whether the worker has lost its copy, and has no order to make another one."""
        return self.hash == LOST and self.lost_version == self.version

    def never_made(self) -> "Dispatch":
        """This suspension as a withdrawal: its worker has reported that it never had a copy to suspend."""
        return msgspec.structs.replace(
            self,
            hash=api_names.ABSENT,
            answers=NO_REQUEST,
            place="",
            autoscaled=msgspec.UNSET,
            suspended=False,
            vanished=msgspec.UNSET,
            lost_version=msgspec.UNSET,
        )

    def lost(self, *, seen: int, has_copy: bool) -> "Dispatch":
        """This dispatch as lost, at the highest version that was seen of the job: the next one is above that.

        `has_copy`: whether the worker has another copy, instead of none.
        """
        return msgspec.structs.replace(
            self,
            version=seen,
            hash=LOST,
            answers=NO_REQUEST,
            vanished=msgspec.UNSET,
            # A delete that is lost is read as a copy that is lost, but its run ended with the delete.
            since=seen + 1 if self.held is Held.ABSENT else self.since,
            moved=True if seen > self.version else self.moved,
            autoscaled=self.autoscaled if has_copy else msgspec.UNSET,
            lost_version=msgspec.UNSET if has_copy else seen,
        )

    @property
    def held(self) -> Held:
        """What the worker shall hold. A delete that is lost is read as a copy: nobody knows what the worker holds."""
        if self.hash == api_names.ABSENT:
            return Held.ABSENT
        return Held.SUSPENDED if self.suspended else Held.HOLD

    @property
    def has_vanished(self) -> bool:
        """`vanished` as a bool."""
        return self.vanished is True

    def is_of_this_run(self, version: int) -> bool:
        """Whether a report of this version is of the present run."""
        return self.since is msgspec.UNSET or version >= self.since

    def to_annotation(self) -> str:
        """The annotation's value, as JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_manifest(manifest: Manifest) -> "Dispatch | None":
        """The dispatch on a Workload or a job; None where there is none or it is unreadable.

        One that was written with an admission is a condition. A later change of it is an annotation.
        """
        texts = _texts(manifest, api_names.DISPATCHED_ANNOTATION, api_names.ORDER_CONDITION)
        dispatches = filter(None, (read_json(text, _DISPATCH) for text in texts))
        return max(dispatches, key=attrgetter("version"), default=None)

    def to_finding(self) -> Finding:
        """The dispatch as a condition."""
        return Finding(api_names.ORDER_CONDITION, True, "Admitted", self.to_annotation())


class Outbox(msgspec.Struct, frozen=True):
    """The newest dispatch of a job, and the object that holds it: a Workload, or the job after its last one."""

    record: Dispatch
    recorded_on: Manifest
    applied: int
    """The version that the worker has reported, on the same object; 0 before the first."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self | None:
        """The outbox on a Workload or a job; None where it has no dispatch."""
        record = Dispatch.from_manifest(manifest)
        return None if record is None else cls(record, manifest, applied_version(manifest))

    @classmethod
    def left_on(cls, job: Manifest) -> Self | None:
        """What a job keeps of its orders after its last Workload: the version that the next order has to be above.

        Its users may write there. So it says nothing of what a worker holds: the last Workload went after its worker
        had reported that it holds nothing.
        """
        record = Dispatch.from_manifest(job)
        version = max(record.version, applied_version(job)) if record is not None else 0
        if record is None or not 0 < version <= MOST_BELIEVED:
            return None
        gone = Dispatch(version, api_names.ABSENT, cluster=record.cluster, previous_cluster=record.previous_cluster)
        return cls(gone, job, applied=version)

    @classmethod
    def newest(cls, outboxes: Iterable[Self | None], *, left: Self | None = None) -> Self | None:
        """The newest of the outboxes on a job's Workloads; without one `left`, that on the job; else None: nothing was
        ever dispatched."""
        return max(filter(None, outboxes), key=attrgetter("record.version"), default=left)

    @property
    def seen(self) -> int:
        """The highest version that is known. The worker may have reported a later one than that of the record, whose
        Workload somebody has deleted."""
        return max(self.record.version, self.applied)

    @property
    def is_reported(self) -> bool:
        """Whether the worker has reported the newest version. That proves nothing about one that is lost."""
        return self.applied >= self.record.version

    def has_outlived(self, version: int) -> bool:
        """Whether the worker has had another copy, or none, after the one of this version: that it is gone is no news.

        A suspended copy that is to run again is still that copy until the worker reports a version of the new run.
        """
        record = self.record
        return version <= record.cleared_version or (
            record.is_of_this_run(self.applied) and not record.is_of_this_run(version)
        )

    def applied_finding(self) -> Finding:
        """The version that the worker has reported, as the condition."""
        return Finding(api_names.APPLIED_CONDITION, True, "Applied", str(self.applied))

    def state(self, *, published: int = 0) -> OutboxState:
        """The state. `published`: the newest version that this process has published; 0 where that does not matter."""
        record = self.record
        if record.hash == LOST:
            return OutboxState(record.held, Progress.LOST)
        if self.is_reported:
            return OutboxState(record.held, Progress.APPLIED)
        return OutboxState(record.held, Progress.PUBLISHED if published >= record.version else Progress.WRITTEN)


def applied_version(manifest: Manifest) -> int:
    """The version that the worker has reported, on the object that has the dispatch; 0 before the first.

    One that was written with the answer of a check is a condition.
    """
    return max(map(read_number, _texts(manifest, api_names.APPLIED_ANNOTATION, api_names.APPLIED_CONDITION)))


def _texts(manifest: Manifest, name: str, condition: str) -> list[str | None]:
    """An annotation, and the message of the condition that says the same."""
    messages = [entry.get("message") for entry in conditions_of(manifest) if entry["type"] == condition]
    return [annotation(manifest, name), *messages]


_DISPATCH = msgspec.json.Decoder(Dispatch)
