"""Jobs that can shrink, where jobs of higher priority come and go, and the rules for what is taken back from them.

No job is made smaller than its least size by a shrink, no two take pods from each other in turn, and whoever lost pods
asks for them again until it has them.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any

from simulation.cycle_rules import floor_of
from simulation.later import with_later
from simulation.queues import FLAVORS, QUEUES, policy_of
from simulation.schedule import WORKERS, Moment, Policy, Quota, Scale, Schedule, Submit
from simulation.sizes import annotate, said
from simulation.violations import Violation
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS
from slicebus.manager.decide.job import size_bounds
from slicebus.slices.admission.preemption import preemptor_job
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition, PreemptionReason
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
_KINDS = ("Job", "Job", "RayCluster", "RayJob")
_LOW, _HIGH = "lmno", "pqrs"
"""Not the names of the other jobs of a run."""
_SOON = timedelta(minutes=5)
"""Pods do not go forth and back in ten minutes; the clocks of two managers may be four apart."""


class Least(Moment):
    """Some job of the manager has another least size for all its pod sets, or none."""

    pick: int
    least: int | None


def with_elastic(schedule: Schedule) -> Schedule:
    """The same run, on one of four with such jobs."""
    return with_later(schedule, "elastic", _elastic)


async def set_least(client: KubeClient, item: Least) -> None:
    """Play it."""
    none = {api_names.MIN_SIZE_ANNOTATION: None}
    least = item.least
    await annotate(client, item.pick, lambda job: none if least is None else said_by(job, least))


def said_by(job: Manifest, least: int) -> dict[str, str]:
    """The annotation by which a job says its least size, for each pod set that is named by its user."""
    return said(job, api_names.MIN_SIZE_ANNOTATION, lambda count: min(least, count))


def is_refused(job: Manifest) -> bool:
    """Whether a job that has no slice gets none: its user has made it smaller than its least size."""
    return bool(size_bounds.problems(job))


def check_note(slice: Slice, old: Slice | None) -> None:
    """A slice has changed: raise Violation where more is taken back than its job can miss."""
    note = slice.reclaimed
    if note is None or old is None or not _is_new(slice, old):
        return
    before = old.reclaimed.to if old.reclaimed is not None else {}
    for name, held in slice.held_counts.items():
        left = note.to.get(name, 0)
        floor = floor_of(old, name)
        if old.asked_counts is not None and left >= old.asked_counts[name]:
            continue
        if left < held and left != before.get(name) and (floor is None or left < floor):
            raise Violation(f"least size: {slice.name} keeps {left} of {held} {name}, and {floor} are of use")
    if slice.job_uid in {each.job_uid for each in note.beneficiaries}:
        raise Violation(f"least size: {slice.name} loses pods to itself")


def check_ring(slice: Slice, old: Slice | None, slices: Iterable[Slice]) -> None:
    """A slice has changed, of those that there are: raise Violation where its job loses pods to one that it has lost
    some to before, and that has lost some to it."""
    note = slice.reclaimed
    if note is None or old is None or note.reason == PreemptionReason.OPPORTUNISTIC or not _is_new(slice, old):
        return
    beneficiary = note.beneficiaries[-1]
    others = [other for other in slices if other.job_uid == beneficiary.job_uid and not other.finished]
    lost, taken = _lost_to(beneficiary.job_uid, [old]), _lost_to(slice.job_uid, others)
    since = datetime.fromisoformat(note.at) - _SOON
    if all(any(datetime.fromisoformat(at) > since for at in times) for times in (lost, taken)):
        raise Violation(f"forth and back: {slice.name} loses pods to {beneficiary.workload}, which lost some to it")


def _is_new(slice: Slice, old: Slice) -> bool:
    """Whether more is taken back from a slice.

    A worker that has asked for its former size meanwhile is told the same once more, by another id. Of an Indexed Job
    whose completions follow, the same leaves less by the pods that have ended since: nobody wants those again either.
    A word that is withdrawn forgets for whom all pods stay.
    """
    note, before = slice.reclaimed, old.reclaimed
    if note is None or before is None:
        return note is not None
    if note.at != before.at or any(taken not in before.beneficiaries for taken in note.beneficiaries):
        return True
    ended = {name: count - note.before.get(name, 0) for name, count in before.before.items()}
    return any(count - note.to.get(name, 0) > max(0, ended.get(name, 0)) for name, count in before.to.items())


def _lost_to(job_uid: str, slices: Iterable[Slice]) -> list[str]:
    """When these slices were preempted for a job, or lost pods to it."""
    found = []
    for slice in slices:
        notes = slice.reclaimed.preemptors if slice.reclaimed is not None else ()
        found += [note.at for note in notes if note.job_uid == job_uid]
        preempted = slice.conditions.get(Condition.PREEMPTED, {})
        if preemptor_job(preempted.get("message", "")) == job_uid:
            found.append(preempted["lastTransitionTime"])
    return found


def check_restored(name: str, holder: Slice, waiting: list[Slice], ended: dict[str, int]) -> None:
    """Everything has calmed down: raise Violation for a job that still loses pods, or that has lost some for good."""
    note = holder.reclaimed
    if note is None:
        return
    if holder.shrinks_to is not None:
        raise Violation(f"converged: {name} shall go to {holder.shrinks_to}, and has not")
    lost = any(count > holder.granted.get(pod_set, 0) for pod_set, count in note.before.items())
    if lost and not waiting and not ended and not holder.reclaimable:
        raise Violation(f"converged: {name} had {note.before}, has {holder.granted}, and waits for nothing")


def _elastic(random: Random, run_s: float) -> Iterator[Moment]:
    if random.random() > 1 / 4:
        return
    for queue in QUEUES:
        yield Policy(at_s=0.0, queue=queue, spec=policy_of(random, never=()))
    for _ in range(random.randint(0, 2)):
        queue, flavor = random.choice(list(QUEUES)), random.choice(FLAVORS)
        yield Quota(
            at_s=round(random.uniform(0, run_s / 2), 2), of=queue, flavor=flavor, cpu=random.choice((1, 2, 4, 8))
        )
    for name in _LOW[: random.randint(1, len(_LOW))]:
        size = random.choice((2, 4, 6))
        yield Submit(
            at_s=round(random.uniform(0, run_s / 3), 2),
            kind=random.choice(_KINDS),
            name=name,
            size=size,
            autoscales=False,
            queue=random.choice(list(QUEUES)),
            priority=random.choice(("", "low", "low")),
            second=random.choice((None, None, 2)),
            hosts=random.choice((1, 2)),
            least=random.randint(0, size - 1),
        )
    for name in _HIGH[: random.randint(1, len(_HIGH))]:
        yield Submit(
            at_s=round(random.uniform(run_s / 4, run_s), 2),
            kind=JOBS.kind,
            name=name,
            size=random.choice((1, 2, 3)),
            ends=random.random() < 2 / 3,
            queue=random.choice(list(QUEUES)),
            priority="high",
        )
    for _ in range(random.randint(0, 4)):
        at_s, api = round(random.uniform(run_s / 3, run_s), 2), random.choice(("manager", *WORKERS))
        yield Scale(at_s=at_s, api=api, pick=random.randrange(12), counts=(random.randint(1, 7),))
    for _ in range(random.randint(0, 2)):
        at_s = round(random.uniform(0, run_s), 2)
        yield Least(at_s=at_s, pick=random.randrange(12), least=random.choice((None, 0, 1, 2)))
