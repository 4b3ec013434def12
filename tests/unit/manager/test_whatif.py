"""A recorded past that is played again: small days whose answers can be worked out by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf

import pytest
from whatif import BEGAN, QUEUES, Job, journal, past_of

from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, WORKERCLUSTERS, Resource
from slicebus.manager.decide.whatif.answer import changed, reproduction, summary
from slicebus.manager.decide.whatif.asking import ask, variants
from slicebus.manager.decide.whatif.chronicle import Chronicle, Curve
from slicebus.manager.decide.whatif.fronts import FRONT, Fronts
from slicebus.manager.decide.whatif.hypotheses import (
    Hypothetical,
    PolicyEdit,
    PreemptionChange,
    QuotaChange,
    RoomChange,
    amount_change,
)
from slicebus.manager.decide.whatif.play import Play
from slicebus.manager.decide.whatif.recorded_past import PastReader
from slicebus.slices.admission.cycle import Admit, Wait
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.workload.workload import Admission, PodSet, Slice, SliceKey

QUEUE = QUEUES[0]
CROWDED = (
    Job(0, 100.0, QUEUE, 4, 1000.0),
    Job(1, 200.0, QUEUE, 4, 500.0),
    Job(2, 300.0, QUEUE, 2, 100.0),
    Job(3, 86_000.0, QUEUE, 4, 5000.0),
)
"""With quota for four pods they run one after the other, and the last one goes on."""


def quota(text: str, queue: str = QUEUE) -> QuotaChange:
    return QuotaChange(text=f"{queue}.cpu={text}", queue=queue, resource="cpu", amount=amount_change(text))


def starts(chronicle: Chronicle) -> list[float]:
    return [round(each.started - BEGAN, 1) if each.started is not None else inf for each in chronicle.jobs.values()]


def test_what_a_recording_tells() -> None:
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    assert [round(job.arrived - BEGAN) for job in past.jobs] == [100, 200, 300, 86_000]
    assert [job.run_s and round(job.run_s) for job in past.jobs] == [1000, 500, 100, None]
    assert starts(past.was) == [100, 1100, 1600, 86_000]
    assert past.was.used["default", "cpu"].area(past.until) == (4 * 1000 + 4 * 500 + 2 * 100 + 4 * 400) * 1000
    assert past.gone_known == 0


@pytest.mark.parametrize(
    ("changes", "then"),
    [
        ((), [100, 1100, 1600, 86_000]),
        ((quota("+100%"),), [100, 200, 700, 86_000]),
        ((quota("+4"), quota("+2", QUEUES[1])), [100, 200, 700, 86_000]),
        ((quota("2"),), [inf, inf, 300, inf]),
        ((quota("+20%", QUEUES[1]),), [100, 1100, 1600, 86_000]),
        ((RoomChange(text="", cluster="cluster-0", amount=amount_change("0%")),), [100, 1100, 1600, 86_000]),
        (
            tuple(RoomChange(text="", cluster=f"cluster-{n}", amount=amount_change("5%")) for n in range(2)),
            [inf, inf, inf, inf],
        ),
    ],
)
def test_plays(changes: Sequence[Hypothetical], then: Sequence[float]) -> None:
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    assert starts(Play(past, changes).run()) == then
    assert starts(Play(past, changes, constant_work=True).run()) == then


def test_the_unchanged_policy_gives_what_was() -> None:
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    found = reproduction(past.was, Play(past).run())
    assert (found.admissions, found.close, found.in_order, found.differences) == (4, 4, 4, ())
    assert found.is_enough


def test_what_differs_is_named_before_an_answer() -> None:
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    found = reproduction(past.was, Play(past, [quota("+100%")]).run())
    assert (found.close, found.is_enough) == (2, False)
    assert [text.partition(" is ")[2] for text in found.differences] == [
        "admitted 900 s earlier than it was",
        "admitted 900 s earlier than it was",
    ]


def test_who_changes_most_and_the_sums() -> None:
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    before, after = Play(past).run(), Play(past, [quota("+100%")]).run()
    assert [(each.before_s, each.after_s) for each in changed(before, after, past.until)] == [(900, 0), (1300, 400)]
    told = summary("played", after, past.until)
    assert [(waits.queue, waits.jobs, waits.started, waits.p50_s) for waits in told.waits] == [(QUEUE, 4, 4, 0.0)]
    assert (told.preemptions, told.pods_killed, told.gpu_hours_idle) == (0, 0, 0)


def of_file(resource: Resource, name: str) -> PolicyEdit:
    return PolicyEdit(text="file", edits=((resource, {"metadata": {"name": name}}),))


LOWER = PreemptionChange(text="lower", queue=QUEUE, field="withinClusterQueue", policy="LowerPriority")
OF_FLAVOR = QuotaChange(text="spot", queue=QUEUE, resource="cpu", flavor="spot", amount=amount_change("8"))
ROOMS = [
    RoomChange(text=flavor, cluster="east", resource="cpu", flavor=flavor, amount=amount_change("8"))
    for flavor in ("", "spot", "reserved")
]


@pytest.mark.parametrize(
    ("changes", "go_together"),
    [
        ((quota("+50%"), OF_FLAVOR), False),
        ((OF_FLAVOR, quota("+50%")), False),
        ((ROOMS[0], ROOMS[1]), False),
        ((ROOMS[1], ROOMS[2]), True),
        ((quota("+50%"), of_file(CLUSTERQUEUES, QUEUE)), False),
        ((LOWER, of_file(CLUSTERQUEUES, QUEUE)), False),
        ((quota("+50%"), of_file(COHORTS, QUEUE)), False),
        ((LOWER, of_file(COHORTS, QUEUE)), True),
        ((quota("+50%"), LOWER, of_file(CLUSTERQUEUES, QUEUES[1])), True),
        ((ROOMS[1], of_file(WORKERCLUSTERS, "east")), True),
    ],
)
def test_what_changes_the_same_is_not_played_together(changes: Sequence[Hypothetical], go_together: bool) -> None:
    assert ("together" in [name for name, _ in variants(changes)]) == go_together


def test_several_changes_are_played_alone_and_together() -> None:
    more, other = quota("+20%"), quota("+20%", QUEUES[1])
    names = [name for name, _ in variants([more, other])]
    assert names == [more.text, other.text, "together"]
    assert [name for name, _ in variants([more, quota("+50%")])] == [more.text, quota("+50%").text]
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    answer = ask(past, [more, other]).answer
    assert [play.summary.name for play in answer.plays] == names
    assert any("1 jobs that had not ended" in text for text in answer.left_out)


def test_preemption_is_decided_by_the_policy_that_is_asked_about() -> None:
    change = PreemptionChange(text="", queue=QUEUE, field="withinClusterQueue", policy="LowerOrNewerEqualPriority")
    past = past_of(journal(list(CROWDED), clusters=2, quota=4))
    assert starts(Play(past, [change]).run()) == starts(past.was)  # Nobody older waits.


def test_a_span_begins_with_what_runs_and_waits_then() -> None:
    reader = PastReader(BEGAN + 700.0)
    for record in journal(list(CROWDED), clusters=2, quota=4):
        reader.feed(record)
    past = reader.past()
    assert past is not None
    assert datetime.fromtimestamp(past.since, UTC).minute == 11
    assert [story.ran_before for story in past.was.jobs.values()] == [True, False, False, False]
    assert starts(Play(past).run()) == [inf, 1100, 1600, 86_000]
    assert starts(Play(past, [quota("+100%")]).run()) == [inf, 700, 1100, 86_000]


def test_a_curve() -> None:
    curve = Curve(0.0)
    curve.set(10.0, 4)
    curve.set(30.0, 0)
    assert curve.area(100.0) == 80
    assert curve.means(40.0, 4) == [0, 4, 4, 0]


def a_slice(number: int, pods: int = 1) -> Slice:
    requests = {"cpu": 1000}
    return Slice(
        namespace="team",
        name=f"job-{number}",
        uid=f"{number:04}",
        created="2026-01-01T00:00:00Z",
        job_uid=f"{number:04}",
        queue="main",
        priority=0,
        active=True,
        pod_sets=(PodSet(name="main", count=pods, requests=requests, template={}),),
        replaces=None,
        chain=f"job-{number}",
        admission=None,
        admitted=False,
        evicted=False,
        finished=False,
        deleting=False,
        cluster=None,
        conditions={},
    )


@pytest.mark.parametrize("room", [0, 1, 2, 3, 7, 50])
def test_a_cycle_by_the_front_decides_as_one_that_sees_all(room: int) -> None:
    ledger = Ledger()
    fronts, seen = Fronts(ledger.put, lambda slice: ledger.remove(slice.key)), list[int]()
    for number in reversed(range(20)):
        fronts.add(a_slice(number))
    assert len(ledger.slices) == FRONT

    def decide() -> list[Admit | Wait]:
        seen.append(len(ledger.slices))
        waiting = sorted(ledger.slices)
        admitted = [Admit(key=key, admission=Admission("main", ()), cluster="") for key in waiting[:room]]
        return [*admitted, *(Wait(key=key, reason="Pending", message="") for key in waiting[room:])]

    decided = fronts.cycle(decide)
    keys = sorted(SliceKey(f"team/job-{number}") for number in range(20))
    assert {each.key for each in decided if isinstance(each, Admit)} <= set(keys)
    assert sum(isinstance(each, Admit) for each in decided) == min(room, 20)
    assert max(seen) <= max(FRONT, 2 * room)


def test_one_that_leaves_from_behind_the_front_never_comes_to_it() -> None:
    ledger = Ledger()
    fronts = Fronts(ledger.put, lambda slice: ledger.remove(slice.key))
    slices = [a_slice(number) for number in range(6)]
    for slice in slices:
        fronts.add(slice)
    for slice in (slices[3], slices[0], slices[1]):
        fronts.remove(slice)
    assert sorted(ledger.slices) == [slices[2].key, slices[4].key]
