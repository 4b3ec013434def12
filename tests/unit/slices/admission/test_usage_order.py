"""Who comes first in a ClusterQueue that goes by what its LocalQueues have used."""

from collections.abc import Sequence

import msgspec
import pytest

from slicebus.slices.admission.cycle import Admit, cycle
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.admission.usage_order import LocalUses, by_usage
from slicebus.slices.quota.consumption import LocalUse, ResourceWeight, UsageRule
from slicebus.slices.quota.quota import LocalQueue
from slicebus.slices.workload.workload import Slice
from unit.slices.admission.test_preemption import name_of, queue, waiting
from unit.slices.builders import a_pod_set, snapshot

AT_ONCE = UsageRule(half_life_s=0)
"""What somebody gets counts whole."""


def of(local_queue: str, name: str, cores: int = 1, priority: int = 0) -> Slice:
    return msgspec.structs.replace(waiting(name, cores, priority), queue=local_queue)


def uses(*, rule: UsageRule = AT_ONCE, **used: float | tuple[float, float]) -> LocalUses:
    """What each LocalQueue has used, perhaps with its weight."""
    found = {name: use if isinstance(use, tuple) else (use, 1.0) for name, use in used.items()}
    return LocalUses(rule, {("team", name): LocalUse(*use) for name, use in found.items()})


def names(slices: Sequence[Slice]) -> str:
    return "".join(slice.name for slice in slices)


def test_who_used_less_comes_first_with_its_own_in_their_order() -> None:
    slices = [of("l", "a"), of("m", "b"), of("l", "c"), of("m", "d")]
    assert names(by_usage(slices, uses(l=10.0, m=0.0))) == "bdac"


def test_they_take_turns_with_what_each_gets() -> None:
    slices = [*(of("l", name, 2) for name in "abc"), *(of("m", name) for name in "uvwx")]
    assert names(by_usage(slices, uses(l=0.0, m=0.0))) == "auvbwxc"


def test_use_counts_by_the_weight() -> None:
    slices = [of("l", "a"), of("m", "b")]
    assert names(by_usage(slices, uses(l=4.0, m=3.0))) == "ba"
    assert names(by_usage(slices, uses(l=(4.0, 2.0), m=3.0))) == "ab"
    assert names(by_usage(slices, uses(l=(0.0, 0.0), m=30.0))) == "ba", "a weight of 0 comes last"


def test_use_comes_before_priority_and_that_before_age() -> None:
    slices = [of("l", "a", priority=9), of("m", "b"), of("n", "c", priority=5)]
    assert names(by_usage(slices, uses(l=1.0, m=0.0, n=0.0))) == "cba"


def test_a_resource_counts_by_its_weight() -> None:
    rule = UsageRule(half_life_s=0, weights=(ResourceWeight("cpu", 0.0), ResourceWeight("gpu", 2.0)))
    gpu = msgspec.structs.replace(of("l", "a"), pod_sets=(a_pod_set(requests={"gpu": 1}),))
    slices = [gpu, of("l", "b"), of("m", "c", 50), of("m", "d", 50)]
    assert names(by_usage(slices, uses(rule=rule, l=0.0, m=0.0))) == "acdb"


def competing(*slices: Slice, scope: str, used: LocalUses) -> Snapshot:
    """Two LocalQueues of one ClusterQueue with one core."""
    one = msgspec.structs.replace(queue(quota="1"), usage_based=scope == "usage")
    locals = [LocalQueue(namespace="team", name=name, cluster_queue="cq", held=False) for name in ("l", "m")]
    return msgspec.structs.replace(snapshot(*slices, queues=[one], locals=locals), local_uses=used)


@pytest.mark.parametrize(("scope", "admitted"), [("usage", ["b"]), ("", ["a"])])
def test_who_used_less_comes_first_where_the_queue_goes_by_that(scope: str, admitted: list[str]) -> None:
    found = cycle(competing(of("l", "a"), of("m", "b"), scope=scope, used=uses(l=5.0, m=1.0)))
    assert [name_of(each.key) for each in found if isinstance(each, Admit)] == admitted
