"""Compares what the pods of a job request where they run with what the job is charged for, and charges the larger.

The agents report facts: how many pods run, and what they request together. A slice that was admitted with less is
charged for more from then on, and so are the next slices of its chain. Nothing is ever charged for less than it was
admitted with, whatever is reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.decide.manifests import annotation_patch, findings_patch
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import ClusterName, PodSetUse, Status
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, has_finding
from slicebus.slices.api.quantities import add, amounts, format_amount
from slicebus.slices.placement.flavors import flavors_held
from slicebus.slices.quota.quota import ClusterQueue, Usage
from slicebus.slices.workload.observed import QUOTA_GIVEN_BACK, Observed, ObservedPods
from slicebus.slices.workload.workload import Admission, FlavorName, Slice

BEYOND_GRANT = "PodsBeyondGrant"
"""The reason where more pods run than are granted."""
REQUEST_MORE = "PodsRequestMore"
"""The reason where the pods request more than the slice was admitted with."""
AS_ADMITTED = "AsAdmitted"
_NO_POD_SET = ""

Queues = Mapping[str, ClusterQueue]
"""The ClusterQueues by name."""
NO_QUEUES: Queues = {}


def take(view: JobView, report: Status, envelope: Envelope, *, queues: Queues, now: str) -> list[Command]:
    """Record what the pods of a report request beyond the charge of their slice, and show it.

    Raises ProtocolError for what is not a quantity.
    """
    if not _counts(view, envelope, report.spec_version):
        return []
    slice = _charged(view)
    if slice is None or slice.admission is None:
        return []
    used = {name: pods.use for name, pods in report.pods.items()}
    observed = _observed(view, slice, slice.admission, used, cluster=envelope.cluster, queues=queues)
    is_charged = observed is not None and not view.beside_kueue  # Else a Kueue charges.
    workload, note = view.workload(slice), observed.to_annotation() if observed and is_charged else None
    commands: list[Command] = []
    if annotation(workload, api_names.OBSERVED_ANNOTATION) != note:
        body = annotation_patch(api_names.OBSERVED_ANNOTATION, note)
        commands.append(Patch(resource=WORKLOADS, target=workload, body=body))
    finding = _finding(slice.with_observed(observed), is_charged=is_charged)
    if has_finding(workload, finding):
        return commands
    if finding.status or api_names.CHARGED_MORE_CONDITION in slice.conditions:
        body = findings_patch(workload, finding, now=now)
        commands.append(Patch(resource=WORKLOADS, target=workload, body=body, subresource="status"))
    if finding.status and view.job is not None:
        reason = api_names.CHARGED_MORE_CONDITION.rpartition("/")[2]
        commands.append(Emit(regarding=view.job, reason=reason, note=finding.message, warning=True))
    return commands


def given_back(slice: Slice) -> list[Finding]:
    """What a slice shows that gives its quota back after its pods requested more: the next ones may request less."""
    if slice.observed is None:
        return []
    message = "No pod is left of those that requested more: the next admission is by the pod templates"
    return [Finding(api_names.CHARGED_MORE_CONDITION, False, QUOTA_GIVEN_BACK, message)]


def end_former(view: JobView, *, now: str) -> list[Command]:
    """End what slices that wait say of pods that have gone, as an earlier version or a restore left it: no pod could
    disprove it, and the job would wait for that much quota."""
    if not view.is_without_pods or any(slice.admission is not None for slice in view.unfinished):
        return []
    return [
        Patch(
            resource=WORKLOADS,
            target=view.workload(slice),
            body=findings_patch(view.workload(slice), *findings, now=now),
            subresource="status",
        )
        for slice in view.unfinished
        if (findings := given_back(slice))
    ]


def differs(view: JobView, used: Mapping[str, PodSetUse], *, queues: Queues) -> bool:
    """Whether an inventory shows pods that request other than their slice is charged for: their status is asked for."""
    slice = _charged(view)
    if slice is None or slice.admission is None or view.cluster is None or view.beside_kueue:
        return False
    try:
        return _observed(view, slice, slice.admission, used, cluster=view.cluster, queues=queues) != slice.observed
    except ProtocolError:
        return False


def known_beforehand(view: JobView) -> Observed | None:
    """What the pods of a job's next slice are known to request beyond their template; None for nothing."""
    slice = _charged(view) or next(reversed(view.unfinished), None)
    known = slice.observed.without_counts() if slice is not None and slice.observed is not None else None
    return known if known is not None and known.pod_sets else None


def _counts(view: JobView, envelope: Envelope, version: int) -> bool:
    """Whether a report is of the copy that runs now, and newer than what the manager knows of its size.

    A request travels on another lane: a report that was published before it may have pods that are gone by now.
    """
    if view.job is None or view.outbox is None or view.cluster != envelope.cluster:
        return False
    if not view.outbox.record.is_of_this_run(version):
        return False
    last = view.desired.requested
    return last is None or not last.is_since((envelope.epoch, envelope.sequence), speaker=envelope.cluster_uid)


def _charged(view: JobView) -> Slice | None:
    """The slice whose quota the pods use; while a job is evicted the one that it loses."""
    return view.holder or view.evicted


def _observed(
    view: JobView,
    slice: Slice,
    admission: Admission,
    used: Mapping[str, PodSetUse],
    *,
    cluster: ClusterName,
    queues: Queues,
) -> Observed | None:
    """What is to be recorded. What was once seen stays as long as it is more than the template says: the next slice of
    the chain begins with it. None where there is nothing."""
    known = slice.observed.pod_sets if slice.observed is not None else {}
    flavors_of = _flavors(view, slice, admission, queues)
    pod_sets: dict[str, ObservedPods] = {}
    for name, (count, together) in _by_pod_set(admission, used).items():
        before = known.get(name)
        if count == 0:
            if before is not None and before.requests:
                pod_sets[name] = ObservedPods(requests=before.requests, flavors=before.flavors)
            continue
        own = flavors_of(name, together)
        each = {resource: -(-together[resource] // count) for resource in sorted(own)}
        granted = slice.held_counts.get(name, 0)
        seen = ObservedPods(
            requests=each,
            count=count if count > granted else 0,
            flavors={resource: own[resource] for resource in each if resource not in admission.flavors_of(name)},
        )
        if seen.count or _is_more(slice, name, seen, was_known=before is not None):
            pod_sets[name] = seen
    return Observed(cluster=cluster, pod_sets=pod_sets) if pod_sets else None


def _is_more(slice: Slice, name: str, seen: ObservedPods, *, was_known: bool) -> bool:
    """Whether one pod requests more than it was admitted with; where that was known before, more than its template."""
    templates = {pod_set.name: pod_set.requests for pod_set in slice.pod_sets}
    assignments = slice.admission.pod_sets if slice.admission is not None else ()
    admitted = next((one for one in assignments if one.name == name), None)
    paid = admitted.of_one if admitted is not None and admitted.count and not was_known else templates.get(name, {})
    return any(value > paid.get(resource, 0) for resource, value in seen.requests.items())


def _by_pod_set(admission: Admission, used: Mapping[str, PodSetUse]) -> dict[str, tuple[int, dict[str, int]]]:
    """How many pods of each pod set run, and what they request together. Those of no pod set count as one."""
    known = admission.counts
    total = {name: (0, dict[str, int]()) for name in known}
    for name, use in used.items():
        try:
            requests = amounts(use.requests)
        except ValueError as error:
            raise ProtocolError(DeadReason.REFUSED, f"requests of pod set {name!r}: {error}") from error
        key = name if name in known else _NO_POD_SET
        count, together = total.get(key, (0, {}))
        total[key] = count + use.running, add(together, {r: v for r, v in requests.items() if v > 0})
    return total


def _flavors(
    view: JobView, slice: Slice, admission: Admission, queues: Queues
) -> Callable[[str, Iterable[str]], dict[str, FlavorName]]:
    """By what flavor each resource of a pod set is charged, as far as the quota covers it: that of the pod set, else
    that of another resource of its group, also in the slice before, as the pods stay where they are; else the first of
    the group."""
    queue = queues.get(admission.cluster_queue)
    replaced = next((one for one in view.slices if one.key == slice.replaces), None)

    def flavor(name: str, resource: str) -> FlavorName | None:
        own, before = flavors_held(slice, name), flavors_held(replaced, name) if replaced is not None else {}
        if resource in own:
            return own[resource]
        group = next((one for one in queue.resource_groups if resource in one.resources), None) if queue else None
        if group is None or not group.flavors:
            return None
        others = (own, before, *(assignment.flavors for assignment in admission.pod_sets))
        taken = (flavors[other] for flavors in others for other in group.resources if other in flavors)
        return next(taken, group.flavors[0].name)

    return lambda name, resources: {one: found for one in resources if (found := flavor(name, one)) is not None}


def _finding(slice: Slice, *, is_charged: bool) -> Finding:
    """The condition ChargedMore of a slice with what was observed."""
    type, observed = api_names.CHARGED_MORE_CONDITION, slice.observed
    more = {key: value for key, value in slice.usage.items() if value > slice.admitted_usage.get(key, 0)}
    beyond = {name: pods.count for name, pods in observed.pod_sets.items() if pods.count} if observed else {}
    if observed is None or not (more or beyond):
        return Finding(type, False, AS_ADMITTED, "The pods request no more than the slice was admitted with")
    parts = list(_beyond_grant(slice, beyond)) + list(_requested(slice, observed))
    charged = _charges(more, slice.admitted_usage) if is_charged else "what Kueue has admitted"
    message = f"On cluster {observed.cluster} {'; '.join(parts)}"
    reason = BEYOND_GRANT if beyond else REQUEST_MORE
    return Finding(type, True, reason, f"{message}. Charged: {charged}" if charged else message)


def _beyond_grant(slice: Slice, beyond: Mapping[str, int]) -> Iterator[str]:
    for name, count in sorted(beyond.items()):
        granted = slice.held_counts.get(name, 0)
        yield f"{count} pods of {f'pod set {name}' if name else 'no pod set'} run, and {granted} are granted"


def _requested(slice: Slice, observed: Observed) -> Iterator[str]:
    admitted = {one.name: one.of_one for one in slice.admission.pod_sets if one.count} if slice.admission else {}
    for name, pods in sorted(observed.pod_sets.items()):
        paid = admitted.get(name, {})
        more = {resource: value for resource, value in pods.requests.items() if value > paid.get(resource, 0)}
        if name in admitted and more:
            amounts = " and ".join(f"{format_amount(resource, value)} {resource}" for resource, value in more.items())
            yield f"a pod of pod set {name} requests {amounts}"


def _charges(more: Usage, admitted: Usage) -> str:
    return ", ".join(
        f"{format_amount(resource, value)} {resource} in flavor {flavor} in place of "
        f"{format_amount(resource, admitted.get((flavor, resource), 0))}"
        for (flavor, resource), value in sorted(more.items())
    )
