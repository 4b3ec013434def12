"""Finds out why granted pods that are there do not run, by pod set, from the statuses of the pods.

A pod that is only starting has no reason, and a reason counts after some seconds. What was said is kept as long as the
same holds: each other text would be a message to the manager and a write there.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import PodSetProblem, WorkerView
from slicebus.decisions.commands import Command, Forget, Remember, Requeue
from slicebus.proto.messages import PodProblem
from slicebus.slices.workload.pod_problems import PodCause, rank, worst_first
from slicebus.slices.workload.waiting import Waiting, without_details

STARTS = timedelta(seconds=10)
"""How long pods may lack a node, an image or a container before that is told. A scheduler with room binds a pod within
a second, and tries one again that it could not place (`podInitialBackoffSeconds` 1, `podMaxBackoffSeconds` 10)."""
RENEWS = timedelta(seconds=30)
"""How often other words about the same reason are taken: those of a scheduler change with every node and pod."""
STEADY = timedelta(seconds=60)
"""How long a container that has ended several times has to run before it counts as running. The kubelet's pauses grow
from 10 s to 5 minutes; most that end again do so within seconds."""


def reconcile(view: WorkerView, *, now: str) -> list[Command]:
    """Remember why pods do not run, and since when; forget it when they do. `now` is RFC 3339."""
    present = _present(view, now=now)
    if present == view.pod_problems:
        return []
    if not present:
        return [Forget(table=AgentTable.POD_PROBLEMS, key=view.key)]
    return [Remember(table=AgentTable.POD_PROBLEMS, key=view.key, value=present)]


def settled(view: WorkerView, *, now: str) -> dict[str, PodProblem]:
    """Why pods do not run that had the time to start, by pod set."""
    entries = view.pod_problems.items()
    return worst_first({name: entry.problem for name, entry in entries if age(entry.problem.since, now) >= STARTS})


def requeue_after(view: WorkerView, *, now: str) -> list[Command]:
    """Requeue the job for when a reason counts, when its words may be others, and when a container has run for long
    enough. Call it after each reconcile: of several delays only the earliest counts."""
    entries = view.pod_problems.values()
    timed = [(entry.problem.since, STARTS) for entry in entries] + [(entry.said_since, RENEWS) for entry in entries]
    timed += [(cause.running_since, STEADY) for causes in _causes(view).values() for cause in causes]
    left = [length - age(since, now) for since, length in timed if since]
    due = min((time for time in left if time > timedelta(0)), default=None)
    if view.reading is None or due is None:
        return []
    # Times are whole seconds. Another clock may be ahead.
    return [Requeue(job=view.reading.ref, delay_s=min(due, STEADY).total_seconds() + 1)]


def age(since: str, now: str) -> timedelta:
    """The time between two times, RFC 3339; none where one cannot be read, as somebody else may have written it."""
    try:
        return datetime.fromisoformat(now) - datetime.fromisoformat(since)
    except (ValueError, TypeError):
        return timedelta(0)


def _present(view: WorkerView, *, now: str) -> dict[str, PodSetProblem]:
    """The present reasons of a job that runs. What an earlier agent has shown tells since when."""
    causes = _causes(view)
    if not causes:
        return {}
    shown = Waiting.from_manifest(view.job) if view.job is not None else None
    told = shown.pods if shown is not None else {}
    present = {}
    for name, of_pods in causes.items():
        counting = [cause for cause in of_pods if not cause.running_since or age(cause.running_since, now) < STEADY]
        before = view.pod_problems.get(name)
        if before is None and name in told:
            before = PodSetProblem(told[name], said_since=told[name].since)
        if counting:
            present[name] = _problem(counting, before, now=now)
    return present


def _causes(view: WorkerView) -> dict[str, list[PodCause]]:
    """Why pods do not run, by pod set: those that may start and are not going."""
    job = view.reading
    if job is None or not job.runs:
        return {}
    causes = {
        name: [pod.cause for pod in members.running if pod.cause is not None and not pod.is_terminating]
        for name, members in view.own_pod_sets.items()
        if job.granted.get(name)
    }
    return {name: found for name, found in causes.items() if found}


def _problem(causes: Sequence[PodCause], before: PodSetProblem | None, *, now: str) -> PodSetProblem:
    """The worst of them, in the words that were said before where they still hold."""
    worst = min((cause.reason for cause in causes), key=lambda reason: (rank(reason), reason))
    told = [cause for cause in causes if cause.reason == worst]
    if before is not None and before.problem.reason == worst and _still_holds(before, told, now=now):
        return before
    since = before.problem.since if before is not None and age(before.problem.since, now) >= timedelta(0) else now
    return PodSetProblem(PodProblem(worst, _words(told), since), said_since=now)


def _still_holds(before: PodSetProblem, causes: Iterable[PodCause], *, now: str) -> bool:
    text = before.problem.message
    said = without_details(text)
    holds = any(cause.adds_nothing_to(text) or without_details(cause.text) == said for cause in causes)
    return holds or timedelta(0) <= age(before.said_since, now) < RENEWS


def _words(causes: Iterable[PodCause]) -> str:
    """The same words whichever pod comes first; some before none."""
    return min(causes, key=lambda cause: (not cause.detail, without_details(cause.text), cause.text)).text
