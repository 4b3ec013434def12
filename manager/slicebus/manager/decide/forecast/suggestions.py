"""The smallest changes that would let a waiting slice run. Each is tried: the cycle decides the world that has it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

import msgspec

from slicebus.manager.decide.forecast.verdict import Loss, Verdict, verdicts
from slicebus.proto.messages import Manifest, counts_text
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.quantities import format_amount
from slicebus.slices.placement.suitability import forbids, unsuitable
from slicebus.slices.quota.cohorts import grow
from slicebus.slices.quota.quota import ClusterQueue, FlavorQuota, FlavorResource, ResourceGroup, Usage
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Slice

_PODS = "pods"


class Remedy(StrEnum):
    """What would be changed."""

    PODS = "FewerPods"
    QUEUE = "Queue"
    PRIORITY = "PriorityClass"
    FLAVOR = "Flavor"
    QUOTA = "Quota"


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """One change, and what a cycle decides with it."""

    remedy: Remedy
    to: str
    """The queue, the class, the sizes, the flavor, or the quota that is added."""
    text: str
    """The change as a clause: `with main=3 instead of 8`."""
    losses: tuple[Loss, ...]
    """What others would lose then."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Where a slice is tried."""

    snapshot_of: Callable[[Slice], Snapshot]
    """What a cycle over the slice's queue decides from."""
    others: tuple[Slice, ...] = ()
    """The slices that are tried with it."""
    instead_of: tuple[Slice, ...] = ()
    """The waiting slices that these take the place of."""
    priority_classes: Mapping[str, int]
    """The values of the WorkloadPriorityClasses."""

    def with_slice(self, slice: Slice, change: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot) -> Verdict:
        """What the cycle decides about a slice in this world, or in a changed one."""
        snapshot = change(self.snapshot_of(slice))
        return verdicts(snapshot, [*self.others, slice], instead_of=self.instead_of)[slice.key]


def suggestions(world: Surroundings, slice: Slice) -> Iterator[Suggestion]:
    """What would let the slice run, each the smallest of its kind."""
    for suggest in (_fewer_pods, _other_queues, _higher_priority, _other_flavors, _more_quota):
        yield from suggest(world, slice)


def _tried(world: Surroundings, slice: Slice, remedy: Remedy, to: str, text: str) -> Iterator[Suggestion]:
    verdict = world.with_slice(slice)
    if verdict.outcome.runs:
        yield Suggestion(remedy=remedy, to=to, text=text, losses=verdict.losses)


def _fewer_pods(world: Surroundings, slice: Slice) -> Iterator[Suggestion]:
    """The most pods of the pod set that has most of them, in whole replicas, with the others as they are."""
    most = max(slice.pod_sets, key=lambda pods: pods.count, default=None)
    if most is None:
        return
    step = slice.replica_sizes.get(most.name, 1)
    held = world.snapshot_of(slice).part.holdings.holder(slice.chain_id)
    low = held.held_counts.get(most.name, 0) // step + 1 if held is not None else 1

    def smaller(replicas: int) -> Slice:
        return _sized(slice, most, replicas * step)

    best, found, high = 0, None, most.count // step - 1
    while low <= high:
        middle = (low + high) // 2
        verdict = world.with_slice(smaller(middle))
        if verdict.outcome.runs:
            best, found, low = middle, verdict, middle + 1
        else:
            high = middle - 1
    if found is not None:
        to = counts_text({most.name: best * step})
        yield Suggestion(remedy=Remedy.PODS, to=to, text=f"with {to} instead of {most.count}", losses=found.losses)


def _sized(slice: Slice, pod_set: PodSet, count: int) -> Slice:
    pod_sets = tuple(msgspec.structs.replace(each, count=count) if each is pod_set else each for each in slice.pod_sets)
    return msgspec.structs.replace(slice, pod_sets=pod_sets)


def _other_queues(world: Surroundings, slice: Slice) -> Iterator[Suggestion]:
    if slice.replaces is not None:
        return
    locals = world.snapshot_of(slice).local_queues
    for namespace, name in sorted(locals):
        if namespace == slice.namespace and name != slice.queue:
            moved = msgspec.structs.replace(slice, queue=name)
            yield from _tried(world, moved, Remedy.QUEUE, name, f"in LocalQueue {name}")


def _higher_priority(world: Surroundings, slice: Slice) -> Iterator[Suggestion]:
    """The lowest class above its own that lets it run."""
    for name, value in sorted(world.priority_classes.items(), key=lambda entry: (entry[1], entry[0])):
        if value > slice.priority:
            raised = msgspec.structs.replace(slice, priority=value)
            found = [*_tried(world, raised, Remedy.PRIORITY, name, f"with WorkloadPriorityClass {name}")]
            if found:
                yield from found
                return


def _other_flavors(world: Surroundings, slice: Slice) -> Iterator[Suggestion]:
    """The flavors of its queue that its pods do not suit, with what they would have to say for that."""
    snapshot = world.snapshot_of(slice)
    queue = snapshot.cluster_queues.get(snapshot.cluster_queue_of(slice))
    for group in queue.resource_groups if queue is not None else ():
        for quota in group.flavors:
            flavor = snapshot.flavors.get(quota.name)
            if flavor is None or not any(_unsuitable(pods, quota, group, snapshot) for pods in slice.pod_sets):
                continue
            keys = {key for each in group.flavors if each.name in snapshot.flavors for key in _labels(each, snapshot)}
            tolerated = [taint for taint in flavor.taints if forbids(taint, flavor.tolerations)]
            suited = msgspec.structs.replace(
                slice, pod_sets=tuple(_suited(pods, flavor.node_labels, keys, tolerated) for pods in slice.pod_sets)
            )
            yield from _tried(world, suited, Remedy.FLAVOR, quota.name, f"with pods that suit flavor {quota.name}")


def _unsuitable(pods: PodSet, quota: FlavorQuota, group: ResourceGroup, snapshot: Snapshot) -> bool:
    return unsuitable(pods, snapshot.flavors[quota.name], group, snapshot.flavors) is not None


def _labels(quota: FlavorQuota, snapshot: Snapshot) -> Mapping[str, str]:
    return snapshot.flavors[quota.name].node_labels


def _suited(pods: PodSet, labels: Mapping[str, str], keys: set[str], taints: Sequence[Manifest]) -> PodSet:
    """The pods with the flavor's labels as their selector, and with tolerations of its taints."""
    spec = pods.template.get("spec", {})
    selector = {key: value for key, value in spec.get("nodeSelector", {}).items() if key not in keys}
    tolerations = [{"key": taint["key"], "operator": "Exists", "effect": taint["effect"]} for taint in taints]
    suited = {
        **{name: value for name, value in spec.items() if name != "affinity"},
        "nodeSelector": {**selector, **labels},
        "tolerations": [*(spec.get("tolerations") or ()), *tolerations],
    }
    return msgspec.structs.replace(pods, template={**pods.template, "spec": suited})


def _more_quota(world: Surroundings, slice: Slice) -> Iterator[Suggestion]:
    """What its ClusterQueue lacks of the first flavor with which it runs then: for the slice alone, or else for those
    that are tried with it too."""
    snapshot = world.snapshot_of(slice)
    queue = snapshot.cluster_queues.get(snapshot.cluster_queue_of(slice))
    if queue is None:
        return
    beside = [other for other in world.others if snapshot.cluster_queue_of(other) == queue.name]
    for flavor in dict.fromkeys(quota.name for group in queue.resource_groups for quota in group.flavors):
        for slices in ([slice], [slice, *beside]):
            lacking = _lacking(snapshot, slices, queue, flavor)
            verdict = world.with_slice(slice, partial(_with_quota, name=queue.name, added=lacking))
            if lacking and verdict.outcome.runs:
                told = ", ".join(f"{resource}={format_amount(resource, n)}" for (_, resource), n in lacking.items())
                text = f"with {told} more quota of flavor {flavor} in ClusterQueue {queue.name}"
                yield Suggestion(remedy=Remedy.QUOTA, to=f"{flavor}: {told}", text=text, losses=verdict.losses)
                return


def _lacking(snapshot: Snapshot, slices: Sequence[Slice], queue: ClusterQueue, flavor: str) -> Usage:
    """How much more quota of a flavor these slices together need than is available to them."""
    holdings = snapshot.part.holdings
    node = grow(snapshot.cluster_queues.values(), snapshot.cohorts, holdings.totals).queues[queue.name]
    more = dict[FlavorResource, int]()
    for slice in slices:
        held = holdings.used_by(slice.chain_id).get(queue.name, {})
        for key, need in _needs(slice, queue, flavor).items():
            more[key] = more.get(key, 0) + need - held.get(key, 0)
    return {key: lack for key, n in more.items() if (lack := n - max(0, node.available(key))) > 0}


def _needs(slice: Slice, queue: ClusterQueue, flavor: str) -> dict[FlavorResource, int]:
    """What all pods of a slice request of the resources that a flavor has in a queue."""
    needs = dict[FlavorResource, int]()
    for group in queue.resource_groups:
        for quota in group.flavors:
            if quota.name == flavor:
                for pods in slice.pod_sets:
                    for resource in group.resources:
                        amount = pods.charged.get(resource, 1 if resource == _PODS else 0)
                        if amount:
                            key = (quota.name, resource)
                            needs[key] = needs.get(key, 0) + amount * pods.count
    return needs


def _with_quota(snapshot: Snapshot, *, name: str, added: Usage) -> Snapshot:
    """The snapshot with more quota in one ClusterQueue."""

    def raised(quota: FlavorQuota) -> FlavorQuota:
        limits = {
            resource: msgspec.structs.replace(limit, nominal=limit.nominal + added.get((quota.name, resource), 0))
            for resource, limit in quota.limits.items()
        }
        return msgspec.structs.replace(quota, limits=limits)

    queue = snapshot.cluster_queues[name]
    groups = tuple(
        msgspec.structs.replace(group, flavors=tuple(map(raised, group.flavors))) for group in queue.resource_groups
    )
    queues = {**snapshot.cluster_queues, name: msgspec.structs.replace(queue, resource_groups=groups)}
    return msgspec.structs.replace(snapshot, cluster_queues=queues)
