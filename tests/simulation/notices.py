"""Jobs that are told before they lose pods, and users who agree earlier.

A notice is kept to the second: no agent takes pods for which one runs before its deadline, by the agent's own clock,
without the job's acknowledgement and while more of them run than shall stay. So it is with each of several
that run for a job.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from random import Random
from typing import Any

import msgspec

from simulation.later import OLD
from simulation.queues import QUEUES
from simulation.schedule import WORKERS, Moment, Schedule, Submit
from simulation.violations import Violation
from simulation.withdrawals import Relent
from slicebus.agent.state import annotations
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import is_suspended

Manifest = dict[str, Any]
CAP_S = 12.0
"""The longest notice of the simulated manager."""
_SAID = ("", "2s", "8s", "1h")


class Agree(Moment):
    """A job of a worker agrees to what it is told."""

    worker: str
    pick: int


def with_notices(schedule: Schedule) -> Schedule:
    """The same run; in half of those with jobs that can shrink they ask for a notice."""
    random = Random(f"{schedule.seed}/notices")
    able = {item.name for item in schedule.items if isinstance(item, Submit) and item.least is not None}
    if schedule.seed in OLD or not able or random.random() < 1 / 2:
        return schedule
    told = tuple(
        msgspec.structs.replace(item, notice=random.choice(_SAID))
        if isinstance(item, Submit) and item.priority != "high"
        else item
        for item in schedule.items
    )
    moments = [item for item in told if isinstance(item, Moment)]
    agreed = _agreed(random, max(item.at_s for item in moments))
    rest = [item for item in told if not isinstance(item, Moment)]
    if random.random() < 1 / 2:
        rest.append(Relent(queue=random.choice([*QUEUES]), least=random.choice([None, 1])))
    return schedule.with_items((*rest, *sorted([*moments, *agreed], key=lambda item: item.at_s)))


def _agreed(random: Random, run_s: float) -> Iterator[Moment]:
    for _ in range(random.randint(0, 6)):
        at_s = round(random.uniform(run_s / 4, run_s), 2)
        yield Agree(at_s=at_s, worker=random.choice(WORKERS), pick=random.randrange(12))


async def agree(client: KubeClient, item: Agree) -> None:
    """Play it."""
    jobs = [job for resource in JOB_RESOURCES.values() for job in (await client.list(resource)).items]
    told = [(job, one) for job in jobs if annotations.is_ours(job) for one in _notices(job)]
    if told:
        job, notice = told[item.pick % len(told)]
        body = MergePatch({"metadata": {"annotations": {api_names.RECLAIM_ACK_ANNOTATION: notice.id}}})
        await client.patch(JOB_RESOURCES[job["kind"]], job["metadata"]["name"], objects.NAMESPACE, body)


def check_kept(
    change: HistoryEntry,
    job: Manifest,
    *,
    now: datetime,
    running: Callable[[], Mapping[str, int]],
    edited: Collection[Mapping[str, int]],
    words: Collection[str],
) -> None:
    """An agent has changed a job of a worker, or its cluster: raise Violation where that ends a notice too early.

    `job` is the job as it was before, and `now` by the agent's clock. `running` gives its running pods by pod set.
    `edited` are the sizes that users have given the manager's job since it was made, and `words` the ids of the notes
    on its slices by which it shall lose pods.
    """
    old, new = change.old, change.object
    notice = next((one for one in _notices(job) if old is not None and _takes_pods(job, old, new, one)), None)
    if notice is None:
        return
    if notice.suspends is None and notice.word not in words and _is_asked_for(job, new, edited):
        return
    is_agreed = annotations.annotation(job, api_names.RECLAIM_ACK_ANNOTATION) == notice.id
    if is_agreed or now >= datetime.fromisoformat(notice.deadline):
        return
    surplus = {name: count for name, count in running().items() if count > notice.to.get(name, 0)}
    if surplus:
        name = new["metadata"]["name"]
        raise Violation(f"notice: {name} loses {surplus} to {notice.to} before {notice.deadline}, at {now}")


def _notices(job: Manifest) -> tuple[PendingReclaim, ...]:
    notice = PendingReclaim.from_job(job)
    return notice.notices if notice is not None else ()


def _is_asked_for(job: Manifest, new: Manifest, edited: Collection[Mapping[str, int]]) -> bool:
    """Whether the job gets a size that its own user has set on the manager, and that this worker has not had yet.

    Nobody takes these pods: where that is just the size of a notice, the manager withdraws its word, and no notice is
    due. A size that the worker has noted before is no news, whatever took it from there.
    """
    after = KINDS[job["kind"]].counts(job, new)
    return after in edited and annotations.baseline(job) != after


def _takes_pods(job: Manifest, old: Manifest, new: Manifest, notice: PendingReclaim) -> bool:
    """Whether a change does what the notice says: another order may suspend or resize the job for another reason."""
    if notice.suspends is not None:
        return not is_suspended(old) and is_suspended(new) and annotations.spec_version(new) == notice.version
    counts = KINDS[job["kind"]].counts
    before, after = counts(job, old), counts(job, new)
    least = {name: min(count, notice.to.get(name, count)) for name, count in before.items()}
    return after != before and after == least
