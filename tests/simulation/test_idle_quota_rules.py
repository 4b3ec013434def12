"""A cycle that gives idle quota away too early, or all of it, or lets somebody wait for it, is noticed."""

import msgspec
import pytest

from simulation import idle_quota_rules
from simulation.mutations import mutated
from simulation.violations import Violation
from slicebus.slices.admission import cycle as admission
from slicebus.slices.admission.cycle import Grow, Wait
from slicebus.slices.admission.snapshot import IdleGrowth, Snapshot
from unit.slices.admission.test_idle_quota import SINCE, noted, willing
from unit.slices.admission.test_opportunistic import grown
from unit.slices.admission.test_preemption import cohort, holding, queue, waiting, world

HEADROOM = 0.05


def giving(snapshot: Snapshot) -> Snapshot:
    """The same world in a cycle that gives idle quota away."""
    return msgspec.structs.replace(snapshot, idle_growth=IdleGrowth(SINCE, HEADROOM))


ALONE = giving(world(willing("a", 2, 20), queues=[queue()]))
IN_A_COHORT = giving(
    world(
        willing("a", 2, 20),
        holding("b", 8, queue="other"),
        queues=[queue(cohort="c"), queue("other", cohort="c")],
        cohorts=[cohort("c", cores=4)],
    )
)
BESIDE_A_NEWCOMER = giving(world(willing("a", 2, 20), waiting("w", 3), queues=[queue()]))
IN_THE_WAY = world(grown(holding("a", 10), main=4), waiting("w", 3), queues=[queue()])
NOT_IN_THE_WAY = world(grown(holding("a", 10), main=4), waiting("w", 7), queues=[queue()])


def asking(pods: int) -> Snapshot:
    """A job that was given more asks for that, beside one that waits for so many pods."""
    holder = willing("a", 2, 20)
    [grow] = [each for each in admission.cycle(ALONE) if isinstance(each, Grow)]
    return world(*noted(holder, grow), waiting("w", pods), queues=[queue()])


@pytest.mark.parametrize(
    "snapshot",
    [ALONE, IN_A_COHORT, BESIDE_A_NEWCOMER, IN_THE_WAY, NOT_IN_THE_WAY, asking(5), asking(1)],
    ids=["alone", "in a cohort", "beside a newcomer", "gives pods", "has too few", "asks", "asks for less"],
)
def test_what_a_cycle_decides_breaks_no_rule(snapshot: Snapshot) -> None:
    idle_quota_rules.check(snapshot, admission.cycle(snapshot))


@pytest.mark.parametrize(("snapshot", "most"), [(ALONE, 10), (IN_A_COHORT, 16)], ids=["alone", "in a cohort"])
def test_the_last_pod_of_idle_quota_is_noticed(snapshot: Snapshot, most: int) -> None:
    [grow] = [each for each in admission.cycle(snapshot) if isinstance(each, Grow)]
    assert grow.to["main"] < most
    idle_quota_rules.check(snapshot, [msgspec.structs.replace(grow, to={"main": most - 1})])
    with pytest.raises(Violation, match="nothing is left"):
        idle_quota_rules.check(snapshot, [msgspec.structs.replace(grow, to={"main": most})])


def test_a_newcomer_that_waits_for_who_grows_is_noticed() -> None:
    """As if the job had got its quota first."""
    [grow] = [each for each in admission.cycle(ALONE) if isinstance(each, Grow)]
    waits = Wait(key=waiting("w", 3).key, reason="Pending", message="waits")
    with pytest.raises(Violation, match=r"\['team/w'\] are decided otherwise because others grow"):
        idle_quota_rules.check(BESIDE_A_NEWCOMER, [waits, grow])


@pytest.mark.parametrize("pods", [5, 1])
def test_a_growth_that_is_asked_for_like_anything_else_is_noticed(pods: int) -> None:
    """Also where whoever waits gets what it needs."""
    snapshot = asking(pods)
    with mutated("growth last"):
        decided = admission.cycle(snapshot)
        with pytest.raises(Violation, match="are decided otherwise because others grow"):
            idle_quota_rules.check(snapshot, decided)


@pytest.mark.parametrize("snapshot", [IN_THE_WAY, NOT_IN_THE_WAY], ids=["some", "nobody"])
def test_who_would_wait_because_of_pods_that_nobody_asked_for_is_noticed(snapshot: Snapshot) -> None:
    """Whoever waits."""
    with mutated("opportunistic pods"), pytest.raises(Violation, match=r"a newcomer would wait for \{'main': 6\} of a"):
        idle_quota_rules.check(snapshot, [])
