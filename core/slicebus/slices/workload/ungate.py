"""Picks the pods that may start: at most the granted count of each pod set."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Self

import msgspec

from slicebus.slices.api import kueue
from slicebus.slices.api.conditions import is_ready
from slicebus.slices.api.owners import Owner
from slicebus.slices.api.quantities import Amounts, add, format_amount
from slicebus.slices.workload.pod_problems import PodCause, cause_of
from slicebus.slices.workload.pod_requests import requests_of
from slicebus.slices.workload.redis_cleanup import cleans_redis

Manifest = dict[str, Any]

_OVER = ("Succeeded", "Failed")


class Pod(msgspec.Struct, frozen=True):
    """The fields of one version of a pod that decisions use."""

    manifest: Manifest
    pod_set: str
    labels: dict[str, str]
    is_gated: bool
    """Whether our gate holds it."""
    is_over: bool
    """Whether it has succeeded or failed."""
    is_terminating: bool
    is_ready: bool
    requests: dict[str, int] = {}
    """What it requests, as amounts."""
    owner: Owner | None = None
    cleans_up: bool = False
    """Whether it cleans up after a job that goes (`cleans_redis`): it is in no pod set, and needs no grant."""
    cause: PodCause | None = None
    """Why it does not run, although our gate does not hold it; None for one that runs, starts or has ended."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """The fields of a pod's manifest."""
        metadata, gated, over = manifest["metadata"], is_gated(manifest), is_over(manifest)
        return cls(
            manifest,
            pod_set=pod_set_of(manifest),
            labels=metadata.get("labels", {}),
            is_gated=gated,
            is_over=over,
            is_terminating="deletionTimestamp" in metadata,
            is_ready=is_ready(manifest),
            requests=requests_of(manifest),
            owner=Owner.from_metadata(manifest["metadata"]),
            cleans_up=cleans_redis(manifest),
            cause=None if gated or over else cause_of(manifest),
        )

    @property
    def name(self) -> str:
        """The name of the pod, within its namespace."""
        name: str = self.manifest["metadata"]["name"]
        return name

    @property
    def owner_uid(self) -> str:
        """The UID of its controller; empty for none."""
        return self.owner.uid if self.owner is not None else ""

    def is_left_by_another(self, objects: Iterable[Manifest]) -> bool:
        """Whether its owner had the kind and name of one of these objects and is gone: the pod goes too."""
        return any(
            self.owner is not None
            and (self.owner.kind, self.owner.name) == (owner["kind"], owner["metadata"]["name"])
            and self.owner.uid != owner["metadata"]["uid"]
            for owner in objects
        )

    def stands_as(self, before: Self) -> bool:
        """Whether this version changes no decision: a kubelet writes many versions.

        Never true for a gated pod: a failed write to it has to be decided again. One that turns terminating still
        counts, and from then on pods that wait for its place are told how long it stays.
        """
        return not self.is_gated and msgspec.structs.replace(before, manifest=self.manifest) == self


class Members(msgspec.Struct):
    """The pods of a pod set that have not ended."""

    gated: list[Pod] = []
    running: list[Pod] = []
    """Pods without our gate: they use what was granted, also while they terminate."""

    @property
    def requests(self) -> dict[str, str]:
        """What the running pods request together, as quantities by resource."""
        total: Amounts = {}
        for pod in self.running:
            total = add(total, pod.requests)
        return {resource: format_amount(resource, value) for resource, value in sorted(total.items()) if value}


PodSets = Mapping[str, Members]
"""By name."""


def is_gated(pod: Manifest) -> bool:
    """Whether our gate holds the pod."""
    gates = pod["spec"].get("schedulingGates")
    return bool(gates) and any(gate["name"] == kueue.ELASTIC_GATE for gate in gates)


def is_over(pod: Manifest) -> bool:
    """Whether a pod has succeeded or failed."""
    return pod.get("status", {}).get("phase") in _OVER


def by_pod_set(pods: Iterable[Pod]) -> PodSets:
    """The pods that have not ended, by pod set; without those that clean up."""
    sets: defaultdict[str, Members] = defaultdict(Members)
    for pod in pods:
        if not (pod.is_over or pod.cleans_up):
            members = sets[pod.pod_set]
            (members.gated if pod.is_gated else members.running).append(pod)
    return dict(sets)


def pod_set_of(pod: Manifest) -> str:
    """The pod set of a pod or of a template, by its label; empty for none."""
    name: str = (pod["metadata"].get("labels") or {}).get(kueue.POD_SET_LABEL, "")
    return name


def to_ungate(
    pod_sets: PodSets,
    granted: Mapping[str, int],
    *,
    owners: Sequence[Manifest] = (),
    replica: Callable[[dict[str, str], str], tuple[str, str]] = lambda _labels, owner: (owner, ""),
    replica_size: Callable[[str, str], int] = lambda _pod_set, _owner: 1,
    named_for_deletion: Collection[str] = (),
    fits: Callable[[Pod], bool] = lambda _pod: True,
) -> list[Manifest]:
    """The gated pods that may start now: in the order of `owners`, lowest name first.

    Each pod set may start its granted count minus its running pods. Pods of a multi-host replica start together:
    `replica` tells those of one from those of another (`JobKind.replica`). `replica_size` is how many they are, by pod
    set and the UID of their owner. A pod is not started where an earlier object with the name of an owner has left it:
    it goes with that object. Neither is one that is named for deletion, nor its replica, which is deleted whole. Nor is
    one that does not fit its slice, nor the rest of its replica.
    """
    chosen: list[Manifest] = []
    ranks = {owner["metadata"]["uid"]: rank for rank, owner in enumerate(owners)}

    def stays(pod: Pod) -> bool:
        return not (pod.is_terminating or pod.name in named_for_deletion or pod.is_left_by_another(owners))

    def rank(pods: list[Pod]) -> int:
        return ranks.get(pods[0].owner_uid, len(ranks))

    for name, members in sorted(pod_sets.items()):
        room = granted.get(name, 0) - len(members.running)
        replicas = (
            _replicas(members, stays, known_by=replica, size=partial(replica_size, name))
            if members.gated and room > 0
            else []
        )
        for pods in sorted(replicas, key=rank):
            if len(pods) <= room and all(map(fits, pods)):
                room -= len(pods)
                chosen += (pod.manifest for pod in pods)
    return chosen


def could_start(pod_sets: PodSets, granted: Mapping[str, int]) -> list[Manifest]:
    """The gated pods of pod sets with room: another agent may have picked any of them."""
    return [
        pod.manifest
        for name, members in pod_sets.items()
        if len(members.running) < granted.get(name, 0)
        for pod in members.gated
    ]


def _replicas(
    members: Members,
    stays: Callable[[Pod], bool],
    *,
    known_by: Callable[[dict[str, str], str], tuple[str, str]],
    size: Callable[[str], int],
) -> list[list[Pod]]:
    """The gated pods by replica, without the replicas whose pods are not all there yet. `size` is that of an owner's
    replicas, by its UID."""
    waiting = sorted(filter(stays, members.gated), key=attrgetter("name"))
    running = Counter(known_by(pod.labels, pod.owner_uid) for pod in members.running if stays(pod))
    replicas: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod in waiting:
        replicas[known_by(pod.labels, pod.owner_uid)].append(pod)
    complete: list[list[Pod]] = []
    for known, pods in replicas.items():
        whole, (_, name) = size(pods[0].owner_uid), known
        if whole == 1:
            complete += [[pod] for pod in pods]
        elif not name:
            complete += _by_number(pods, running=running[known], size=whole)
        elif len(pods) + running[known] >= whole:
            complete.append(pods)
    return complete


def _by_number(waiting: list[Pod], *, running: int, size: int) -> list[list[Pod]]:
    """Pods without a replica's name, as KubeRay makes them up to 1.5: first those that the running ones lack to be
    whole replicas, then whole replicas."""
    lacking = -running % size
    first, others = waiting[:lacking], waiting[lacking:]
    whole = [others[start : start + size] for start in range(0, len(others) - size + 1, size)]
    if len(first) < lacking:
        return []
    return [first, *whole] if first else whole
