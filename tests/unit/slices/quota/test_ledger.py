"""The ledger finds the part of the slices that a decision is about, whatever has happened to them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.api.kueue import INADMISSIBLE, Condition
from slicebus.slices.quota.holdings import Holdings, Part
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.quota.quota import FlavorResource, Usage, holders, usage_by_chain
from slicebus.slices.workload.chain import oldest_first
from slicebus.slices.workload.reclaimed import Beneficiary, take_back
from slicebus.slices.workload.workload import Slice
from slicebus.slices.workload.workload_counts import states
from support.usage import total_by_queue
from unit.slices.builders import a_slice, admitted, grants, loads, replacement

INADMISSIBLE_NOW = {Condition.QUOTA_RESERVED: {"status": "False", "reason": INADMISSIBLE}}
LOST = take_back(
    None,
    {"main": 1},
    {"main": 0},
    beneficiary=Beneficiary(workload="team/other", uid="uid-other", job_uid="other"),
    at="2026-01-01T00:00:00Z",
    reason="InClusterQueue",
    message="",
)
slices = st.builds(
    lambda number, job, queue, state, changes: made(number, job, queue, state, **changes),
    st.integers(0, 5),
    st.sampled_from("jk"),
    st.sampled_from(["lq1", "lq2"]),
    st.sampled_from(["waits", "cq1", "cq2", "finished", "was admitted and finished"]),
    st.fixed_dictionaries(
        {
            "created": st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
            "replaces": st.sampled_from([None, "team/s0", "team/s1"]),
            "active": st.booleans(),
            "evicted": st.booleans(),
            "priority": st.integers(0, 1),
            "conditions": st.sampled_from([{}, {Condition.PREEMPTED: {}}, INADMISSIBLE_NOW]),
            "reclaimed": st.sampled_from([None, None, LOST, msgspec.structs.replace(LOST, done=True)]),
        }
    ),
)


def made(number: int, job: str, queue: str, state: str, **changes: Any) -> Slice:
    slice = a_slice(f"s{number}", job_uid=job, queue=queue, **changes)
    match state:
        case "waits":
            return slice
        case "finished":
            return msgspec.structs.replace(slice, finished=True)
        case "was admitted and finished":
            return msgspec.structs.replace(admitted(slice, queue="cq1"), finished=True)
    return admitted(slice, queue=state, cluster=f"worker-of-{state}")


def after(steps: list[Any]) -> Ledger:
    ledger = Ledger()
    for step in steps:
        if isinstance(step, Slice):
            ledger.put(step)
        else:
            ledger.remove(a_slice(f"s{step}").key)
    return ledger


steps = st.lists(st.one_of(slices, st.integers(0, 5)), max_size=20)


def by_key(slices: Iterable[Slice]) -> list[Slice]:
    return sorted(slices, key=lambda slice: slice.key)


def amounts(totals: Mapping[Any, Usage]) -> dict[Any, dict[FlavorResource, int]]:
    found = {key: {each: amount for each, amount in usage.items() if amount} for key, usage in totals.items()}
    return {key: usage for key, usage in found.items() if usage}


@given(steps=steps)
def test_a_ledger_counts_what_a_search_of_all_slices_finds(steps: list[Any]) -> None:
    ledger = after(steps)
    everything = ledger.slices.values()
    unfinished = [slice for slice in everything if not slice.finished]
    for chain in {slice.chain_id for slice in everything}:
        assert list(ledger.chain(chain)) == oldest_first(slice for slice in everything if slice.chain_id == chain)
        assert ledger.holdings.holder(chain) is holders(everything).get(chain)
    assert +ledger.load == loads(everything)
    assert {name: +granted for name, granted in ledger.granted.items() if +granted} == grants(everything)
    waiting = {slice.queue for slice in unfinished if slice.admission is None}
    assert set(ledger.waiting_in()) == {("team", queue) for queue in waiting}
    assert amounts(ledger.holdings.totals) == amounts(total_by_queue(usage_by_chain(unfinished)))
    used_in = {
        (("team", queue), name): usage
        for queue in ("lq1", "lq2")
        for name, usage in total_by_queue(usage_by_chain(each for each in unfinished if each.queue == queue)).items()
    }
    assert amounts(ledger.used_in.totals) == amounts(used_in)
    for queue in ("lq1", "lq2"):
        counted = Counter(state for slice in unfinished if slice.queue == queue for state in states(slice))
        assert +ledger.workload_counts.total([("team", queue)]) == counted


@given(steps=steps)
def test_a_part_is_what_a_search_of_all_slices_finds(steps: list[Any]) -> None:
    ledger = after(steps)
    unfinished = [slice for slice in ledger.slices.values() if not slice.finished]
    chains = {
        slice.chain_id
        for slice in unfinished
        if (slice.admission.cluster_queue == "cq1" if slice.admission else slice.queue == "lq2")
    }
    members = [slice for slice in unfinished if slice.chain_id in chains and (slice.admission or slice.queue == "lq2")]
    expected, part = (
        Part.of(members),
        ledger.part(["cq1"], ledger.waiting(("team", "lq2")), stopped=["cq1"], stopped_in=[]),
    )
    assert by_key(part.waiting) == by_key(expected.waiting)
    assert by_key(part.leaving) == by_key(expected.leaving)
    is_stopped = [each for each in expected.to_stop if not each.active or each.admission.cluster_queue == "cq1"]  # type: ignore[union-attr]
    assert by_key(part.to_stop) == by_key(is_stopped)
    assert by_key(part.preempted) == by_key(
        each for each in members if Condition.PREEMPTED in each.conditions or each.reclaimed is not None
    )
    assert by_key(part.shrinking) == by_key(expected.shrinking)
    assert not {slice.key for slice in part.shrinking} & {slice.key for slice in part.leaving}
    for chain in chains:
        assert part.holdings.holder(chain) is expected.holdings.holder(chain)
        assert part.holdings.used_by(chain) == expected.holdings.used_by(chain)
    assert by_key(part.holdings.holders_in("cq1")) == by_key(expected.holdings.holders_in("cq1"))
    all_waiting = [slice for queue in ledger.waiting_in() for slice in ledger.waiting(queue)]
    everything = ledger.part(None, all_waiting)
    assert by_key(everything.waiting) == by_key(Part.of(unfinished).waiting)
    assert by_key(everything.leaving) == by_key(Part.of(unfinished).leaving)


@given(steps=steps, assumed=slices)
def test_a_copy_is_changed_apart(steps: list[Any], assumed: Slice) -> None:
    ledger = after(steps)
    before = contents(ledger.holdings)
    copy = ledger.holdings.copy()
    copy.settle(assumed.chain_id, [assumed])
    assert copy.holder(assumed.chain_id) is holders([assumed]).get(assumed.chain_id)
    assert contents(ledger.holdings) == before


def contents(holdings: Holdings) -> tuple[Any, ...]:
    going = by_key(holdings.leaving), by_key(holdings.shrinking)
    return amounts(holdings.totals), *going, by_key(holdings.holders_in("cq1"))


def test_a_slice_without_a_place_counts_where_its_chain_is() -> None:
    """Beside a Kueue a replacement has quota before it gets its cluster."""
    ledger, first = Ledger(), admitted(a_slice("s0"), cluster="east")
    ledger.put(first)
    ledger.put(msgspec.structs.replace(first, finished=True))
    second = admitted(replacement(first, "s1", 3), cluster=None)
    ledger.put(second)
    assert +ledger.load == {"east": 1}
    assert ledger.granted["east"] == second.usage
    ledger.put(msgspec.structs.replace(second, cluster=""))
    assert +ledger.load == {}
