"""The ledger finds the part of the slices that a decision is about, whatever has happened to them."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.ledger import Ledger
from slicebus.slices.workload import Slice, oldest_first
from unit.slices.builders import a_slice, admitted, grants, loads, replacement

slices = st.builds(
    lambda number, job, queue, state, created, replaces: made(
        number, job, queue, state, created=created, replaces=replaces
    ),
    st.integers(0, 5),
    st.sampled_from("jk"),
    st.sampled_from(["lq1", "lq2"]),
    st.sampled_from(["waits", "cq1", "cq2", "finished", "was admitted and finished"]),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]),
    st.sampled_from([None, "team/s0", "team/s1"]),
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


@given(steps=st.lists(st.one_of(slices, st.integers(0, 5)), max_size=20))
def test_a_part_is_what_a_search_of_all_slices_finds(steps: list[Any]) -> None:
    ledger = Ledger()
    for step in steps:
        if isinstance(step, Slice):
            ledger.put(step)
        else:
            ledger.remove(a_slice(f"s{step}").key)
    everything = ledger.slices.values()
    named = {
        slice.chain_id
        for slice in everything
        if not slice.finished and (slice.admission.cluster_queue == "cq1" if slice.admission else slice.queue == "lq2")
    }
    for chain in {slice.chain_id for slice in everything}:
        assert list(ledger.chain(chain)) == oldest_first(slice for slice in everything if slice.chain_id == chain)
    part = ledger.part(["cq1"], [("team", "lq2")])
    assert sorted(slice.key for slice in part) == sorted(slice.key for slice in everything if slice.chain_id in named)
    assert +ledger.load == loads(everything)
    assert {name: +granted for name, granted in ledger.granted.items() if +granted} == grants(everything)
    waiting = {slice.queue for slice in everything if not slice.finished and slice.admission is None}
    assert set(ledger.waiting_in()) == {("team", queue) for queue in waiting}


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
