"""The pods that are told are those that the controller of their job ends: the highest indexes, and whole groups."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from slicebus.agent.decide.order import notices
from slicebus.agent.decide.pods.going_pods import going_pods
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.proto.messages import Counts
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.ungate import Pod
from unit.agent.objects import a_job
from unit.agent.test_notices import BEFORE, DEADLINE, aged
from unit.slices.jobs.declared import GROUPS, JOBSET, LEADER, a_group_set, a_jobset, a_replicated_job

Manifest = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
KEY, GROUP = "leaderworkerset.sigs.k8s.io/group-key", "leaderworkerset.sigs.k8s.io/group-index"
YOUNG = "2026-01-01T00:00:05Z"


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "JobSet", JOBSET)
    monkeypatch.setitem(KINDS, "LeaderWorkerSet", GROUPS)


def view_of(job: Manifest, pods: Iterable[Manifest], *, to: Counts) -> WorkerView:
    """A worker's job whose notice leaves it so many pods."""
    metadata = a_job(8, baseline=8, granted=8)["metadata"]
    reclaim = PendingReclaim(id="a", before={}, to=to, deadline=DEADLINE)
    own = job["metadata"].get("annotations", {})
    noted = metadata["annotations"] | own | {api_names.RECLAIM_ANNOTATION: reclaim.to_annotation()}
    job = job | {"metadata": metadata | {"annotations": noted}}
    return WorkerView(
        key=JobKey(job["kind"], "team", "demo"),
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=job,
        pods=tuple(map(Pod.from_manifest, pods)),
    )


def going(view: WorkerView) -> set[str]:
    assert view.reading is not None
    assert view.reading.reclaim is not None
    return {pod.name for pod in going_pods(view, view.reading.reclaim)}


def is_told(view: WorkerView) -> bool:
    """Whether the job's pods are told, and not ended at once."""
    told = notices.reconcile(view, now=BEFORE)
    return {one.target["metadata"]["name"] for one in told} == going(view)  # type: ignore[union-attr]


def indexed(numbers: Iterable[int], *, pod_set: str = "main", of: str = "p") -> list[Manifest]:
    """Pods with these numbers. The first one has been made anew: it would go first without its number."""
    return [
        aged(
            f"{of}{number}",
            labels={kueue.POD_SET_LABEL: pod_set, INDEX: str(number)},
            made=YOUNG if number == 0 else "2026-01-01T00:00:00Z",
            since=YOUNG if number == 0 else "2026-01-01T00:00:00Z",
        )
        for number in numbers
    ]


@pytest.mark.parametrize(
    ("present", "names"),
    [(range(11), {"p9", "p10"}), ({1, 2, 9, 10}, {"p9", "p10"}), ({0, 1, 10}, {"p10"}), ({9, 10}, {"p9", "p10"})],
    ids=["all", "some that stay are missing", "one that goes is missing", "only they run"],
)
def test_an_indexed_job_loses_its_highest_indexes(present: Collection[int], names: set[str]) -> None:
    job = a_job(11)
    job["spec"] |= {"completionMode": "Indexed", "completions": 11}
    view = view_of(job, indexed(present), to={"main": 9})
    assert (going(view), is_told(view)) == (names, True)


@pytest.mark.parametrize("completions", [9, 3])
def test_one_whose_completions_stay_does_not(completions: int) -> None:
    job = a_job(3)
    job["spec"] |= {"completionMode": "Indexed", "completions": completions}
    job["metadata"]["annotations"] = {kueue.SYNC_COMPLETIONS_ANNOTATION: "false"}
    assert going(view_of(job, indexed(range(3)), to={"main": 2})) == {"p0"}


def test_each_job_of_a_set_loses_its_own_highest_indexes() -> None:
    job = a_jobset(a_replicated_job(replicas=2, parallelism=4), suspend=False)
    pods = [pod for of in "ab" for pod in indexed(range(4), pod_set="workers", of=of)]
    assert going(view_of(job, pods, to={"workers": 4})) == {"a2", "a3", "b2", "b3"}


def test_a_set_whose_completions_stay_does_not() -> None:
    job = a_jobset(a_replicated_job(replicas=1, parallelism=4, completions=8), suspend=False)
    assert going(view_of(job, indexed(range(4), pod_set="workers"), to={"workers": 3})) == {"p0"}


def group(number: int, *, size: int = 3, leader: str = "leader", missing: Collection[int] = ()) -> list[Manifest]:
    """The pods of a group. By their state alone the leader of the first one goes, and a worker of the second."""
    return [
        aged(
            f"g{number}-{member}",
            labels={
                kueue.POD_SET_LABEL: "worker" if member else leader,
                KEY: f"key-{number}",
                GROUP: str(number),
            },
            restarts=int((number, member) == (0, 0)),
            made=YOUNG if (number, member) == (1, 1) else "2026-01-01T00:00:00Z",
        )
        for member in range(size)
        if member not in missing
    ]


@pytest.mark.parametrize("size", [3, 2])
@pytest.mark.parametrize("missing", [(), (0,), (1,), (0, 1)], ids=str)
def test_a_leader_goes_with_its_workers(size: int, missing: Collection[int]) -> None:
    """And none goes of a group that stays, whatever it lacks."""
    job = a_group_set(replicas=2, size=size, leader=LEADER)
    pods = [*group(0, size=size, missing=missing), *group(1, size=size)]
    view = view_of(job, pods, to={"leader": 1, "worker": size - 1})
    assert (going(view), is_told(view)) == ({f"g1-{member}" for member in range(size)}, True)


def test_groups_without_a_leader_template_go_by_their_number() -> None:
    job = a_group_set(replicas=3, size=3)
    pods = [pod for number in range(3) for pod in group(number, leader="worker")]
    assert going(view_of(job, pods, to={"worker": 3})) == {
        f"g{number}-{member}" for number in (1, 2) for member in range(3)
    }
