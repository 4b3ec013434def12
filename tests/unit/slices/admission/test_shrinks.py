"""Who loses pods and who loses all: least sizes, levels of priority, whole replicas, and no pod too many."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Decision, Evict, Shrink, Wait, cycle
from slicebus.slices.admission.preemption import preempting_queue, preemptor_job, preemptor_uid
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, PreemptionReason
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.elasticity import Elasticity
from slicebus.slices.workload.observed import Observed, ObservedPods
from slicebus.slices.workload.reclaimed import Beneficiary, Reclaimed
from slicebus.slices.workload.workload import Counts, Slice
from unit.slices.admission.test_preemption import (
    BORROW,
    IN_QUEUE,
    OWN,
    RECLAIM,
    RECLAIM_LOWER,
    RECLAIMED,
    WHILE_BORROWING,
    cohort,
    holding,
    name_of,
    queue,
    waiting,
    world,
)
from unit.slices.builders import a_pod_set, a_queue

BY_SHARE = PreemptionReason.IN_COHORT_FAIR_SHARING
EVICTED = None
Taken = dict[str, int | None]
"""By name: how many pods of `main` are left; None for one that is evicted."""


def elastic(name: str, pods: int, least: int, priority: int = 0, **changes: Any) -> Slice:
    """A job with quota that is of use with fewer pods, each of one core."""
    return giving(holding(name, pods, priority, **changes), main=least)


def silent(slice: Slice) -> Slice:
    """The job leaves what its pods request to the namespace: it is charged for what they request where they run."""
    assert slice.admission is not None
    pod_sets = tuple(msgspec.structs.replace(one, flavors={}, usage={}) for one in slice.admission.pod_sets)
    charged = {one.name: ObservedPods(requests={"cpu": 1000}, flavors={"cpu": "default"}) for one in pod_sets}
    admission = msgspec.structs.replace(slice.admission, pod_sets=pod_sets)
    return msgspec.structs.replace(slice, admission=admission).with_observed(
        Observed(cluster="worker", pod_sets=charged)
    )


def ended(slice: Slice) -> Slice:
    """Its job has ended, and its pods run on."""
    finding = {"type": api_names.PODS_GONE_CONDITION, "status": "False", "reason": "JobEnded"}
    return msgspec.structs.replace(slice, conditions=slice.conditions | {api_names.PODS_GONE_CONDITION: finding})


def giving(slice: Slice, *, gang: Mapping[str, int] | None = {}, **least: int) -> Slice:
    return msgspec.structs.replace(slice, elasticity=Elasticity(least=least, gang=gang))


def taken(decisions: Iterable[Decision]) -> Taken:
    found: Taken = {}
    for decision in decisions:
        if isinstance(decision, Evict):
            found[name_of(decision.key)] = EVICTED
        elif isinstance(decision, Shrink):
            found[name_of(decision.key)] = decision.to["main"]
    return found


def reasons(decisions: Iterable[Decision]) -> dict[str, str]:
    return {name_of(each.key): each.preemption for each in decisions if isinstance(each, Evict | Shrink)}


def pods_first(made: ClusterQueue) -> ClusterQueue:
    return msgspec.structs.replace(made, pods_first=True)


LEVELS: dict[str, tuple[Sequence[Slice], int, Taken]] = {
    "one gives what is missing": ([elastic("a", 10, 2)], 3, {"a": 7}),
    "one gives what only its worker knows of": ([silent(elastic("a", 10, 2))], 3, {"a": 7}),
    "down to its least size": ([elastic("a", 10, 2)], 8, {"a": 2}),
    "below that it is evicted": ([elastic("a", 10, 2)], 9, {"a": EVICTED}),
    "at its least size it is evicted": ([elastic("a", 10, 10)], 1, {"a": EVICTED}),
    "where its job has ended it is evicted": ([ended(elastic("a", 10, 2))], 3, {"a": EVICTED}),
    "without a least size it is evicted": ([holding("a", 10)], 3, {"a": EVICTED}),
    "of a fixed size it is evicted": ([elastic("a", 10, 2, elastic=False)], 3, {"a": EVICTED}),
    "to no pod": ([elastic("a", 10, 0)], 10, {"a": 0}),
    "who gives comes before who is evicted": ([holding("a", 5, since=2), elastic("b", 5, 1, since=1)], 3, {"b": 2}),
    "an eviction spares those who gave": ([holding("a", 4, since=2), elastic("b", 6, 4, since=1)], 3, {"a": EVICTED}),
    "both": ([holding("a", 4, since=2), elastic("b", 6, 4, since=1)], 6, {"a": EVICTED, "b": 4}),
    "the newest gives first": ([elastic("a", 5, 1, since=1), elastic("b", 5, 1, since=2)], 3, {"b": 2}),
    "the last gives only what is missing": (
        [elastic("a", 5, 1, since=1), elastic("b", 5, 1, since=2)],
        6,
        {"b": 1, "a": 3},
    ),
    "a lower priority is evicted before a higher one gives": (
        [holding("low", 5, -2), elastic("high", 5, 1, -1)],
        3,
        {"low": EVICTED},
    ),
    "a lower priority gives and is evicted before a higher one gives": (
        [elastic("low", 5, 1, -2), elastic("high", 5, 1, -1)],
        5,
        {"low": EVICTED},
    ),
    "one who need not be evicted gives": (
        [elastic("low", 5, 1, -2), holding("high", 5, -1)],
        6,
        {"low": 4, "high": EVICTED},
    ),
    "one who is not needed keeps everything": (
        [elastic("low", 3, 1, -2), holding("high", 7, -1)],
        7,
        {"high": EVICTED},
    ),
    "those of its own priority give nothing": ([elastic("a", 10, 1, 1)], 3, {}),
    "nobody gives where it would not be enough": ([elastic("a", 4, 1), holding("high", 6, 9)], 5, {}),
}


@pytest.mark.parametrize(("held", "cores", "expected"), LEVELS.values(), ids=LEVELS.keys())
def test_at_each_priority_pods_go_before_jobs(held: Sequence[Slice], cores: int, expected: Taken) -> None:
    decided = cycle(world(*held, waiting("w", cores, 1)))
    assert taken(decided) == expected
    assert set(reasons(decided).values()) <= {IN_QUEUE}


PODS_FIRST: dict[str, tuple[Sequence[Slice], int, Taken]] = {
    "a higher priority gives before a lower one is evicted": (
        [holding("low", 5, -2), elastic("high", 5, 1, -1)],
        3,
        {"high": 2},
    ),
    "from the lowest priority up": ([elastic("low", 5, 1, -2), elastic("high", 5, 1, -1)], 5, {"low": 1, "high": 4}),
    "then the lowest is evicted": (
        [elastic("low", 5, 1, -2), elastic("high", 5, 1, -1)],
        9,
        {"low": EVICTED, "high": 1},
    ),
    "the others get back what an eviction frees": (
        [holding("low", 6, -2), elastic("high", 4, 1, -1)],
        5,
        {"low": EVICTED},
    ),
}


@pytest.mark.parametrize(("held", "cores", "expected"), PODS_FIRST.values(), ids=PODS_FIRST.keys())
def test_a_queue_may_want_pods_before_jobs_of_any_priority(held: Sequence[Slice], cores: int, expected: Taken) -> None:
    assert taken(cycle(world(*held, waiting("w", cores, 1), queues=[pods_first(queue(**OWN))]))) == expected


def test_the_annotation_of_a_queue_that_wants_pods_first() -> None:
    def read(**annotations: str) -> bool:
        return ClusterQueue.from_manifest({"metadata": {"name": "cq", "annotations": annotations}}).pods_first

    assert read(**{"slicebus.dev/spare": "pods"})
    assert not read(**{"slicebus.dev/spare": "jobs"})
    assert not read()


@pytest.mark.parametrize(
    ("said", "by_default", "is_whole"),
    [(None, True, False), (None, False, True), ("true", False, False), ("false", True, True), ("no", True, False)],
)
def test_a_queue_may_let_its_jobs_lose_all_or_nothing(said: str | None, by_default: bool, is_whole: bool) -> None:
    annotations = {"slicebus.dev/pods-before-jobs": said} if said is not None else {}
    read = ClusterQueue.from_manifest({"metadata": {"name": "cq", "annotations": annotations}}).pods_before_jobs
    made = msgspec.structs.replace(queue(**OWN), pods_before_jobs=read)
    snapshot = world(elastic("low", 10, 1, -1), waiting("w", 4, 1), queues=[made])
    decided = taken(cycle(msgspec.structs.replace(snapshot, pods_before_jobs=by_default)))
    assert decided == {"low": EVICTED if is_whole else 6}


def test_the_queue_of_who_loses_counts() -> None:
    """Not that of the preemptor."""
    whole = msgspec.structs.replace(queue("a", "5", cohort="all", **RECLAIM), pods_before_jobs=False)
    parts = queue("b", "5", cohort="all", **RECLAIM)
    for holder, waits, expected in (("a", "b", EVICTED), ("b", "a", 5)):
        held = elastic("low", 6, 1, queue=holder)
        decided = cycle(world(held, waiting("w", 5, queue=waits), queues=[whole, parts], cohorts=[cohort("all")]))
        assert taken(decided) == {"low": expected}


@pytest.mark.parametrize(
    ("cores", "least", "left"),
    [
        (1, {"leader": 1, "worker": 3}, {"leader": 3, "worker": 9}),
        (4, {"leader": 1, "worker": 3}, {"leader": 3, "worker": 9}),
        (5, {"leader": 1, "worker": 3}, {"leader": 2, "worker": 6}),
        (12, {"leader": 1, "worker": 3}, {"leader": 1, "worker": 3}),
        (13, {"leader": 1, "worker": 3}, None),
        (5, {"leader": 3, "worker": 6}, None),
    ],
)
def test_pod_sets_of_one_number_go_together(cores: int, least: Mapping[str, int], left: Counts | None) -> None:
    """Four groups of a leader and three workers, a core each."""
    pod_sets = (a_pod_set("leader", 4), a_pod_set("worker", 12))
    held = holding("low", 16, -1, pod_sets=pod_sets, replica_sizes={"worker": 3})
    groups = msgspec.structs.replace(held, elasticity=Elasticity(least=least, together=(("leader", "worker"),)))
    made = queue(quota="16", **OWN)
    [decided] = [
        each for each in cycle(world(groups, waiting("w", cores, 1), queues=[made])) if not isinstance(each, Wait)
    ]
    assert (decided.to if isinstance(decided, Shrink) else None) == left


REPLICAS: dict[str, tuple[int, int, int, int, int | None]] = {
    # pods, of a replica, least, wanted cores, left
    "a whole replica": (8, 4, 2, 1, 4),
    "the least size is rounded up": (8, 4, 5, 1, None),
    "two of them": (10, 2, 2, 3, 6),
    "an incomplete one goes first": (10, 4, 0, 1, 8),
    "an incomplete one and another": (10, 4, 0, 3, 4),
    "all": (10, 4, 0, 7, 0),
    "it would go below the least": (10, 4, 3, 7, None),
}


@pytest.mark.parametrize(("pods", "step", "least", "cores", "left"), REPLICAS.values(), ids=REPLICAS.keys())
def test_pods_go_by_whole_replicas(pods: int, step: int, least: int, cores: int, left: int | None) -> None:
    held = [elastic("a", pods, least, replica_sizes={"main": step}), holding("other", 10 - pods, 9)]
    assert taken(cycle(world(*held, waiting("w", cores, 1)))) == {"a": left}


def test_a_gang_loses_no_pod() -> None:
    gang = giving(holding("a", 10), gang={"main": 7}, main=1)
    assert taken(cycle(world(gang, waiting("w", 3, 1)))) == {"a": 7}
    assert taken(cycle(world(gang, waiting("w", 4, 1)))) == {"a": EVICTED}


def test_a_gang_of_its_whole_size_or_of_an_unknown_one_loses_all_or_nothing() -> None:
    for gang in ({"main": 10}, None):
        held = giving(holding("a", 10), gang=gang, main=1)
        assert taken(cycle(world(held, waiting("w", 1, 1)))) == {"a": EVICTED}
        assert taken(cycle(world(held, waiting("w", 1, 0)))) == {}


def ray(**least: int) -> Slice:
    """A head, some workers and some with a device."""
    device = {"cpu": 1000, "gpu": 1}
    pods = (a_pod_set("head"), a_pod_set("workers", 4), a_pod_set("gpu", 2, device))
    return giving(holding("ray", 0, pod_sets=pods), **least)


RAY_QUEUE = a_queue("cq", {"default": {"cpu": "7", "gpu": "2"}}, preemption=OWN)
POD_SETS: dict[str, tuple[dict[str, int], dict[str, int], dict[str, int] | None]] = {
    "the first pod set gives first": ({"workers": 1, "gpu": 1}, {"cpu": 2000}, {"head": 1, "workers": 2, "gpu": 2}),
    "then the next one": ({"workers": 1, "gpu": 1}, {"cpu": 4000}, {"head": 1, "workers": 1, "gpu": 1}),
    "only one that has what is short": ({"workers": 1, "gpu": 1}, {"gpu": 1}, {"head": 1, "workers": 4, "gpu": 1}),
    "only one with a least size": ({"gpu": 0}, {"cpu": 2000}, {"head": 1, "workers": 4, "gpu": 0}),
    "none is enough": ({"workers": 1}, {"cpu": 4000}, None),
    "for both resources": ({"workers": 1, "gpu": 1}, {"cpu": 2000, "gpu": 1}, {"head": 1, "workers": 3, "gpu": 1}),
}


@pytest.mark.parametrize(("least", "wanted", "to"), POD_SETS.values(), ids=POD_SETS.keys())
def test_pod_sets_give_by_themselves(least: dict[str, int], wanted: dict[str, int], to: dict[str, int] | None) -> None:
    slice = waiting("w", 0, 1, pod_sets=(a_pod_set(requests=wanted),))
    deed, _ = cycle(world(ray(**least), slice, queues=[RAY_QUEUE]))
    assert (deed.to if isinstance(deed, Shrink) else None) == to


def test_the_words_of_a_shrink_and_of_who_waits_for_it() -> None:
    shrink, wait = cycle(world(elastic("a", 10, 2), waiting("w", 3, 1)))
    assert isinstance(shrink, Shrink)
    assert shrink == Shrink(
        key=elastic("a", 10, 2).key,
        to={"main": 7},
        beneficiary=Beneficiary(workload="team/w", uid="uid-w", job_uid="job-w"),
        preemption=IN_QUEUE,
        message="Shrunk to main=7 to accommodate a workload (UID: uid-w, JobUID: job-w) due to prioritization in the "
        "ClusterQueue; preemptor path: /cq; preemptee path: /cq",
        is_alone=True,
    )
    assert preemptor_uid(shrink.message) == "uid-w"
    assert preemptor_job(f"Previously: {shrink.message}") == "job-w"
    assert preempting_queue(shrink.message) == "cq"
    assert isinstance(wait, Wait)
    assert wait.reason == WAITING_FOR_PREEMPTED
    assert wait.message.endswith("3 more needed. Pending the preemption of pods of 1 workload(s)")
    assert wait.would_admit == "fewer pods of team/a"


@pytest.mark.parametrize(("wanted", "is_alone"), [(2000, True), (1500, False), (2500, False)])
def test_who_gets_more_than_it_wants_is_not_alone_with_the_pods(wanted: int, is_alone: bool) -> None:
    """A pod has one core. Somebody else may count on the half that is left over."""
    slice = waiting("w", 0, 1, pod_sets=(a_pod_set(requests={"cpu": wanted}),))
    shrink, *_ = cycle(world(elastic("a", 10, 2), slice))
    assert isinstance(shrink, Shrink)
    assert shrink.is_alone is is_alone


def test_the_words_where_others_are_evicted_too() -> None:
    *_, wait = cycle(world(holding("a", 4, since=2), elastic("b", 6, 4, since=1), waiting("w", 6, 1)))
    assert isinstance(wait, Wait)
    assert wait.message.endswith("Pending the preemption of 1 workload(s) and pods of 1 workload(s)")
    assert wait.would_admit == "the end of team/a and fewer pods of team/b"


def in_cohort(*slices: Slice, policy: dict[str, Any], sharing: FairSharing = FairSharing.OFF, **more: Any) -> Snapshot:
    """`cq` with 6 cores and `guest` with 4 in one cohort."""
    queues = [queue("cq", "6", cohort="org", **policy), queue("guest", "4", cohort="org")]
    made = world(*slices, queues=more.get("queues", queues), cohorts=more.get("cohorts", [cohort("org")]))
    return msgspec.structs.replace(made, fair_sharing=sharing)


GUEST: Any = {"queue": "guest"}
IN_COHORT: dict[str, tuple[dict[str, Any], Sequence[Slice], Slice, Taken, set[str]]] = {
    "reclaims from any priority": (
        RECLAIM,
        [elastic("g", 10, 1, 9, **GUEST)],
        waiting("w", 3),
        {"g": 7},
        {RECLAIMED},
    ),
    "reclaims from lower ones only": (RECLAIM_LOWER, [elastic("g", 10, 1, 9, **GUEST)], waiting("w", 3), {}, set()),
    "takes no more than the other borrows": (
        RECLAIM,
        [elastic("g", 10, 1, **GUEST)],
        waiting("w", 6),
        {"g": 4},
        {RECLAIMED},
    ),
    "spares a queue within its quota": (
        RECLAIM | OWN,
        [elastic("g", 4, 1, -9, **GUEST), elastic("own", 6, 1)],
        waiting("w", 3, 1),
        {"own": 3},
        {IN_QUEUE},
    ),
    "of two queues each gives what it borrows": (
        RECLAIM,
        [elastic("g", 6, 1, since=2, **GUEST), elastic("h", 4, 1, queue="third", since=1)],
        waiting("w", 5),
        {"g": 4, "h": 1},
        {RECLAIMED},
    ),
    "others give before the own queue": (
        RECLAIM | OWN,
        [elastic("g", 7, 1, **GUEST), elastic("own", 3, 1)],
        waiting("w", 3, 1),
        {"g": 4},
        {RECLAIMED},
    ),
    "a lower priority of the own queue gives before others do": (
        RECLAIM | OWN,
        [elastic("g", 7, 1, **GUEST), elastic("own", 3, 1, -1)],
        waiting("w", 2, 1),
        {"own": 1},
        {IN_QUEUE},
    ),
    "a lower priority of the own queue gives before another one is evicted": (
        RECLAIM | OWN,
        [holding("g", 7, 5, **GUEST), elastic("own", 3, 1)],
        waiting("w", 2, 1),
        {"own": 1},
        {IN_QUEUE},
    ),
    "while it borrows": (
        BORROW,
        [elastic("g", 5, 1, **GUEST), holding("own", 5, 9)],
        waiting("w", 1, 1),
        {"g": 4},
        {RECLAIMED},
    ),
    "while it borrows beyond its quota": (
        BORROW,
        [elastic("g", 5, 1, queue="third", since=1), holding("own", 4, 9), elastic("h", 1, 0, since=2, **GUEST)],
        waiting("w", 3, 1),
        {"g": 2},
        {WHILE_BORROWING},
    ),
    "below its quota where its job would be evicted": (
        BORROW,
        [elastic("g", 10, 1, **GUEST)],
        waiting("w", 7, 1),
        {"g": 3},
        {WHILE_BORROWING},
    ),
    "up to a priority while it borrows": (
        RECLAIM_LOWER | {"borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -1}},
        [elastic("g", 5, 1, queue="third", since=1), holding("own", 4, 9), elastic("h", 1, 0, since=2, **GUEST)],
        waiting("w", 3, 1),
        {},
        set(),
    ),
}


@pytest.mark.parametrize(("policy", "held", "slice", "expected", "why"), IN_COHORT.values(), ids=IN_COHORT.keys())
def test_the_policies_of_a_cohort(
    policy: dict[str, Any], held: Sequence[Slice], slice: Slice, expected: Taken, why: set[str]
) -> None:
    named = {other.admission.cluster_queue for other in held if other.admission}
    nominal = {"cq": "6", "guest": "4"} if "third" not in named else {"cq": "6", "guest": "4", "third": "0"}
    queues = [queue(name, cores, cohort="org", **(policy if name == "cq" else {})) for name, cores in nominal.items()]
    decided = cycle(in_cohort(*held, slice, policy=policy, queues=queues))
    assert taken(decided) == expected
    assert set(reasons(decided).values()) == why


REFUSED_AT = "2026-01-01T00:10:00Z"


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        ("2026-01-01T00:10:00Z", {"low": EVICTED}),
        ("2026-01-01T00:10:01Z", {"low": 7}),
        (None, {"low": 7}),
    ],
    ids=["lately", "long ago", "nobody looks back"],
)
def test_whose_worker_refuses_to_take_pods_loses_all(since: str | None, expected: Taken) -> None:
    given = world(waiting("high", 3, 10), refusing(elastic("low", 10, 2)))
    assert taken(cycle(msgspec.structs.replace(given, preemption_cycles_since=since))) == expected


def test_or_another_one_gives_pods_in_its_place() -> None:
    jobs = refusing(elastic("newest", 5, 1, since=2)), elastic("other", 5, 1, since=1)
    given = world(waiting("high", 3, 10), *jobs)
    assert taken(cycle(msgspec.structs.replace(given, preemption_cycles_since=REFUSED_AT))) == {"other": 2}


def test_its_pods_that_nobody_asked_for_are_not_free_either() -> None:
    """The policies say who may have them."""
    slices = waiting("equal", 3), refusing(elastic("grown", 10, 2), asked={"main": 4})
    given = world(*slices)
    assert taken(cycle(given)) == {"grown": 7}
    assert taken(cycle(msgspec.structs.replace(given, preemption_cycles_since=REFUSED_AT))) == {}


def refusing(slice: Slice, **note: Any) -> Slice:
    """Its worker has refused to take pods of it."""
    kept = {"main": slice.counts["main"]}
    reclaimed = Reclaimed(
        id="word",
        before=kept,
        to=kept,
        at="2026-01-01T00:00:00Z",
        beneficiaries=(),
        reason=IN_QUEUE,
        message="so it is",
        done=True,
        refused_at=REFUSED_AT,
        **note,
    )
    return msgspec.structs.replace(slice, reclaimed=reclaimed)
