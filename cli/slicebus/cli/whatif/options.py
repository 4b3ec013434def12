"""Reads what somebody asks to have been otherwise: `batch.cpu=+20%`, `east=-50%`, a preemption policy, files. Pure, but
for the files."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from slicebus.cli.difference.edits import edits_of, merged, unreadable
from slicebus.manager.decide.whatif.hypotheses import (
    AmountChange,
    Hypothetical,
    PolicyEdit,
    PreemptionChange,
    QuotaChange,
    RoomChange,
    amount_change,
)
from slicebus.manager.decide.whatif.recorded_past import RecordedPast
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError
from slicebus.slices.quota.policies import Whom

_FIELDS: Mapping[str, Collection[str]] = {
    "withinClusterQueue": (Whom.NEVER, Whom.LOWER, Whom.LOWER_OR_NEWER),
    "reclaimWithinCohort": (Whom.NEVER, Whom.LOWER, Whom.ANY),
    "borrowWithinCohort": (Whom.NEVER, Whom.LOWER),
}
"""The policies that each field of `spec.preemption` takes."""
_AMOUNTS = "use +20%, -50%, +8, -8, or 64"


def changes_of(
    past: RecordedPast,
    *,
    quota: Iterable[str],
    clusters: Iterable[str],
    preemption: Iterable[str],
    policy: Sequence[str],
) -> list[Hypothetical]:
    """The changes of these options, in order. Raises ConfigurationError for what makes no sense, or names nothing that
    is in the recording."""
    world = _world(past)
    changes: list[Hypothetical] = [
        *(quota_change(text, _quota_of(world)) for text in quota),
        *(room_change(text, _rooms_of(world)) for text in clusters),
        *(preemption_change(text, world.quotas.cluster_queues) for text in preemption),
    ]
    if policy:
        changes.append(_policy_edit(world, policy))
    return changes


def quota_change(text: str, known: Mapping[str, Collection[tuple[str, str]]]) -> QuotaChange:
    """The change of `batch.cpu=+20%` or `batch.cpu@spot=64`. `known` has the flavors and resources of each queue and
    cohort."""
    subject, amount = _parts("--quota", text)
    queue, resource, flavor = _named("--quota", text, subject, known)
    if not resource:
        raise ConfigurationError(f"--quota {text}: name a resource, as {queue}.cpu")
    of = [each for each, name in known[queue] if name == resource and flavor in ("", each)]
    if not of:
        there = ", ".join(sorted({f"{name}@{each}" for each, name in known[queue]})) or "nothing"
        raise ConfigurationError(f"--quota {text}: {queue} has quota of {there}")
    if amount.exactly is not None and len(of) > 1:
        raise ConfigurationError(f"--quota {text}: name one of its flavors, as {queue}.{resource}@{of[0]}")
    return QuotaChange(text=text, queue=queue, resource=resource, flavor=flavor, amount=amount)


def room_change(text: str, known: Mapping[str, Collection[tuple[str, str]]]) -> RoomChange:
    """The change of `east=-50%` or `east.cpu@spot=+64`. `known` has the flavors and resources of each cluster."""
    subject, amount = _parts("--clusters", text)
    cluster, resource, flavor = _named("--clusters", text, subject, known)
    of = [each for each in known[cluster] if resource in ("", each[1]) and flavor in ("", each[0])]
    if not of:
        raise ConfigurationError(f"--clusters {text}: cluster {cluster} reports no such room")
    if amount.factor is None and (not resource or (amount.exactly is not None and len(of) > 1)):
        raise ConfigurationError(f"--clusters {text}: name a resource and a flavor, as {cluster}.{of[0][1]}@{of[0][0]}")
    return RoomChange(text=text, cluster=cluster, resource=resource, flavor=flavor, amount=amount)


def preemption_change(text: str, queues: Collection[str]) -> PreemptionChange:
    """The change of `batch.withinClusterQueue=LowerPriority`."""
    subject, _, policy = text.partition("=")
    queue, _, field = subject.rpartition(".")
    if field not in _FIELDS or not queue:
        raise ConfigurationError(f"--preemption {text}: use QUEUE.FIELD=POLICY, with a field of {', '.join(_FIELDS)}")
    if queue not in queues:
        raise ConfigurationError(f"--preemption {text}: there was no ClusterQueue {queue}")
    if policy not in _FIELDS[field]:
        raise ConfigurationError(f"--preemption {text}: {field} takes {', '.join(_FIELDS[field])}")
    return PreemptionChange(text=text, queue=queue, field=field, policy=policy)


def _parts(option: str, text: str) -> tuple[str, AmountChange]:
    subject, equals, amount = text.partition("=")
    if not (subject and equals and amount):
        raise ConfigurationError(f"{option} {text}: use NAME=AMOUNT; {_AMOUNTS}")
    try:
        return subject, amount_change(amount)
    except ValueError as error:
        raise ConfigurationError(f"{option} {text}: {amount} is no amount; {_AMOUNTS}") from error


def _named(option: str, text: str, subject: str, known: Collection[str]) -> tuple[str, str, str]:
    """The name, the resource and the flavor of `NAME.RESOURCE@FLAVOR`. A name may have dots, as a resource may."""
    whole, _, flavor = subject.partition("@")
    fitting = [name for name in known if whole == name or whole.startswith(f"{name}.")]
    if not fitting:
        there = ", ".join(sorted(known)) or "none"
        raise ConfigurationError(f"{option} {text}: the recording has {there}")
    name = max(fitting, key=len)
    return name, whole[len(name) + 1 :], flavor


def _world(past: RecordedPast) -> ManagerStore:
    """Every object that was there in the span, as it last was."""
    world = ManagerStore()
    for resource, manifest in (*past.policies, *((each.resource, each.manifest) for each in past.changes)):
        cache = world.cache_of(resource)
        assert cache is not None
        cache.put(manifest)
    return world


def _quota_of(world: ManagerStore) -> Mapping[str, Collection[tuple[str, str]]]:
    queues = {queue.name: list(queue.limits) for queue in world.quotas.cluster_queues.values()}
    return {cohort.name: list(cohort.limits) for cohort in world.quotas.cohorts} | queues


def _rooms_of(world: ManagerStore) -> Mapping[str, Collection[tuple[str, str]]]:
    return {
        cluster.name: [(flavor, resource) for flavor, room in (cluster.capacity or {}).items() for resource in room]
        for cluster in world.quotas.worker_clusters
    }


def _policy_edit(world: ManagerStore, files: Sequence[str]) -> PolicyEdit:
    edits = list(merged(world, edits_of(files, namespace="default")))
    for resource, manifest in edits:
        cache = world.cache_of(resource)
        assert cache is not None
        cache.put(manifest)
    if faults := unreadable(world, edits):
        raise ConfigurationError(f"{', '.join(faults)} cannot be read")
    return PolicyEdit(text=", ".join(files), edits=tuple(edits))
