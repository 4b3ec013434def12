"""Inventories: pages put together, and every difference between what is held and what shall be."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.decisions.commands import Patch
from slicebus.manager.decide.messages.inventory import (
    Assembly,
    Difference,
    Listed,
    Stamp,
    difference,
    forget_lost_requests,
    forget_withdrawn,
    lacks_request,
)
from slicebus.manager.state.annotations import SizeRequest
from slicebus.manager.state.outbox import LOST, Dispatch
from slicebus.manager.state.views import JobView
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import ProtocolError
from slicebus.proto.messages import Inventory, InventoryItem, JobPhase, RequestKey, Waits
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import status_hash
from slicebus.slices.workload.waiting import SURPLUS, Waiting
from unit.manager.objects import (
    CONTENT,
    EAST,
    REF,
    WEST,
    a_job,
    a_view,
    a_workload,
    an_envelope,
    asking,
    condition,
    vanished,
    withdrawn,
)

NO_STATUS = status_hash({}, JobPhase.RUNNING, None)
ALL = {difference.name: difference for difference in Difference}


def an_item(version: int = 3, hash: str = CONTENT, status: str = NO_STATUS, *, uid: str = REF.uid) -> InventoryItem:
    return InventoryItem(REF.kind, REF.namespace, REF.name, uid, version, hash, status)


def dispatched(version: int = 3, applied: int = 3, **how: Any) -> JobView:
    return a_view(a_job(), a_workload(admitted=1, dispatched=version, applied=applied, **how))


def suspending(applied: int = 2, **how: Any) -> JobView:
    workload = a_workload(admitted=1, dispatched=3, applied=applied)
    record = Dispatch(3, CONTENT, suspended=True)
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = record.to_annotation()
    return a_view(a_job(), workload, **how)


def left_behind() -> JobView:
    """Given up at version 4: its copy is being recalled."""
    workload = withdrawn(dispatched=4, applied=4)
    return a_view(a_job(), workload, left_copies={EAST: 4}, given_up=True)


def growing(applied: int = 3) -> JobView:
    return a_view(asking(1, 4), a_workload(admitted=1, dispatched=3, applied=applied))


ENDED = a_view(None, withdrawn(dispatched=4, applied=4))
ENDING = a_view(None, withdrawn(dispatched=4, applied=3))
GONE = an_item(hash="", status="")
CASES: dict[str, tuple[JobView, InventoryItem | None, str]] = {
    "the same": (dispatched(), an_item(), "NONE"),
    "not reported yet, and held": (dispatched(applied=2), an_item(), "HELD"),
    "suspended, and not reported yet": (suspending(), an_item(), "AGAIN"),
    "suspended, and lost": (suspending(applied=3), None, "RENEW"),
    "suspended beside a Kueue, and lost": (suspending(applied=3, checks=frozenset({"slicebus"})), None, "NONE"),
    "to be suspended, and not there": (suspending(), None, "AGAIN"),
    "on its way": (dispatched(applied=2), an_item(2), "AGAIN"),
    "never arrived": (dispatched(1, 0), None, "AGAIN"),
    "lost": (dispatched(), None, "RENEW"),
    "lost before it was reported, with a request": (growing(applied=2), None, "RENEW"),
    "only its copy is left, of a job with a request": (
        growing(applied=2),
        an_item(hash=api_names.ABSENT, status=""),
        "RENEW",
    ),
    "on its way to a job with a request": (growing(applied=2), an_item(2), "AGAIN"),
    "put back to an older state": (dispatched(), an_item(2), "RENEW"),
    "newer than the manager": (dispatched(), an_item(9), "RENEW"),
    "newer than the manager, not reported": (dispatched(applied=2), an_item(9), "RENEW"),
    "changed by somebody": (dispatched(), an_item(hash="other"), "RENEW"),
    "held without its copy": (dispatched(), an_item(hash=api_names.WITHOUT_COPY), "RENEW"),
    "not reported yet, and held without its copy": (
        dispatched(applied=2),
        an_item(hash=api_names.WITHOUT_COPY),
        "AGAIN",
    ),
    "not reported yet, and held otherwise": (dispatched(applied=2), an_item(hash="other"), "HELD"),
    "only a copy, and not reported yet": (dispatched(applied=2), an_item(hash=api_names.ABSENT, status=""), "AGAIN"),
    "renewed above what was reported": (dispatched(applied=2, hash=LOST), an_item(), "AGAIN"),
    "gone, and the report has not come": (dispatched(), GONE, "STATUS"),
    "gone before it was reported": (dispatched(applied=2), GONE, "AGAIN"),
    "gone, as was reported": (vanished(), GONE, "NONE"),
    "gone, as was reported, and its copies since": (vanished(), None, "NONE"),
    "gone, and only a copy is left": (vanished(), an_item(hash=api_names.ABSENT, status=""), "NONE"),
    "gone, and there again": (vanished(), an_item(1), "STATUS"),
    "gone, as it shall be": (dispatched(hash=api_names.ABSENT), GONE, "NONE"),
    "only a copy that never had a job": (dispatched(), an_item(hash=api_names.ABSENT, status=""), "RENEW"),
    "renewed, and not dispatched yet": (dispatched(hash=LOST), an_item(), "RENEW"),
    "never dispatched, not held": (a_view(a_job(), a_workload(admitted=1)), None, "NONE"),
    "never dispatched, held": (a_view(a_job(), a_workload(admitted=1)), an_item(), "RENEW"),
    "ended": (ENDED, None, "NONE"),
    "ended, and there again": (ENDED, an_item(), "RENEW"),
    "ending": (ENDING, an_item(), "AGAIN"),
    "left behind": (left_behind(), an_item(), "NONE"),
    "left behind, and newer than the manager": (left_behind(), an_item(9), "RENEW"),
    "ended, the answer is missing": (ENDING, None, "AGAIN"),
    "another status": (dispatched(), an_item(status="other"), "STATUS"),
    "another status, of a job whose delete is held": (
        a_view(None, a_workload(admitted=1, dispatched=3, applied=3)),
        an_item(status="other"),
        "NONE",
    ),
    "an unknown status": (dispatched(), an_item(status=""), "NONE"),
}


@pytest.mark.parametrize(("view", "item", "expected"), CASES.values(), ids=CASES.keys())
def test_how_an_item_differs(view: JobView, item: InventoryItem | None, expected: str) -> None:
    assert difference(view, item) is ALL[expected]


FIFTH = RequestKey("w-1", 5)
AT = Stamp((3, 10))


def running(**requested: Any) -> JobView:
    """On east, with what is written down of its last request."""
    job = asking(1, 4, **requested) if requested else a_job()
    return a_view(job, a_workload(admitted=1, dispatched=3, applied=3))


def test_a_request_that_the_worker_does_not_wait_for_is_withdrawn() -> None:
    item = an_item()
    assert difference(running(epoch=2), item) is Difference.WITHDRAWN
    assert difference(running(epoch=2), item, waits=True) is Difference.NONE
    assert difference(running(), item) is Difference.NONE
    assert difference(running(uid="", generation=0), item) is Difference.NONE


@pytest.mark.parametrize(("epoch", "forgets"), [(2, True), (3, False)], ids=["of an earlier agent", "of this agent"])
def test_a_withdrawn_request_of_an_earlier_agent_is_forgotten(epoch: int, forgets: bool) -> None:
    view = running(speaker=EAST, epoch=epoch, sequence=9)
    commands = forget_withdrawn(view, speaker=EAST, published_at=AT)
    assert len(commands) == forgets
    for command in commands:
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        forgotten = SizeRequest.from_manifest(command.body)
        assert forgotten is not None
        assert not forgotten.asks_for_size


LACKS: dict[str, tuple[JobView, bool]] = {
    "none is known": (running(), True),
    "it is known": (running(generation=5), False),
    "an older one is known": (running(generation=4), True),
    "a newer one is known": (running(generation=6), False),
    "of another object, published before": (running(uid="w-0", speaker=EAST, epoch=3, sequence=9), True),
    "of another object, published since": (running(uid="w-2", speaker=EAST, epoch=3, sequence=11), False),
    "of another cluster": (running(uid="w-0", speaker=WEST, epoch=9, sequence=9), True),
    "forgotten with an eviction since": (
        running(uid="", generation=0, speaker=EAST, epoch=3, sequence=11),
        False,
    ),
    "the job has ended": (
        a_view(a_job(over="Complete"), a_workload(admitted=1, dispatched=3, applied=3)),
        False,
    ),
    "the job is gone": (a_view(None, a_workload(admitted=1, dispatched=3, applied=3)), False),
    "it runs nowhere": (a_view(a_job(), a_workload()), False),
}


@pytest.mark.parametrize(("view", "expected"), LACKS.values(), ids=LACKS.keys())
def test_a_request_that_is_not_known_is_asked_for(view: JobView, expected: bool) -> None:
    assert lacks_request(view, FIFTH, speaker=EAST, published_at=AT) is expected


LOSES: dict[str, tuple[JobView, InventoryItem | None, bool]] = {
    "the worker has nothing": (running(speaker=EAST, epoch=3, sequence=9), None, True),
    "only its copy is left": (running(speaker=EAST, epoch=3, sequence=9), an_item(hash=api_names.ABSENT), True),
    "an earlier agent published it": (running(speaker=WEST, epoch=9, sequence=9), None, True),
    "it was published since": (running(speaker=EAST, epoch=3, sequence=11), None, False),
    "the job is there": (running(speaker=EAST, epoch=3, sequence=9), an_item(2), False),
    "the job went, and its report is on its way": (running(speaker=EAST, epoch=3, sequence=9), GONE, False),
    "there is none, and one may be on its way": (running(), None, True),
    "it is forgotten already": (running(uid="", generation=0, speaker=EAST, epoch=3, sequence=10), None, False),
    "one before is forgotten": (running(uid="", generation=0, speaker=EAST, epoch=3, sequence=9), None, True),
    "the job is gone": (a_view(None, a_workload(admitted=1, dispatched=3, applied=3)), None, False),
}


@pytest.mark.parametrize(("view", "item", "forgets"), LOSES.values(), ids=LOSES.keys())
def test_a_request_goes_with_the_copy_that_made_it(view: JobView, item: InventoryItem | None, forgets: bool) -> None:
    commands = forget_lost_requests(view, item, speaker=EAST, published_at=AT)
    assert len(commands) == forgets
    for command in commands:
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        forgotten = SizeRequest.from_manifest(command.body)
        assert forgotten is not None
        assert not forgotten.asks_for_size
        assert not forgotten.is_older_than(FIFTH, speaker=EAST, published_at=(3, 9))


@pytest.mark.parametrize("ready", [True, False])
def test_a_status_is_compared_as_it_was_mirrored(ready: bool) -> None:
    job = a_job() | {"status": {"active": 1, "ready": int(ready)}}
    workload = a_workload(admitted=1, dispatched=3, applied=3, conditions=(condition("PodsReady", ready),))
    view = a_view(job, workload)
    for ready_there in (True, False):
        item = an_item(status=status_hash(job["status"], JobPhase.RUNNING, ready_there))
        assert difference(view, item) is (Difference.NONE if ready_there is ready else Difference.STATUS)


def a_page(number: int, *, of: int = 3, round: int = 1) -> Inventory:
    return Inventory(round=round, page=number, last=number == of - 1, items=[an_item(uid=f"{round}-{number}")])


def added(assembly: Assembly, envelope: Envelope, page: Inventory) -> Listed | None:
    """The inventory that a page completes, read."""
    listed = assembly.add(envelope, page)
    for _ in listed.read() if listed is not None else ():
        pass
    return listed


def uids(listed: Any) -> list[str]:
    return sorted(job.uid for job in listed.items)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_pages_make_an_inventory_in_any_order(order: tuple[int, ...]) -> None:
    assembly = Assembly()
    found = [added(assembly, an_envelope(sequence=10 + number), a_page(number)) for number in order]
    assert found[:2] == [None, None]
    assert found[2] is not None
    assert uids(found[2]) == ["1-0", "1-1", "1-2"]
    assert found[2].since == (1, 10)


def test_a_page_that_comes_again_completes_it_again_until_it_has_had_its_effect() -> None:
    assembly = Assembly()
    assert assembly.add(an_envelope(), a_page(0, of=1))
    assert assembly.add(an_envelope(), a_page(0, of=1))
    assembly.finish()
    assert assembly.add(an_envelope(), a_page(0, of=1)) is None


def test_an_inventory_that_lacks_a_page_has_no_effect() -> None:
    assembly = Assembly()
    assert assembly.add(an_envelope(), a_page(0)) is None
    assert assembly.add(an_envelope(), a_page(2)) is None


@pytest.mark.parametrize(("epoch", "round"), [(1, 2), (2, 1)], ids=["a newer round", "a newer epoch"])
def test_a_newer_inventory_drops_one_that_is_not_complete(epoch: int, round: int) -> None:
    assembly = Assembly()
    assembly.add(an_envelope(), a_page(0))
    assembly.add(an_envelope(), a_page(1))
    newer = an_envelope(epoch=epoch)
    assert assembly.add(newer, a_page(2, round=round)) is None
    assert assembly.add(an_envelope(), a_page(2)) is None
    assembly.add(newer, a_page(1, round=round))
    listed = added(assembly, newer, a_page(0, round=round))
    assert listed is not None
    assert uids(listed) == [f"{round}-0", f"{round}-1", f"{round}-2"]


def test_items_of_unknown_kinds_are_ignored() -> None:
    other = InventoryItem("Pod", "team", "x", "u", 1, "h", "h")
    listed = added(Assembly(), an_envelope(), Inventory(round=1, page=0, last=True, items=[other, an_item()]))
    assert listed is not None
    assert list(listed.items) == [REF]


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 2)), max_size=40))
def test_whatever_arrives_only_whole_inventories_come_out(arrivals: list[tuple[int, int, int]]) -> None:
    assembly, seen = Assembly(), {}
    for epoch, round, number in arrivals:
        seen.setdefault((epoch, round), set()).add(number)
        listed = added(assembly, an_envelope(epoch=epoch), a_page(number, round=round))
        if listed is not None:
            assert len(listed.items) == 3
            assert seen[epoch, round] == {0, 1, 2}
            assembly.finish()


def until_refused(assembly: Assembly, items: list[InventoryItem]) -> int:
    """The most bytes that were held, until the inventory was refused."""
    held = 0
    for number in itertools.count():
        try:
            assembly.add(an_envelope(sequence=number), Inventory(round=1, page=number, last=False, items=items))
        except ProtocolError:
            break
        held += len(assembly._pages[number].body)
    return held


def test_an_inventory_that_never_ends_is_given_up_and_the_next_one_counts() -> None:
    assembly, items = Assembly(), [an_item(uid=f"{number:0100}") for number in range(1000)]
    assert 8 * 1024**2 < until_refused(assembly, items) <= 16 * 1024**2
    assert not assembly.is_half
    late = Inventory(round=1, page=0, last=True, items=[])
    assert assembly.add(an_envelope(sequence=2000), late) is None
    assert uids(added(assembly, an_envelope(sequence=2001), a_page(0, of=1, round=2))) == ["2-0"]


def test_empty_pages_count_too() -> None:
    assert until_refused(Assembly(), []) < 2 * 1024**2


def of_items(number: int) -> Inventory:
    items = [an_item(uid=f"{number}-{item}") for item in range(1000)]
    return Inventory(round=1, page=number, last=number == 49, items=items)


def of_requests(number: int) -> Inventory:
    requests = {f"{number}-{request}": FIFTH for request in range(1000)}
    return Inventory(round=1, page=number, last=False, items=[], unanswered=requests)


def test_an_inventory_of_50000_jobs_counts() -> None:
    assembly = Assembly()
    *_, listed = [added(assembly, an_envelope(sequence=number), of_items(number)) for number in range(50)]
    assert listed is not None
    assert len(listed.items) == 50_000


@pytest.mark.parametrize("page", [of_items, of_requests])
def test_an_inventory_of_more_entries_than_any_cluster_has_is_refused(page: Callable[[int], Inventory]) -> None:
    assembly = Assembly()
    for number in range(50, 150):
        assert assembly.add(an_envelope(sequence=number), page(number)) is None
    with pytest.raises(ProtocolError, match="more than 100000 jobs and requests"):
        assembly.add(an_envelope(sequence=150), page(150))
    assert not assembly.is_half


def test_a_page_that_comes_again_counts_once() -> None:
    assembly, items = Assembly(), [an_item(uid=f"u-{number}") for number in range(1000)]
    for number in range(500):
        assembly.add(an_envelope(sequence=number), Inventory(round=1, page=1, last=True, items=items))
    assert assembly.is_half


SURPLUS_PODS = Waits(wanted={"main": 1}, reason=SURPLUS, message="2 pods run", since="2026-01-01T00:00:00Z")
SHOWN = Waiting.of({"main": 1}, {"main": 1}, reason=SURPLUS, message="2 pods run", since="2026-01-01T00:00:00Z")
RUNS = a_workload(admitted=1, dispatched=3, applied=3)
WAITS: dict[str, tuple[JobView, str, bool]] = {
    "neither": (a_view(a_job(), RUNS), "", False),
    "a report is lost": (a_view(a_job(), RUNS), SURPLUS, True),
    "both": (a_view(a_job(), RUNS, waits=SURPLUS_PODS), SURPLUS, False),
    "an earlier manager has shown it": (
        a_view(a_job(annotations={api_names.WAITING_ANNOTATION: SHOWN.to_annotation()}), RUNS),
        SURPLUS,
        False,
    ),
    "that it is over is lost": (a_view(a_job(), RUNS, waits=SURPLUS_PODS), "", True),
}


@pytest.mark.parametrize(("noted", "there"), [('{"main":2}', {"main": 2}), ("{}", {}), (None, None), ("?", None)])
def test_a_gang_that_differs_is_asked_for(noted: str | None, there: dict[str, int] | None) -> None:
    workload = a_workload(admitted=1, dispatched=3, applied=3)
    workload["metadata"]["annotations"] |= {api_names.GANG_ANNOTATION: noted} if noted is not None else {}
    for gang in (None, {}, {"main": 2}):
        item = an_item(status=status_hash({}, JobPhase.RUNNING, None, gang=gang))
        expected = Difference.NONE if gang == there else Difference.STATUS
        assert difference(a_view(a_job(), workload), item) is expected


@pytest.mark.parametrize(("view", "there", "differs"), WAITS.values(), ids=WAITS.keys())
def test_a_reason_to_wait_that_differs_is_asked_for(view: JobView, there: str, differs: bool) -> None:
    item = an_item(status=status_hash({}, JobPhase.RUNNING, None, waits=there))
    assert difference(view, item) is (Difference.STATUS if differs else Difference.NONE)
