"""A worker's request for more than the job itself allows is refused, and told on both sides."""

from collections.abc import Callable
from typing import Any

import pytest

from slicebus.cli.demo import objects
from slicebus.decisions.commands import Create, Emit, Forget, Patch, Publish, Remember
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import edits, size_bounds, waiting
from slicebus.manager.state.reclaims import ElasticRules
from slicebus.manager.state.tables import ManagerTable
from slicebus.proto.messages import Counts, Pending, ScaleRequest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import SUSPEND_PATH
from slicebus.slices.jobs.paths import Path, value_at, with_value
from unit.manager.objects import NOW, REF, a_job, a_view, a_workload, an_envelope, asking
from unit.properties.world import started
from unit.slices.jobs import manifests
from unit.slices.jobs.declared import GROUPS, LEADER, a_group_set
from unit.slices.jobs.manifests import a_cluster, a_group

Manifest = dict[str, Any]
TOGETHER = api_names.SIZED_TOGETHER_ANNOTATION


def bounded(make: Any, *, most: int | None = None, hosts: int = 1, max_size: str = "") -> Manifest:
    """A Ray job with one worker in its group."""
    job: Manifest = make("grid")
    spec = job["spec"].get("rayClusterSpec") or job["spec"].get("rayClusterConfig") or job["spec"]
    group = spec["workerGroupSpecs"][0] | {"numOfHosts": hosts}
    group.pop("maxReplicas", None)
    spec["workerGroupSpecs"] = [group | ({"maxReplicas": most} if most is not None else {})]
    job["metadata"]["annotations"] |= {api_names.MAX_SIZE_ANNOTATION: max_size} if max_size else {}
    return job


MOST: dict[str, tuple[Manifest, int, Counts]] = {
    "a Job, by the factor": (a_job(3), 100, {"main": 300}),
    "a Job of no pods": (a_job(0), 100, {"main": 100}),
    "no factor": (a_job(3), 0, {}),
    "its own word": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: "8"}), 100, {"main": 8}),
    "more than the factor": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: "900"}), 100, {"main": 900}),
    "less than it has": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: "1"}), 100, {"main": 3}),
    "by pod set": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: '{"main":5}'}), 100, {"main": 5}),
    "of another pod set": (a_job(3, annotations={api_names.MAX_SIZE_ANNOTATION: '{"other":5}'}), 100, {"main": 300}),
    "a RayCluster": (bounded(objects.ray_cluster, most=5), 100, {"head": 1, "small-group": 5}),
    "its hosts": (bounded(objects.ray_cluster, most=5, hosts=2), 100, {"head": 1, "small-group": 10}),
    "without a bound": (bounded(objects.ray_cluster), 10, {"head": 1, "small-group": 10}),
    "with KubeRay's default": (bounded(objects.ray_cluster, most=2**31 - 1), 10, {"head": 1, "small-group": 10}),
    "the smaller of both": (
        bounded(objects.ray_cluster, most=5, max_size='{"small-group":3,"head":9}'),
        100,
        {"head": 1, "small-group": 3},
    ),
    "a RayJob": (bounded(objects.ray_job, most=5), 100, {"head": 1, "small-group": 5, "submitter": 1}),
    "a RayService, which has two clusters during an upgrade": (
        bounded(objects.ray_service, most=5),
        100,
        {"head": 2, "small-group": 10},
    ),
}


@pytest.mark.parametrize(("job", "factor", "most"), MOST.values(), ids=MOST.keys())
def test_what_a_job_allows(job: Manifest, factor: int, most: Counts) -> None:
    own = KINDS[job["kind"]].counts(job, job)
    assert size_bounds.most_of(job, own, factor=factor) == most


def ask(**wanted: int) -> ScaleRequest:
    return ScaleRequest(
        job=REF, workload="w1", worker_uid="w-1", worker_generation=3, granted={"main": 2}, wanted=wanted
    )


PROBLEMS: dict[str, tuple[int, int, bool]] = {
    "as much as it allows": (1, 8, False),
    "more": (1, 9, True),
    "more, as is granted": (9, 9, False),
    "less than is granted": (12, 9, False),
    "more than is granted": (9, 10, True),
}


@pytest.mark.parametrize(("granted", "wanted", "is_past"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_a_request_for_more(granted: int, wanted: int, is_past: bool) -> None:
    job = a_job(annotations={api_names.MAX_SIZE_ANNOTATION: "8"})
    view = a_view(job, a_workload(count=granted, admitted=granted, dispatched=1, applied=1))
    problem = size_bounds.problem(view, {"main": wanted}, factor=100)
    assert bool(problem) is is_past
    assert not is_past or f"asks for main={wanted}, and the job allows main=8" in problem


def test_it_is_told_once_on_both_sides() -> None:
    view, request = a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1)), ask(main=900)
    problem = size_bounds.problem(view, request.wanted, factor=100)
    commands = waiting.note_past_bounds(view, request, an_envelope(), problem, now=NOW)
    assert [each.reason for each in commands if isinstance(each, Emit)] == ["PastBounds"]
    [publish] = [each for each in commands if isinstance(each, Publish)]
    notice = publish.message
    assert isinstance(notice, Pending)
    assert (notice.reason, notice.message, notice.wanted) == ("PastBounds", problem, {"main": 900})
    unknown = Forget(table=ManagerTable.REFUSED_REQUESTS, key=view.ref)
    assert publish.unless_confirmed == unknown, "it is told again where the broker did not take it"
    [noted] = [each.value for each in commands if isinstance(each, Remember)]
    told = a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1), refused_request=noted)
    assert waiting.note_past_bounds(told, request, an_envelope(), problem, now=NOW) == []
    shown = waiting.reason_for(told)
    assert shown is not None
    assert (shown.shown.reason, shown.shown.wanted) == ("PastBounds", {"main": 900})


IMPOSSIBLE: dict[str, tuple[Counts, str]] = {
    "more than any job has": ({"main": 100_001}, "asks for main=100001, and no job has more than 100000 pods"),
    "more of a pod set that the job has not": ({"main": 1, "other": 200_000}, "asks for other=200000, and no job"),
    "no pod set": ({}, "The worker's job has no pod set left"),
}


@pytest.mark.parametrize("factor", [0, 100])
@pytest.mark.parametrize(("wanted", "told"), IMPOSSIBLE.values(), ids=IMPOSSIBLE.keys())
def test_what_no_job_can_have_is_past_its_bounds(wanted: Counts, told: str, factor: int) -> None:
    view = a_view(a_job(), a_workload(admitted=1, dispatched=1, applied=1))
    assert told in size_bounds.problem(view, wanted, factor=factor)


GROUP = ("spec", "workerGroupSpecs", 0)
TOO_MANY: dict[str, tuple[Manifest, Path, Manifest, Counts]] = {
    "a Job": (manifests.a_job(), ("spec",), {"parallelism": 200_000}, {"main": 5}),
    "a group of more pods than a count can be": (
        a_cluster(a_group(numOfHosts=4)),
        GROUP,
        {"replicas": 2**31 - 1, "maxReplicas": 2**31 - 1},
        {"head": 1, "small": 12},
    ),
}


@pytest.mark.parametrize(("job", "at", "edit", "then"), TOO_MANY.values(), ids=TOO_MANY.keys())
def test_an_edit_on_the_worker_to_too_many_pods_is_told_there_and_holds_up_nothing(
    job: Manifest, at: Path, edit: Manifest, then: Counts
) -> None:
    kind = KINDS[job["kind"]]
    world, ref = started(with_value(job, SUSPEND_PATH, False))
    world.go_on()
    [copy] = world.there.all(kind.resource)
    world.change(world.there, copy, with_value(copy, at, value_at(copy, at) | edit))
    world.go_on()
    [copy] = world.there.all(kind.resource)
    assert "no job has more than 100000 pods" in copy["metadata"]["annotations"][api_names.WAITING_ANNOTATION]
    assert world.dead == []
    world.change(world.there, copy, kind.with_counts(copy, then))
    world.go_on()
    held = world.manager.view(ref).holder
    assert held is not None
    assert held.granted == then, "a size that can be is taken as ever"


@pytest.mark.parametrize("text", ["many", "-1", "1.5", "[]", '{"main":-1}', '{"main":"5"}', "{}", "900000"])
def test_an_annotation_that_makes_no_sense_is_told(text: str) -> None:
    job = a_job(annotations={api_names.MAX_SIZE_ANNOTATION: text})
    [problem] = size_bounds.problems(job)
    assert problem.reason == "InvalidMaxSize"
    assert size_bounds.most_of(job, {"main": 1}, factor=100) == {"main": 100}


SYNC = kueue.SYNC_COMPLETIONS_ANNOTATION
MIN, MAX, NOTICE = api_names.MIN_SIZE_ANNOTATION, api_names.MAX_SIZE_ANNOTATION, api_names.NOTICE_ANNOTATION
CLUSTER = {"minReplicas": 1, "replicas": 4, "maxReplicas": 8}


def grid(annotations: dict[str, str], *, hosts: int = 1, autoscaled: bool = False) -> Manifest:
    """A RayCluster with four replicas in its group, of which one always stays."""
    job = objects.ray_cluster("grid")
    job["spec"]["workerGroupSpecs"] = [job["spec"]["workerGroupSpecs"][0] | CLUSTER | {"numOfHosts": hosts}]
    job["spec"]["enableInTreeAutoscaling"] = autoscaled
    job["metadata"] |= {"uid": "uid-grid", "annotations": job["metadata"]["annotations"] | annotations}
    return job


def indexed(size: int, **how: Any) -> Manifest:
    job = a_job(size, **how)
    job["spec"] |= {"completionMode": "Indexed", "completions": size}
    return job


def successful(job: Manifest, indexes: str) -> Manifest:
    """The Job that has succeeded with these indexes."""
    job["spec"]["successPolicy"] = {"rules": [{"succeededIndexes": indexes}]}
    return job


SENSELESS: dict[str, tuple[Manifest, str, str]] = {
    "no form": (a_job(4, annotations={MIN: "2"}), "InvalidMinSize", f"{MIN} is not of the form main=4"),
    "more than it has": (a_job(4, annotations={MIN: "main=5"}), "InvalidMinSize", f"{MIN} has more pods of main"),
    "another pod set": (a_job(4, annotations={MIN: "workers=2"}), "InvalidMinSize", "names the pod set workers"),
    "more than its autoscaler may have": (
        grid({MIN: "small-group=9"}, autoscaled=True),
        "InvalidMinSize",
        "has more pods of small-group than the job: 8",
    ),
    "a head that goes": (grid({MIN: "head=0,small-group=2"}), "InvalidMinSize", "which it always has"),
    "fewer than its spec keeps": (grid({MIN: "small-group=0"}), "InvalidMinSize", "than the job keeps by its spec: 1"),
    "the same in pods": (grid({MIN: "small-group=0"}, hosts=2), "InvalidMinSize", "than the job keeps by its spec: 2"),
    "no completion of an Indexed Job": (indexed(4, annotations={MIN: "main=0"}), "InvalidMinSize", "main no pod"),
    "an index that its success needs": (
        successful(indexed(4, annotations={MIN: "main=2"}), "0,2"),
        "InvalidMinSize",
        "fewer pods of main than the job keeps by its spec: 3",
    ),
    "another pod set in a map": (
        a_job(4, annotations={MAX: '{"mian":5}'}),
        "InvalidMaxSize",
        f"{MAX} names the pod set mian, and the job has only main",
    ),
    "no most": (a_job(4, annotations={MAX: "main=0"}), "InvalidMaxSize", f"{MAX} leaves main no pod"),
    "no duration": (a_job(4, annotations={NOTICE: "soon"}), "InvalidNotice", f"{NOTICE} is no duration"),
}


@pytest.mark.parametrize(("job", "reason", "part"), SENSELESS.values(), ids=SENSELESS.keys())
def test_what_makes_no_sense_is_refused_at_submission_and_told_on_what_runs(
    job: Manifest, reason: str, part: str
) -> None:
    [problem] = size_bounds.problems(job)
    assert problem.reason == reason
    assert part in problem.message
    assert set(size_bounds.said_by(job, fixed=False).values()) == {None}
    [(path, told)] = size_bounds.unheeded(a_view(job)).items()
    assert path.startswith("metadata.annotations[slicebus.dev/")
    assert problem.message in told


def test_each_annotation_is_told_apart() -> None:
    job = a_job(4, annotations={MIN: "2", MAX: "many", NOTICE: "90s"})
    assert [problem.reason for problem in size_bounds.problems(job)] == ["InvalidMaxSize", "InvalidMinSize"]
    assert size_bounds.said_by(job, fixed=False) == {MIN: None, MAX: None, NOTICE: "90s", TOGETHER: None}


PARTIAL = kueue.PARTIAL_PREEMPTION_ANNOTATION
ALL = {MIN: "small-group=2", MAX: "small-group=8", NOTICE: "2m"}
SAID: dict[str, tuple[Manifest, bool, dict[str, str | None]]] = {
    "nothing": (a_job(4), False, {MIN: None, MAX: None, NOTICE: None}),
    "all of it": (grid(ALL), False, {**ALL}),
    "a fixed size": (grid(ALL), True, {MIN: None, MAX: None, NOTICE: "2m"}),
    "with the autoscaler on": (grid(ALL, autoscaled=True), False, {MIN: "small-group=2", MAX: None, NOTICE: "2m"}),
    "more than the autoscaler begins with": (
        grid({MIN: "small-group=6"}, autoscaled=True),
        False,
        {MIN: "small-group=6", MAX: None, NOTICE: None},
    ),
    "for a group that is not named, what its autoscaler keeps": (
        grid({MIN: "head=1"}, hosts=2, autoscaled=True),
        False,
        {MIN: "small-group=2,head=1", MAX: None, NOTICE: None},
    ),
    "as Kueue's design has it": (
        a_job(4, annotations={PARTIAL: "true", kueue.MIN_PARALLELISM_ANNOTATION: "2"}),
        False,
        {MIN: "main=2", MAX: None, NOTICE: None},
    ),
    "the same, and its success needs more": (
        successful(
            indexed(4, annotations={PARTIAL: "true", kueue.MIN_PARALLELISM_ANNOTATION: "1"}),
            "0,2",
        ),
        False,
        {MIN: "main=3", MAX: None, NOTICE: None},
    ),
    "the same where its completions stay": (
        successful(indexed(4, annotations={MIN: "main=1", SYNC: "false"}), "0,2"),
        False,
        {MIN: "main=1", MAX: None, NOTICE: None},
    ),
    "the same of a fixed size": (
        a_job(4, annotations={PARTIAL: "true", kueue.MIN_PARALLELISM_ANNOTATION: "2"}),
        True,
        {MIN: None, MAX: None, NOTICE: None},
    ),
    "the same, and nothing says the least": (
        a_job(4, annotations={PARTIAL: "true"}),
        False,
        {MIN: None, MAX: None, NOTICE: None},
    ),
    "the same of a Ray cluster": (
        grid({PARTIAL: "true"}, hosts=2),
        False,
        {MIN: "small-group=2", MAX: None, NOTICE: None},
    ),
    "the same, with a least size of ours": (
        grid({PARTIAL: "true", MIN: "small-group=3"}, autoscaled=True),
        False,
        {MIN: "small-group=3", MAX: None, NOTICE: None},
    ),
    "not that": (grid({PARTIAL: "false"}, autoscaled=True), False, {MIN: None, MAX: None, NOTICE: None}),
    "without a word, with the autoscaler on": (
        grid({}, autoscaled=True),
        False,
        {MIN: None, MAX: None, NOTICE: None},
    ),
    "a bound of what its worker asks for": (
        a_job(4, annotations={MAX: "8"}),
        False,
        {MIN: None, MAX: None, NOTICE: None},
    ),
    "in whole replicas": (
        grid({MIN: "small-group=3"}, hosts=2),
        False,
        {MIN: "small-group=3", MAX: None, NOTICE: None},
    ),
}


@pytest.mark.parametrize(("job", "fixed", "said"), SAID.values(), ids=SAID.keys())
def test_what_a_job_says_of_its_size(job: Manifest, fixed: bool, said: dict[str, str | None]) -> None:
    autoscaled = job["spec"].get("enableInTreeAutoscaling", False)
    assert size_bounds.said_by(job, fixed=fixed, autoscaled=autoscaled) == said | {TOGETHER: None}
    assert size_bounds.problems(job) == []


@pytest.mark.parametrize(
    ("annotations", "allowed", "told"),
    [
        ({MIN: "main=2"}, ElasticRules(), {}),
        ({MIN: "main=2"}, ElasticRules(gives_pods=False), {MIN: "the job loses all of its pods or none, as"}),
        (
            {PARTIAL: "true", kueue.MIN_PARALLELISM_ANNOTATION: "2"},
            ElasticRules(gives_pods=False),
            {PARTIAL: "the job loses all of its pods or none, as"},
        ),
        ({MAX: "main=9"}, ElasticRules(grows=False), {MAX: "the job takes no quota that nobody waits for, as"}),
        ({MAX: "9"}, ElasticRules(grows=False), {}),
        (
            {NOTICE: "90s"},
            ElasticRules(),
            {NOTICE: "the longest notice that its ClusterQueue and"},
        ),
        ({NOTICE: "90s"}, ElasticRules(notice_cap_s=90.0), {}),
        ({MIN: "main=9"}, ElasticRules(gives_pods=False), {MIN: "it makes no sense"}),
    ],
)
def test_what_its_queue_does_not_allow_is_told(
    annotations: dict[str, str], allowed: ElasticRules, told: dict[str, str]
) -> None:
    found = size_bounds.unheeded(a_view(a_job(4, annotations=annotations), allowed=allowed))
    assert found.keys() == {f"metadata.annotations[{name}]" for name in told}
    assert all(found[f"metadata.annotations[{name}]"].startswith(part) for name, part in told.items())


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """Four groups of a leader and three workers, whose pod sets have their size from one number."""
    monkeypatch.setitem(KINDS, "LeaderWorkerSet", GROUPS)
    return a_group_set(replicas=4, size=4, leader=LEADER)


@pytest.mark.parametrize(
    ("said", "copied"),
    [
        ("worker=6", "worker=6,leader=2"),
        ("leader=2", "leader=2,worker=6"),
        ("worker=7", "worker=7,leader=3"),
        ("worker=6,leader=3", "worker=9,leader=3"),
        ("leader=2,worker=12", "leader=4,worker=12"),
        ("worker=0", "worker=0,leader=0"),
    ],
)
def test_pod_sets_of_one_number_have_their_least_size_together(groups: Manifest, said: str, copied: str) -> None:
    groups["metadata"]["annotations"] = {MIN: said}
    said = size_bounds.said_by(groups, fixed=False)
    assert (said[MIN], said[TOGETHER]) == (copied, "leader+worker")


@pytest.mark.parametrize("make", [a_job, lambda: a_cluster(a_group("a", replicas=4), a_group("b", replicas=4))])
def test_the_others_of_a_job_stay_apart(make: Callable[[], Manifest]) -> None:
    job = make()
    job["metadata"]["annotations"] = {MIN: f"{'a' if job['kind'] == 'RayCluster' else 'main'}=1"}
    said = size_bounds.said_by(job, fixed=False)
    assert (said[MIN], said[TOGETHER]) == (job["metadata"]["annotations"][MIN], None)


def test_pod_sets_of_one_number_take_no_idle_quota(groups: Manifest) -> None:
    groups["metadata"]["annotations"] = {MAX: "worker=24"}
    assert size_bounds.said_by(groups, fixed=False)[MAX] is None
    [told] = size_bounds.unheeded(a_view(groups)).values()
    assert told.endswith("its pod sets have their size from one number")


def test_a_least_size_means_nothing_to_a_job_of_a_fixed_size() -> None:
    job = a_job(4, annotations={MIN: "main=2"})
    del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    view = a_view(job, fixed_jobs=True)
    assert list(size_bounds.unheeded(view).values()) == ["a job of a fixed size loses all of its pods or none"]


def test_a_greatest_size_means_nothing_to_a_job_of_a_fixed_size_or_a_gang() -> None:
    job = a_job(4, annotations={MAX: "main=9"}, labels={api_names.SCHEDULER_LABEL: "volcano"})
    [told] = size_bounds.unheeded(a_view(job)).values()
    assert told == "a job with a gang scheduler takes no quota that nobody waits for"
    job = a_job(4, annotations={MAX: "main=9"})
    del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
    [told] = size_bounds.unheeded(a_view(job, fixed_jobs=True)).values()
    assert told == "a job of a fixed size takes no quota that nobody waits for"


@pytest.mark.parametrize("name", [PARTIAL, SYNC, kueue.ELASTIC_ANNOTATION, api_names.PARTIAL_SCALE_UP_ANNOTATION])
def test_an_annotation_that_is_true_or_false_has_no_other_value(name: str) -> None:
    told = size_bounds.unheeded(a_view(a_job(4, annotations={name: "True"}), fixed_jobs=True))
    assert told[f"metadata.annotations[{name}]"] == "it may be 'true' or 'false', and is 'True'"
    assert size_bounds.unheeded(a_view(a_job(4, annotations={name: "false"}), fixed_jobs=True)) == {}


@pytest.mark.parametrize(("least", "is_told"), [({}, True), ({kueue.MIN_PARALLELISM_ANNOTATION: "2"}, False)])
def test_partial_preemption_needs_a_least_size(least: dict[str, str], is_told: bool) -> None:
    job = a_job(4, annotations={PARTIAL: "true"} | least)
    assert size_bounds.problems(job) == KINDS["Job"].problems(job) == []
    [*told] = size_bounds.unheeded(a_view(job)).values()
    assert told == ["the job loses all of its pods or none: slicebus.dev/min-size says how few are of use"] * is_told


def test_a_worker_may_ask_for_the_greatest_size() -> None:
    assert size_bounds.most_of(a_job(3, annotations={MAX: "main=8"}), {"main": 3}, factor=100) == {"main": 8}


def test_its_slices_say_it_from_their_creation() -> None:
    created = next(
        command
        for command in reconcile(a_view(a_job(4, annotations={MIN: "main=2", NOTICE: "90s"})), NOW)
        if isinstance(command, Create)
    )
    annotations = created.manifest["metadata"]["annotations"]
    assert (annotations[MIN], annotations[NOTICE]) == ("main=2", "90s")
    assert MAX not in annotations


def test_an_edit_reaches_the_slices_that_run_and_what_makes_no_sense_ends_it() -> None:
    workload = a_workload(count=4, admitted=4, dispatched=1, applied=1)
    job = a_job(4, annotations={MIN: "main=2"})
    [patch] = edits.copied(a_view(job, workload), job)
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {MIN: "main=2", MAX: None, NOTICE: None, TOGETHER: None}}}
    workload["metadata"]["annotations"][MIN] = "main=2"
    assert edits.copied(a_view(job, workload), job) == []
    edited = a_job(4, annotations={MIN: "main=9"})
    [patch] = edits.copied(a_view(edited, workload), edited)
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {MIN: None, MAX: None, NOTICE: None, TOGETHER: None}}}


def test_a_greatest_size_is_no_more_than_its_spec_lets_it_have() -> None:
    cluster = grid({MAX: "small-group=8"})
    cluster["spec"]["workerGroupSpecs"][0]["maxReplicas"] = 5
    assert size_bounds.said_by(cluster, fixed=False)[MAX] == "small-group=5"
    job = a_job(2, annotations={MAX: "main=8"})
    job["spec"]["completions"] = 4
    assert size_bounds.said_by(job, fixed=False)[MAX] == "main=4"
    job["spec"]["completions"] = 9
    assert size_bounds.said_by(job, fixed=False)[MAX] == "main=8"


@pytest.mark.parametrize(("follows", "most"), [("true", "main=8"), (None, "main=8"), ("false", "main=4")])
def test_an_indexed_job_has_more_pods_unless_its_completions_stay(follows: str | None, most: str) -> None:
    job = indexed(4, annotations={MAX: "main=8"} | ({SYNC: follows} if follows else {}))
    assert (size_bounds.problems(job), size_bounds.said_by(job, fixed=False)[MAX]) == ([], most)
    told = size_bounds.unheeded(a_view(job))
    instead = f"the job has no more pods than completions: these stay, as {SYNC} says 'false'"
    assert told == ({} if follows != "false" else {f"metadata.annotations[{MAX}]": instead})
    job["metadata"]["annotations"][MAX] = "main=4"
    assert size_bounds.unheeded(a_view(job)) == {}, "it asks for no more"


@pytest.mark.parametrize(
    ("completions", "follows", "asked", "grows"),
    [
        (4, "false", 2, False),
        (4, "false", 4, True),
        (6, None, 2, False),
        (6, None, 4, True),
        (4, None, 2, True),
    ],
)
def test_an_indexed_job_that_keeps_completions_of_its_worker_takes_no_idle_quota(
    completions: int, follows: str | None, asked: int, grows: bool
) -> None:
    """Its user may have changed both numbers there, and a pod more than that would be an index more."""
    job = indexed(4, annotations={MAX: "main=6"} | ({SYNC: follows} if follows else {}))
    job["spec"]["completions"] = completions
    job["metadata"]["annotations"] |= asking(4, asked)["metadata"]["annotations"]
    view = a_view(job, a_workload(count=asked, admitted=asked))
    assert (edits.elasticity(view, job)[MAX] is not None) == grows
    told = "it was resized where it runs, and keeps its completions" in "".join(size_bounds.unheeded(view).values())
    assert told == (not grows and completions == 6)


def test_one_whose_completions_stay_may_lose_all_its_pods() -> None:
    job = indexed(4, annotations={MIN: "main=0", SYNC: "false"})
    assert (size_bounds.problems(job), size_bounds.said_by(job, fixed=False)[MIN]) == ([], "main=0")


@pytest.mark.parametrize("job", [a_job(4, annotations={SYNC: "true"}), indexed(4, annotations={SYNC: "true"})])
def test_completions_follow_only_where_there_are_as_many(job: Manifest) -> None:
    job["spec"]["completions"] = 9
    told = "completions stay as they are: only an Indexed Job with as many as pods at a time has them follow"
    assert size_bounds.unheeded(a_view(job)) == {f"metadata.annotations[{SYNC}]": told}


@pytest.mark.parametrize("text", ["8", '{"main":8}', None])
def test_any_other_is_not(text: str | None) -> None:
    assert size_bounds.problems(a_job(annotations={api_names.MAX_SIZE_ANNOTATION: text} if text else {})) == []


@pytest.mark.parametrize(("scheduler", "is_gang"), [("kai", True), ("default", False)])
def test_a_gang_has_a_least_size_and_no_greatest_one(scheduler: str, is_gang: bool) -> None:
    job = a_job(4, annotations={MIN: "main=1", MAX: "main=8"})
    job["metadata"]["labels"] = {**job["metadata"].get("labels", {}), api_names.SCHEDULER_LABEL: scheduler}
    said = size_bounds.said_by(job, fixed=False)
    assert [said[name] is None for name in (MIN, MAX)] == [False, is_gang]
    assert [*size_bounds.unheeded(a_view(job))] == [f"metadata.annotations[{MAX}]"] * is_gang


@pytest.mark.parametrize(
    ("gang", "is_told"), [('{"main":3}', True), ('{"main":1}', False), ("{}", False), (None, False)]
)
def test_a_gang_that_keeps_more_pods_than_its_job_asks_for_says_so(gang: str | None, is_told: bool) -> None:
    job, holder = a_job(4, annotations={MIN: "main=1"}), a_workload(count=4, admitted=4)
    noted = {MIN: "main=1", api_names.SCHEDULER_LABEL: "kai"} | ({api_names.GANG_ANNOTATION: gang} if gang else {})
    holder["metadata"]["annotations"] |= noted
    told = "the job's gang was made for more pods, and keeps main=3 until it starts anew"
    assert list(size_bounds.unheeded(a_view(job, holder)).values()) == [told] * is_told


def test_a_service_that_is_upgraded_has_no_least_size() -> None:
    """Nobody could say which of its two clusters has pods to spare."""
    job = objects.ray_service("chat")
    job["metadata"] |= {"uid": "uid-chat", "annotations": job["metadata"]["annotations"] | {MIN: "small-group=1"}}
    assert size_bounds.said_by(job, fixed=False)[MIN] == "small-group=1"
    assert size_bounds.said_by(job, fixed=False, upgrade=True)[MIN] is None
