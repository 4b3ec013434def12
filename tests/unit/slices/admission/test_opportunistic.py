"""Nobody waits because of pods that nobody asked for: they are free for every assessment, and go first."""

import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, Decision, Evict, Shrink, Wait, cycle
from slicebus.slices.admission.growth_limit import GrowthLimit
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.api.kueue import WAITING_FOR_PREEMPTED, PreemptionReason
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.workload.reclaimed import Reclaimed
from slicebus.slices.workload.workload import FlavorName, Slice
from unit.slices.admission.test_preemption import (
    BORROW,
    OWN,
    RECLAIM,
    RECLAIM_LOWER,
    admitted_names,
    cohort,
    holding,
    name_of,
    queue,
    waiting,
    world,
)
from unit.slices.admission.test_preemption import gone as evicted_and_gone
from unit.slices.admission.test_shrinks import EVICTED, Taken, elastic, ended, giving, reasons, taken
from unit.slices.admission.test_while_pods_go import former_size, gone, run, written
from unit.slices.builders import a_pod_set, a_queue, a_slice, admitted, with_counts

NEVER = queue()
UNASKED = PreemptionReason.OPPORTUNISTIC


def grown(slice: Slice, **asked: int) -> Slice:
    """A job that holds more than somebody asked for."""
    held = slice.held_counts
    note = Reclaimed(
        id="n",
        before=held,
        to=asked,
        at="2026-01-01T00:00:00Z",
        beneficiaries=(),
        reason=UNASKED,
        message="",
        done=True,
        asked=held | asked,
    )
    return msgspec.structs.replace(slice, reclaimed=note)


def decided(*slices: Slice, **more: Any) -> list[Decision]:
    return cycle(world(*slices, **({"queues": [NEVER]} | more)))


class TestWhoeverWaits:
    @pytest.mark.parametrize("priority", [-1, 0, 9], ids=["lower", "the same", "higher"])
    def test_takes_them_whatever_the_policy_says(self, priority: int) -> None:
        found = decided(grown(holding("a", 10, priority), main=4), waiting("w", 3))
        assert taken(found) == {"a": 7}
        assert reasons(found) == {"a": UNASKED}
        [wait] = [each for each in found if isinstance(each, Wait)]
        assert (wait.reason, wait.would_admit) == (WAITING_FOR_PREEMPTED, "fewer pods of team/a")

    def test_takes_nothing_that_somebody_asked_for(self) -> None:
        assert taken(decided(grown(holding("a", 10), main=4), waiting("w", 7))) == {}

    def test_takes_none_while_there_is_room(self) -> None:
        found = decided(grown(holding("a", 7), main=4), waiting("w", 3))
        assert (taken(found), admitted_names(found)) == ({}, {"w"})

    def test_takes_whole_replicas(self) -> None:
        held = msgspec.structs.replace(grown(holding("a", 8), main=4), replica_sizes={"main": 2})
        assert taken(decided(held, waiting("w", 3))) == {"a": 6}

    @pytest.mark.parametrize(("pods", "expected"), [(8, {"a": 6}), (7, {"a": 4})])
    def test_leaves_a_replica_that_somebody_asked_for_whole(self, pods: int, expected: Taken) -> None:
        held = msgspec.structs.replace(grown(holding("a", pods), main=3), replica_sizes={"main": 2})
        assert taken(decided(held, waiting("w", 3), queues=[queue(quota=str(pods + 1))])) == expected

    def test_takes_the_lowest_priority_first_and_no_more_than_it_needs(self) -> None:
        held = [grown(holding("high", 5, 2), main=1), grown(holding("low", 5, 1), main=4)]
        assert taken(decided(*held, waiting("w", 1))) == {"low": 4}
        assert taken(decided(*held, waiting("w", 3))) == {"high": 3, "low": 4}
        assert taken(decided(*held, waiting("w", 4))) == {"high": 2, "low": 4}

    def test_spares_what_the_last_one_makes_needless(self) -> None:
        held = [
            grown(holding("low", 2, 1), main=1),
            grown(msgspec.structs.replace(holding("high", 8, 2), replica_sizes={"main": 4}), main=4),
        ]
        assert taken(decided(*held, waiting("w", 4))) == {"high": 4}

    def test_takes_them_before_any_other_deed(self) -> None:
        own = queue(**OWN)
        held = [grown(holding("a", 5, 9), main=2), elastic("b", 5, 1)]
        assert taken(decided(*held, waiting("w", 3, 1), queues=[own])) == {"a": 2}
        found = decided(*held, waiting("w", 5, 1), queues=[own])
        assert taken(found) == {"a": 2, "b": 3}

    def test_takes_them_too_where_it_evicts(self) -> None:
        held = [grown(holding("a", 5, 9), main=2), holding("b", 5)]
        assert taken(decided(*held, waiting("w", 6, 1), queues=[queue(**OWN)])) == {"a": 4, "b": EVICTED}

    def test_may_evict_the_job_itself(self) -> None:
        assert taken(decided(grown(holding("a", 9), main=4), waiting("w", 7, 1), queues=[queue(**OWN)])) == {
            "a": EVICTED
        }

    def test_shrinks_the_job_below_what_it_asked_for(self) -> None:
        held = giving(grown(holding("a", 10), main=4), main=1)
        [shrink] = [
            each for each in decided(held, waiting("w", 8, 1), queues=[queue(**OWN)]) if isinstance(each, Shrink)
        ]
        assert shrink.to == {"main": 2}
        assert shrink.preemption != UNASKED
        after = written(held, [shrink])
        assert after.reclaimed is not None
        assert after.reclaimed.asked == {}

    def test_takes_them_in_its_cohort(self) -> None:
        queues = [queue("cq", "5", cohort="org"), queue("other", "5", cohort="org")]
        held = grown(holding("a", 10, 9, queue="other"), main=4)
        for quota, expected in ((5, {"a": 5}), (6, {"a": 4}), (7, {})):
            assert taken(decided(held, waiting("w", quota), queues=queues, cohorts=[cohort("org")])) == expected

    def test_takes_them_for_room_on_a_cluster(self) -> None:
        room = {FlavorName("default"): {"cpu": 10_000}}
        cluster = Cluster(name="worker", accepted=True, cordoned=False, connected=True, capacity=room)
        found = decided(
            grown(holding("a", 9), main=4), waiting("w", 3), queues=[queue(quota="100")], clusters=[cluster]
        )
        assert taken(found) == {"a": 7}

    @pytest.mark.parametrize(("room", "expected"), [(2, {}), (1, {"a": 4})])
    def test_waits_for_nobody_in_flavors_that_have_room(self, room: int, expected: Taken) -> None:
        """Its queue would preempt in the first flavor. As there are such pods, it turns to the next one."""
        quotas = {"x": {"cpu": "4"}, "y": {"cpu": str(5 + room)}}
        rules = {"whenCanPreempt": "MayStopSearch"}
        stops = a_queue("cq", quotas, preemption=OWN, flavorFungibility=rules)
        low = admitted(a_slice("low", 4, job_uid="low", priority=-1), flavor="x")
        high = admitted(a_slice("a", 5, job_uid="a", priority=9), flavor="y")
        found = decided(low, grown(high, main=2), waiting("w", 2), queues=[stops])
        assert taken(found) == expected
        assert admitted_names(found) == (set() if expected else {"w"})

    def test_a_strict_queue_lets_nobody_pass_meanwhile(self) -> None:
        strict = msgspec.structs.replace(NEVER, strict_fifo=True)
        held = grown(holding("a", 9), main=4)
        later = waiting("x", 1, created="2027-01-01T00:00:00Z")
        assert admitted_names(decided(held, waiting("w", 3), later, queues=[strict])) == set()
        assert admitted_names(decided(held, waiting("w", 3), later)) == {"x"}

    def test_no_limit_of_growth_counts_them(self) -> None:
        limit = GrowthLimit(most=0, within_s=600.0, since="2025")
        growing = holding("g", 2)
        more = msgspec.structs.replace(waiting("g2", 5, job_uid="job-g"), replaces=growing.key, chain=growing.chain)
        made = world(grown(holding("a", 8), main=2), growing, more, queues=[NEVER])
        assert taken(cycle(msgspec.structs.replace(made, growth_limit=limit))) == {"a": 5}

    def test_a_job_that_waits_for_more_asks_for_all_that_it_has(self) -> None:
        held = grown(holding("a", 10), main=4)
        more = msgspec.structs.replace(waiting("a2", 12, job_uid="job-a"), replaces=held.key, chain=held.chain)
        assert taken(decided(held, more, waiting("w", 3))) == {}

    def test_leaves_those_of_a_queue_that_is_gone(self) -> None:
        held = grown(holding("a", 9, queue="gone"), main=4)
        assert admitted_names(decided(held, waiting("w", 3))) == {"w"}

    def test_what_was_taken_back_comes_back_before_them(self) -> None:
        """A part of it too: a slice that waits for what it had lost may get that."""
        _, (low, _) = run(elastic("low", 6, 1), waiting("w", 8, 1), queues=[queue(quota="10", **OWN)])
        low = gone(low)
        again = former_size(low)
        assert low.held_counts == {"main": 2}
        found = decided(low, again, holding("x", 2), grown(holding("a", 6, 9), main=3), queues=[queue()])
        assert taken(found) == {"a": 3}
        found = decided(low, again, holding("x", 2), grown(holding("a", 3, 9), main=3), queues=[queue()])
        assert [each.admission.counts for each in found if isinstance(each, Admit)] == [{"main": 5}]


class TestUntilTheyAreGone:
    def test_nobody_else_gets_them_and_no_more_are_taken(self) -> None:
        first, slices = run(grown(holding("a", 10), main=4), waiting("w", 3), queues=[NEVER])
        assert taken(first) == {"a": 7}
        assert slices[0].shrinks_to == {"main": 7}
        assert slices[0].asked_counts == {"main": 4}
        second = decided(*slices, waiting("x", 3, created="2025-01-01T00:00:00Z"))
        assert taken(second) == {"a": 4}, "another one takes others"
        assert taken(decided(*slices)) == {}
        assert admitted_names(decided(gone(slices[0]), slices[1])) == {"w"}

    def test_the_note_keeps_what_was_asked_for(self) -> None:
        _, (a, _) = run(grown(holding("a", 10), main=4), waiting("w", 3), queues=[NEVER])
        assert a.reclaimed is not None
        assert (a.reclaimed.asked, a.reclaimed.to) == ({"main": 4}, {"main": 7})
        assert gone(a).asked_counts == {"main": 4}
        assert [each.opportunistic for each in a.reclaimed.beneficiaries] == [True]
        assert not [*a.reclaimed.preemptors]


class Fleet(msgspec.Struct, frozen=True):
    """A world, and how pods go in it."""

    slices: tuple[Slice, ...]
    more: dict[str, Any]

    def outcome(self) -> tuple[set[str], Taken]:
        """Who has quota in the end, and what was taken that somebody had asked for. Pods go at once."""
        slices, lost = list(self.slices), Taken()
        got: set[str] = set()
        for _ in range(12):
            decisions = cycle(self._world(slices))
            got |= admitted_names(decisions)
            lost |= {
                name: left
                for name, left in taken(each for each in decisions if not _is_unasked(each)).items()
                if name not in lost or lost[name] is not None
            }
            if not any(isinstance(each, Admit | Evict | Shrink) for each in decisions):
                return got, lost
            slices = [_without_pods(written(slice, decisions)) for slice in slices]
        raise AssertionError("it does not come to rest")

    def _world(self, slices: Iterable[Slice]) -> Snapshot:
        sharing = self.more.get("sharing", FairSharing.OFF)
        made = world(*slices, **{name: value for name, value in self.more.items() if name != "sharing"})
        return msgspec.structs.replace(made, fair_sharing=sharing)


def _is_unasked(decision: Decision) -> bool:
    return isinstance(decision, Shrink) and decision.preemption == UNASKED


def _without_pods(slice: Slice) -> Slice:
    if slice.shrinks_to is not None:
        return gone(slice)
    if slice.evicting:
        return msgspec.structs.replace(evicted_and_gone(slice), active=False)
    return slice


def _drawn(seed: int) -> tuple[Fleet, Fleet]:
    """A fleet with opportunistic pods, and the same one without them."""
    dice = random.Random(seed)
    policy = dice.choice([{}, OWN, RECLAIM, RECLAIM_LOWER, BORROW, OWN | RECLAIM])
    names = ["cq", "other"][: dice.choice([1, 2])]
    quota = 10
    queues = [queue(name, str(quota), cohort="org" if len(names) > 1 else "", **policy) for name in names]
    with_them, without_them, left = list[Slice](), list[Slice](), quota * len(names)
    for number in range(dice.randint(2, 6)):
        asked, step = dice.randint(1, 5), dice.choice([1, 1, 2])
        size = asked * step
        if size > left:
            break
        more = min(dice.randint(0, 4), (left - size) // step) * step
        left -= size + more
        made = holding(
            f"h{number}",
            size + more,
            dice.randint(0, 2),
            queue=dice.choice(names),
            since=number,
            created=f"2026-01-01T00:{number:02}:00Z",
            replica_sizes={"main": step} if step > 1 else {},
        )
        if dice.random() < 0.4:
            made = giving(made, main=dice.randint(0, asked) * step)
        with_them.append(grown(made, main=size) if more else made)
        without_them.append(msgspec.structs.replace(with_counts(made, main=size), reclaimed=None))
    for number in range(dice.randint(1, 3)):
        each = waiting(
            f"w{number}",
            dice.randint(1, 9),
            dice.randint(0, 3),
            queue=dice.choice(names),
            created=f"2026-01-01T01:{number:02}:00Z",
        )
        with_them.append(each)
        without_them.append(each)
    sharing = FairSharing.BOTH if len(names) > 1 and dice.random() < 0.3 else FairSharing.OFF
    more_of: dict[str, Any] = {"queues": queues, "sharing": sharing}
    if len(names) > 1:
        more_of["cohorts"] = [cohort("org")]
    return Fleet(tuple(with_them), more_of), Fleet(tuple(without_them), more_of)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_everybody_gets_what_they_would_get_without_them(first: int) -> None:
    differing = [seed for seed in range(first, first + 50) if (pair := _drawn(seed))[0].outcome() != pair[1].outcome()]
    assert differing == []


def test_the_drawn_fleets_say_something() -> None:
    """In many of them such pods go, and in many somebody else's go too."""
    unasked = others = 0
    for seed in range(100):
        fleet, _ = _drawn(seed)
        decisions = cycle(fleet._world(fleet.slices))
        unasked += any(map(_is_unasked, decisions))
        others += any(isinstance(each, Evict | Shrink) and not _is_unasked(each) for each in decisions)
    assert (unasked > 20, others > 5) == (True, True), (unasked, others)


def test_a_job_that_has_ended_gives_all_that_runs_on() -> None:
    """No worker makes it smaller any more: who waits for some of its pods would wait for ever."""
    found = decided(grown(ended(holding("a", 10)), main=4), waiting("w", 3))
    assert (taken(found), reasons(found)) == ({"a": EVICTED}, {"a": UNASKED})
    assert [each.would_admit for each in found if isinstance(each, Wait)] == ["the end of team/a"]


def test_two_pod_sets_give_what_is_needed_of_both() -> None:
    held = holding("a", 0, pod_sets=(a_pod_set("one", 4), a_pod_set("two", 4)))
    found = decided(grown(held, one=2, two=1), waiting("w", 6))
    assert [each.to for each in found if isinstance(each, Shrink)] == [{"one": 2, "two": 2}]
    assert name_of(found[0].key) == "a"
