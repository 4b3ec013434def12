"""What the ledger reads of the manager's recording: grants, waits, kills, resizes, and what is not known."""

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from slicebus.bus.contract import Record as StreamRecord
from slicebus.journal.entry import Entry
from slicebus.journal.export import from_line
from slicebus.journal.recording import Began, Gap, Gone, Noted, Put, SnapshotPart
from slicebus.ledger.bookkeeper import Bookkeeper, LedgerState
from slicebus.ledger.books import OpenBooks
from slicebus.ledger.facts import (
    Fact,
    GrantFact,
    JobFact,
    KillFact,
    PolicyFact,
    ResizeFact,
    SliceFact,
    SpecFact,
    UnknownSpan,
    WaitFact,
)
from unit.journal.records import garbage
from unit.ledger.recorded import (
    BEGAN_MS,
    WORKLOADS,
    Leader,
    clock,
    facts_of,
    gone,
    put,
    replacing,
    reported,
    snapshot,
    workload,
)

REPLAYS = Path(__file__).parents[2] / "replays"
RUNNING = workload("a", 2, admitted=2)
Grant = tuple[str, float, float | None, int, int]


def seconds(moment_ms: int | None) -> float | None:
    return None if moment_ms is None else (moment_ms - BEGAN_MS) / 1000


def grants(facts: Iterable[Fact]) -> list[Grant]:
    """The grants, each once as it was told last: slice, beginning, end, pods, ready ones."""
    last = {(fact.slice_uid, fact.since_ms): fact for fact in facts if isinstance(fact, GrantFact)}
    return [
        (fact.slice_uid.removeprefix("uid-"), seconds(fact.since_ms), seconds(fact.until_ms), fact.pods, fact.ready)
        for fact in last.values()
        if fact.until_ms != fact.since_ms
    ]  # type: ignore[misc]


def of(kind: type[Any], facts: Iterable[Fact]) -> list[Any]:
    return [fact for fact in facts if isinstance(fact, kind)]


def life(*steps: Any, keeper: Bookkeeper | None = None) -> list[Fact]:
    """The facts of a leader that begins with nothing at 0 s; steps are the records of batches with their times."""
    leader = Leader()
    entries = [leader.begins(0), *(leader.batch(at_s, *records) for at_s, *records in steps)]
    return facts_of(keeper or Bookkeeper(LedgerState()), *entries)


CASES: dict[str, tuple[list[Any], list[Grant]]] = {
    "begins and ends": (
        [(5, clock(5), put(RUNNING)), (9, clock(9), put(workload("a", 3, admitted=2, finished_s=9)))],
        [("a", 5, 9, 2, 0)],
    ),
    "goes on": ([(5, clock(5), put(RUNNING))], [("a", 5, None, 2, 0)]),
    "is deleted": ([(5, clock(5), put(RUNNING)), (7, clock(7), gone("a"))], [("a", 5, 7, 2, 0)]),
    "is ready": (
        [(5, clock(5), put(RUNNING)), (6, *reported(6, "a", 2)), (9, clock(9), gone("a"))],
        [("a", 5, 6, 2, 0), ("a", 6, 9, 2, 2)],
    ),
    "a report that was refused": (
        [(5, clock(5), put(RUNNING)), (6, *reported(6, "a", 2, taken=False))],
        [("a", 5, None, 2, 0)],
    ),
    "more are ready than have quota": (
        [(5, clock(5), put(RUNNING)), (6, *reported(6, "a", 9))],
        [("a", 5, 6, 2, 0), ("a", 6, None, 2, 2)],
    ),
    "shrinks": (
        [(5, clock(5), put(RUNNING)), (8, clock(8), put(workload("a", 3, pods=1, admitted=2)))],
        [("a", 5, 8, 2, 0), ("a", 8, None, 1, 0)],
    ),
    "is replaced, and counted once": (
        [
            (5, clock(5), put(RUNNING), *reported(6, "a", 2)),
            (8, clock(8), put(workload("b", 4, pods=5, admitted=5, **replacing("a")))),
            (9, clock(9), put(workload("a", 5, admitted=2, finished_s=9))),
        ],
        [("a", 5, 6, 2, 0), ("a", 6, 8, 2, 2), ("b", 8, None, 5, 2)],
    ),
    "keeps its quota until its pods have gone": (
        [
            (5, clock(5), put(RUNNING)),
            (7, clock(7), put(workload("a", 3, admitted=2, evicted_s=7))),
            (9, clock(9), put(workload("a", 4, admitted_s=9))),
        ],
        [("a", 5, 9, 2, 0)],
    ),
    "nonsense between": (
        [(5, clock(5), put(RUNNING)), (6, put({"metadata": {"name": "b", "namespace": "team"}}, "x"))],
        [("a", 5, None, 2, 0)],
    ),
}


@pytest.mark.parametrize(("steps", "expected"), CASES.values(), ids=list(CASES))
def test_grants(steps: list[Any], expected: list[Grant]) -> None:
    assert grants(life(*steps)) == expected


def test_a_grant_says_what_it_is_counted_under() -> None:
    user = put(
        {"metadata": {"name": "train", "namespace": "team", "uid": "job-1", "labels": {"who": "ann"}}}, "jobs.batch"
    )
    told = life((5, clock(5), user, put(RUNNING)), keeper=Bookkeeper(LedgerState(), user_label="who"))
    [grant] = of(GrantFact, told)
    account = grant.account
    assert (account.queue, account.namespace, account.cluster) == ("batch", "team", "east")
    assert (account.flavor, account.priority, account.user) == ("a100+cpu", "high", "ann")
    assert msgspec.json.decode(account.requests) == {"cpu": 2.0, "nvidia.com/gpu": 1.0}
    assert of(JobFact, told) == [JobFact(uid="job-1", kind="Job", namespace="team", name="train", user="ann")]
    assert of(SliceFact, told) == [SliceFact(uid="uid-a", job_uid="job-1", namespace="team", name="a")]


def test_beside_a_kueue_the_cluster_comes_later() -> None:
    def there(version: int, cluster: str, **more: str) -> dict[str, Any]:
        found = workload(f"{version // 10}", version, admitted=2, **{"slicebus.dev/cluster": cluster}, **more)
        del found["status"]["clusterName"]
        return found

    first, named = there(11, ""), there(12, "east")
    noted = Put(of=WORKLOADS, object={"metadata": named["metadata"]}, same=("spec", "status"))
    told = life((5, clock(5), put(first)), (6, clock(6), noted), (8, clock(8), put(there(21, "", **replacing("1")))))
    shown = [(seconds(fact.since_ms), seconds(fact.until_ms), fact.account.cluster) for fact in of(GrantFact, told)]
    assert [grant for grant in shown if grant[1] is not None] == [(5, 6, ""), (6, 8, "east")]
    assert shown[-1] == (8, None, "east")


def test_waits_have_reasons_and_the_queue() -> None:
    queue = put(
        {"metadata": {"name": "queue", "namespace": "team"}, "spec": {"clusterQueue": "batch"}},
        "localqueues.kueue.x-k8s.io",
    )
    told = life(
        (2, clock(2), queue, put(workload("a", 2))),
        (4, clock(4), put(workload("a", 3, pending="Inadmissible"))),
        (9, clock(9), put(workload("a", 4, admitted=2))),
    )
    waits = {fact.since_ms: fact for fact in of(WaitFact, told)}.values()
    shown = [(seconds(wait.since_ms), seconds(wait.until_ms), wait.reason, wait.admitted) for wait in waits]
    assert shown == [(2, 4, "Pending", False), (4, 9, "Inadmissible", True)]
    assert {wait.account.queue for wait in waits} == {"batch"}


def test_an_eviction_kills_once() -> None:
    evicted = workload("a", 3, admitted=2, evicted_s=7)
    told = life(
        (5, clock(5), put(RUNNING)),
        (7, clock(7.5), put(evicted)),
        (8, clock(8), put(evicted | {"metadata": evicted["metadata"] | {"resourceVersion": "4"}})),
    )
    [kill] = of(KillFact, told)
    assert (kill.pods, kill.reason, seconds(kill.at_ms), kill.account.queue) == (2, "Preempted", 7, "batch")


def shrunk_for(*beneficiaries: Any) -> Any:
    """The job with one pod of its two."""
    note = {
        "id": "1",
        "before": {"main": 2},
        "to": {"main": 1},
        "at": "2026-01-31T12:00:07Z",
        "beneficiaries": beneficiaries,
        "reason": "InClusterQueue",
        "message": "for b",
    }
    return workload("a", 3, pods=1, admitted=2, **{"slicebus.dev/reclaimed": msgspec.json.encode(note).decode()})


def beneficiary(name: str, **took: Any) -> dict[str, Any]:
    return {"workload": f"team/{name}", "uid": f"uid-{name}", "jobUid": "j", "at": "2026-01-31T12:00:07Z"} | took


def test_pods_that_go_for_nobody_who_preempts_are_no_kills_of_an_earlier_preemptor() -> None:
    """They were idle quota, and have gone to one that needs it, or back."""
    last = beneficiary("c", took={"main": 1}, opportunistic=True)
    for shrunk in (shrunk_for(beneficiary("b"), last), shrunk_for(beneficiary("b"))):
        assert of(KillFact, life((5, clock(5), put(RUNNING)), (8, clock(8), put(shrunk)))) == []


def test_pods_that_were_taken_back_are_kills_too() -> None:
    shrunk = shrunk_for(beneficiary("b", took={"main": 1}))
    told = life((5, clock(5), put(RUNNING)), (8, clock(8), put(shrunk)))
    [kill] = of(KillFact, told)
    assert (kill.pods, kill.reason, kill.message, kill.for_uid) == (1, "Reclaimed", "for b", "uid-b")
    [resize] = of(ResizeFact, told)
    assert (resize.before, resize.after, seconds(resize.at_ms)) == (2, 1, 8)


def test_pods_that_have_ended_are_no_resize() -> None:
    ended = workload("a", 3, admitted=2)
    ended["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    told = life((5, clock(5), put(RUNNING)), (8, clock(8), put(ended)))
    assert grants(told) == [("a", 5, 8, 2, 0), ("a", 8, None, 1, 0)]
    assert of(ResizeFact, told) == []


def test_what_was_published_twice_is_counted_once() -> None:
    leader, keeper = Leader(), Bookkeeper(LedgerState())
    entries = [leader.begins(0), leader.batch(5, clock(5), put(RUNNING))]
    assert len(of(GrantFact, facts_of(keeper, *entries))) == 1
    assert facts_of(keeper, *entries) == []


def test_what_others_record_or_nobody_can_read_tells_nothing() -> None:
    agent = Leader(role="agent")
    entries = [Entry.from_record(garbage()), agent.begins(0), agent.batch(5, clock(5), put(RUNNING))]
    assert facts_of(Bookkeeper(LedgerState()), *entries) == []


def test_of_two_shards_the_newest_version_counts() -> None:
    first, second, keeper = Leader(), Leader(shard=1), Bookkeeper(LedgerState())
    told = facts_of(
        keeper,
        first.begins(0),
        second.begins(0),
        first.batch(5, clock(5), put(RUNNING)),
        first.batch(7, clock(7), put(workload("a", 3, pods=1, admitted=2))),
        second.batch(8, clock(8), put(RUNNING)),
        second.batch(9, clock(9), gone("a")),
        first.batch(9, clock(9.5), put(workload("a", 3, pods=1, admitted=2)), gone("a")),
    )
    assert grants(told) == [("a", 5, 7, 2, 0), ("a", 7, 9, 1, 0)]


class TestInterruptions:
    """A leader ends at 10 s, and the next one begins at 60 s."""

    @staticmethod
    def told(*present: dict[str, Any]) -> list[Fact]:
        first, second = Leader(), Leader(epoch=2)
        return facts_of(
            Bookkeeper(LedgerState()),
            first.begins(0),
            first.batch(5, clock(5), put(RUNNING)),
            first.batch(10, clock(10)),
            second.begins(60, *present),
        )

    def test_what_has_not_changed_goes_on(self) -> None:
        told = self.told(workload("a", 2, admitted=2))
        assert grants(told) == [("a", 5, None, 2, 0)]
        assert of(UnknownSpan, told) == []

    def test_a_slice_says_itself_when_it_ended(self) -> None:
        told = self.told(workload("a", 3, admitted=2, finished_s=30))
        assert grants(told) == [("a", 5, 30, 2, 0)]
        assert of(UnknownSpan, told) == []

    def test_a_slice_says_itself_when_it_got_and_lost_its_quota(self) -> None:
        told = self.told(workload("a", 3, admitted_s=20), workload("b", 4, admitted=1, pods=1, admitted_s=40))
        assert grants(told) == [("a", 5, 20, 2, 0), ("b", 40, None, 1, 0)]
        assert of(UnknownSpan, told) == []

    def test_what_was_replaced_ends_when_the_other_began(self) -> None:
        told = self.told(workload("b", 4, pods=5, admitted=5, admitted_s=40, created_s=39, **replacing("a")))
        assert grants(told) == [("a", 5, 40, 2, 0), ("b", 40, None, 5, 0)]
        assert of(UnknownSpan, told) == []

    def test_what_is_gone_is_known_up_to_the_last_record(self) -> None:
        told = self.told()
        assert grants(told) == [("a", 5, 10, 2, 0)]
        [span] = of(UnknownSpan, told)
        assert (seconds(span.since_ms), seconds(span.until_ms), span.pod_ms) == (10, 60, 2 * 50_000)

    def test_what_was_resized_in_place_is_not_known_meanwhile(self) -> None:
        told = self.told(workload("a", 3, pods=1, admitted=2))
        assert grants(told) == [("a", 5, 10, 2, 0), ("a", 60, None, 1, 0)]
        assert [span.pod_ms for span in of(UnknownSpan, told)] == [2 * 50_000]

    def test_what_was_evicted_and_came_back_is_not_known_before(self) -> None:
        told = self.told(workload("a", 3, admitted=2, admitted_s=40))
        assert grants(told) == [("a", 5, 10, 2, 0), ("a", 40, None, 2, 0)]
        assert [span.pod_ms for span in of(UnknownSpan, told)] == [2 * 30_000]

    def test_the_clock_of_the_next_leader_may_be_behind(self) -> None:
        first, second = Leader(), Leader(epoch=2)
        told = facts_of(
            Bookkeeper(LedgerState()),
            first.begins(0),
            first.batch(5, clock(5), put(RUNNING)),
            first.batch(10, clock(10)),
            second.begins(8),
        )
        assert grants(told) == [("a", 5, 10, 2, 0)]

    def test_a_late_batch_of_the_first_leader_tells_nothing(self) -> None:
        first, second = Leader(), Leader(epoch=2)
        entries = [first.begins(0), second.begins(5), first.batch(6, clock(6), put(RUNNING))]
        assert of(GrantFact, facts_of(Bookkeeper(LedgerState()), *entries)) == []


def test_a_workload_that_nobody_can_read_stops_no_other() -> None:
    broken = workload("b", 3)
    broken["spec"]["podSets"] = "none"
    leader = Leader()
    entries = [
        leader.begins(0, broken),
        leader.batch(5, clock(5), put(broken), put(RUNNING)),
        leader.batch(9, clock(9), put(broken), gone("b"), gone("a")),
    ]
    assert grants(facts_of(Bookkeeper(LedgerState()), *entries)) == [("a", 5, 9, 2, 0)]


def test_a_stream_that_no_longer_has_the_snapshot_is_a_gap() -> None:
    leader = Leader()
    first = [leader.begins(0), leader.batch(5, clock(5), put(RUNNING))]
    before = Bookkeeper(LedgerState())
    told = facts_of(before, *first)
    after = Bookkeeper(LedgerState(opened(told), before.taken, before.known_ms))
    told += facts_of(after, leader.batch(7, clock(7)), leader.batch(20, clock(20), snapshot(RUNNING)))
    assert grants(told) == [("a", 5, None, 2, 0)]
    [span] = of(UnknownSpan, told)
    assert (seconds(span.since_ms), seconds(span.until_ms), span.pod_ms) == (5, 20, 0)
    assert span.reason == "the stream has no snapshot of manager, epoch 1 before"


@pytest.mark.parametrize("lost", ["a batch", "records"])
def test_a_gap_is_said(lost: str) -> None:
    leader, keeper = Leader(), Bookkeeper(LedgerState())
    entries = [leader.begins(0), leader.batch(5, clock(5), put(RUNNING))]
    missing = leader.batch(6, *([] if lost == "a batch" else [Gap(dropped=7)]))
    after = [
        leader.batch(7, clock(7), put(workload("b", 3, admitted=1))),
        leader.batch(20, clock(20), snapshot(RUNNING)),
        leader.batch(30, clock(30), gone("a")),
    ]
    told = facts_of(keeper, *entries, *([] if lost == "a batch" else [missing]), *after)
    assert grants(told) == [("a", 5, 30, 2, 0)]
    [span] = of(UnknownSpan, told)
    assert (seconds(span.since_ms), seconds(span.until_ms), span.pod_ms) == (5, 20, 0)
    assert span.reason.startswith("1 batches" if lost == "a batch" else "manager, epoch 1 has dropped 7")


def recording(name: str) -> list[Entry]:
    lines = gzip.decompress((REPLAYS / f"{name}.jsonl.gz").read_bytes()).splitlines()
    records: list[StreamRecord] = [from_line(line) for line in lines]
    return [Entry.from_record(record) for record in records]


def opened(facts: Iterable[Fact]) -> OpenBooks:
    """What is open after facts, as a database has it."""
    last: dict[Any, Any] = {}
    for fact in facts:
        if isinstance(fact, GrantFact):
            last[fact.slice_uid, fact.pod_set, fact.since_ms] = fact
        elif isinstance(fact, WaitFact):
            last[fact.slice_uid, fact.since_ms] = fact
    running = [fact for fact in last.values() if fact.until_ms is None]
    slices = {fact.uid: fact for fact in facts if isinstance(fact, SliceFact)}
    there = tuple(fact for fact in slices.values() if fact.gone_ms is None)
    specs = {fact.slice_uid: fact for fact in facts if isinstance(fact, SpecFact)}
    of_there = tuple(specs[fact.uid] for fact in there if fact.uid in specs)
    return OpenBooks(there, tuple(of(GrantFact, running)), tuple(of(WaitFact, running)), of_there)


def policies_after(facts: Iterable[Fact]) -> tuple[PolicyFact, ...]:
    """The policies that are there after facts."""
    last = {(fact.resource, fact.namespace, fact.name): fact for fact in facts if isinstance(fact, PolicyFact)}
    return tuple(fact for fact in last.values() if fact.document)


def told_of(facts: Iterable[Fact]) -> set[Fact]:
    """The facts of grants and waits as they were told last, and the others."""
    last: dict[Any, Fact] = {}
    for fact in facts:
        match fact:
            case GrantFact():
                last[fact.slice_uid, fact.pod_set, fact.since_ms] = fact
            case WaitFact():
                last[fact.slice_uid, fact.since_ms] = fact
            case _:
                last[fact] = fact
    return {fact for fact in last.values() if not isinstance(fact, GrantFact) or fact.until_ms != fact.since_ms}


@pytest.mark.parametrize("name", ["life-of-a-job", "eviction", "lost-cluster", "ray-job", "beside-kueue"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_a_restart_anywhere_tells_the_same(name: str, share: float) -> None:
    entries = recording(name)
    whole = facts_of(Bookkeeper(LedgerState()), *entries)
    at = int(len(entries) * share)
    before = Bookkeeper(LedgerState())
    first = facts_of(before, *entries[:at])
    after = Bookkeeper(LedgerState(opened(first), before.taken, before.known_ms, policies_after(first)))
    assert facts_of(after, *entries[:at]) == []
    assert told_of([*first, *facts_of(after, *entries[at:])]) == told_of(whole)


def queue(version: int, quota: str) -> dict[str, Any]:
    annotations = {"kueue.x-k8s.io/a": "kept", "kubectl.kubernetes.io/last-applied-configuration": "long"}
    metadata = {"name": "batch", "uid": "queue", "resourceVersion": str(version), "annotations": annotations}
    return {"metadata": metadata, "spec": {"quota": quota}, "status": {"pendingWorkloads": version}}


def put_queue(version: int, quota: str) -> Put:
    return put(queue(version, quota), "clusterqueues.kueue.x-k8s.io")


def policies_of(told: Iterable[Fact]) -> list[tuple[str, float, str]]:
    found = []
    for fact in of(PolicyFact, told):
        spec = msgspec.json.decode(fact.document).get("spec", {}) if fact.document else {}
        found.append((fact.name, seconds(fact.at_ms), spec.get("quota", "")))
    return found


def test_what_is_decided_by_is_told_when_it_changes() -> None:
    leader, keeper = Leader(), Bookkeeper(LedgerState())
    first = SnapshotPart(part=0, last=True, content=(put_queue(1, "4"),))
    setting = Noted(table="settings", key=Raw(b'"leading"'), value=Raw(b'{"a":1}'))
    deleted = Gone(of="clusterqueues.kueue.x-k8s.io", name="batch")
    told = facts_of(
        keeper,
        leader.batch(0, Began(version="1"), clock(0), first),
        leader.batch(5, clock(5), put_queue(2, "4"), setting),
        leader.batch(6, clock(6), put_queue(3, "8"), setting),
        leader.batch(7, clock(7), deleted),
    )
    name = '"leading"'
    assert policies_of(told) == [("batch", 0, "4"), (name, 5, ""), ("batch", 6, "8"), ("batch", 7, "")]
    assert msgspec.json.decode(of(PolicyFact, told)[0].document)["metadata"]["annotations"] == {
        "kueue.x-k8s.io/a": "kept"
    }


def test_another_shard_tells_no_policy_again_and_the_next_leader_what_has_changed() -> None:
    one, two, next_one = Leader(), Leader(shard=1), Leader(epoch=2)
    keeper = Bookkeeper(LedgerState())
    first = SnapshotPart(part=0, last=True, content=(put_queue(1, "4"),))
    told = facts_of(
        keeper,
        one.batch(0, Began(version="1"), clock(0), first),
        two.batch(1, Began(version="1"), clock(1), first),
        one.batch(2, clock(2), put_queue(2, "8")),
        one.batch(3, clock(3), put_queue(3, "9")),
        two.batch(4, clock(4), put_queue(2, "8"), put_queue(3, "9")),
        next_one.batch(300, Began(version="1"), clock(300), snapshot()),
    )
    assert policies_of(told) == [("batch", 0, "4"), ("batch", 2, "8"), ("batch", 3, "9"), ("batch", 300, "")]


def test_what_a_slice_asks_for_is_told_when_it_changes() -> None:
    leader, keeper = Leader(), Bookkeeper(LedgerState())
    told = facts_of(
        keeper,
        leader.begins(0),
        leader.batch(1, clock(1), put(workload("a", 1))),
        leader.batch(2, clock(2), put(workload("a", 2, admitted=2, admitted_s=2))),
        leader.batch(3, clock(3), put(workload("a", 3, pods=1, admitted=2, admitted_s=2))),
        leader.batch(4, clock(4), put(workload("a", 4, pods=1, admitted=2, admitted_s=2, **{"other.dev/note": "x"}))),
        leader.batch(5, clock(5), put(workload("a", 5, pods=1, admitted=2, **{"slicebus.dev/min-size": "main=1"}))),
    )
    specs = of(SpecFact, told)
    assert [seconds(spec.at_ms) for spec in specs] == [1, 3, 5]
    documents = [msgspec.json.decode(spec.document) for spec in specs]
    assert [document["counts"] for document in documents] == [{"main": 2}, {"main": 1}, {"main": 1}]
    assert documents[2]["annotations"] == {"slicebus.dev/min-size": "main=1"}
    assert {spec.templates for spec in specs} == {'{"main":{}}'}


def test_what_an_earlier_version_has_not_told_is_told_once() -> None:
    leader, before = Leader(), Bookkeeper(LedgerState())
    content = (put(workload("a", 2, admitted=2)), put_queue(1, "4"))
    entries = [leader.batch(0, Began(version="1"), clock(0), SnapshotPart(part=0, last=True, content=content))]
    first = [fact for fact in facts_of(before, *entries) if not isinstance(fact, SpecFact | PolicyFact)]
    after = Bookkeeper(LedgerState(opened(first), before.taken, before.known_ms))
    assert facts_of(after, *entries) == []
    told = facts_of(after, leader.batch(9, clock(9)), leader.batch(10, clock(10)))
    assert [(type(fact), seconds(fact.at_ms)) for fact in told] == [(PolicyFact, 9), (SpecFact, 9)]
