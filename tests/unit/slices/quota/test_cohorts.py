"""What queues of a cohort may use of each other's quota."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.quota.cohorts import MOST_LEVELS, Forest, grow, trees
from slicebus.slices.quota.quota import ClusterQueue, Cohort, FlavorQuota, Limits, ResourceGroup
from slicebus.slices.workload.workload import FlavorName

CPU = FlavorName("default"), "cpu"


def groups(nominal: int, borrowing: int | None = None, lending: int | None = None) -> tuple[ResourceGroup, ...]:
    limits = {"cpu": Limits(nominal=nominal, borrowing=borrowing, lending=lending)}
    return (ResourceGroup(resources=("cpu",), flavors=(FlavorQuota(FlavorName("default"), limits),)),)


def queue(name: str, cohort: str, nominal: int, *limits: int | None) -> ClusterQueue:
    return ClusterQueue(
        name=name, strict_fifo=False, held=False, resource_groups=groups(nominal, *limits), cohort=cohort
    )


def cohort(name: str, parent: str = "", nominal: int = 0, *limits: int | None) -> Cohort:
    return Cohort(name=name, parent=parent, resource_groups=groups(nominal, *limits))


def available(forest: Forest, **used: int) -> dict[str, int]:
    for name, value in used.items():
        forest.queues[name].use(CPU, value)
    return {name: node.available(CPU) for name, node in forest.queues.items()}


class TestFlat:
    def test_a_queue_without_a_cohort_has_its_own(self) -> None:
        assert available(grow([queue("a", "", 10), queue("b", "", 5)], []), a=4) == {"a": 6, "b": 5}

    def test_what_one_does_not_use_another_may(self) -> None:
        both = [queue("a", "org", 10), queue("b", "org", 5)]
        assert available(grow(both, []), a=3) == {"a": 12, "b": 12}
        assert available(grow(both, []), a=12) == {"a": 3, "b": 3}

    def test_no_more_than_the_borrowing_limit(self) -> None:
        both = [queue("a", "org", 10, 2), queue("b", "org", 5)]
        assert available(grow(both, [])) == {"a": 12, "b": 15}
        assert available(grow(both, []), a=11) == {"a": 1, "b": 4}
        assert available(grow(both, []), b=5) == {"a": 10, "b": 10}

    def test_no_more_than_the_lending_limit(self) -> None:
        both = [queue("a", "org", 10, None, 4), queue("b", "org", 5)]
        assert available(grow(both, [])) == {"a": 15, "b": 9}
        assert available(grow(both, []), b=9) == {"a": 6, "b": 0}
        assert available(grow(both, []), a=8) == {"a": 7, "b": 7}

    def test_a_cohort_may_have_quota_of_its_own(self) -> None:
        forest = grow([queue("a", "org", 1), queue("b", "org", 1)], [cohort("org", "", 8)])
        assert available(forest, a=4) == {"a": 6, "b": 6}

    def test_quota_that_was_taken_away_is_missing(self) -> None:
        assert available(grow([queue("a", "", 2)], []), a=5) == {"a": -3}


class TestNested:
    def tree(self, *limits: int | None) -> Forest:
        """Queues a and b in a team with 2 of its own; the team and queue c in the org."""
        queues = [queue("a", "team", 4), queue("b", "team", 4), queue("c", "org", 10)]
        return grow(queues, [cohort("team", "org", 2, *limits)])

    def test_quota_is_lent_through_all_levels(self) -> None:
        assert available(self.tree()) == {"a": 20, "b": 20, "c": 20}
        assert available(self.tree(), c=15) == {"a": 5, "b": 5, "c": 5}

    def test_a_cohort_borrows_up_to_its_limit(self) -> None:
        assert available(self.tree(1)) == {"a": 11, "b": 11, "c": 20}
        assert available(self.tree(1), a=7) == {"a": 4, "b": 4, "c": 13}

    def test_a_cohort_lends_up_to_its_limit(self) -> None:
        assert available(self.tree(None, 3)) == {"a": 20, "b": 20, "c": 13}
        assert available(self.tree(None, 3), c=13) == {"a": 7, "b": 7, "c": 0}

    def test_a_cohort_may_be_made_before_its_parent(self) -> None:
        queues = [queue("a", "team", 1), queue("b", "org", 1)]
        parents = [cohort("team", "unit"), cohort("unit", "org")]
        assert available(grow(queues, parents)) == {"a": 2, "b": 2}
        assert available(grow(queues, parents[:1])) == {"a": 1, "b": 1}

    def test_capacity_is_what_is_there_when_nobody_uses_anything(self) -> None:
        forest = self.tree(1)
        available(forest, a=7, c=9)
        assert {name: node.capacity(CPU) for name, node in forest.queues.items()} == {"a": 11, "b": 11, "c": 20}

    def test_a_node_knows_its_way_to_the_root(self) -> None:
        forest = self.tree()
        assert [node.name for node in forest.queues["a"].path()] == ["team", "org"]
        assert forest.queues["a"].root is forest.cohorts["org"]
        alone = grow([queue("a", "", 1)], []).queues["a"]
        assert (list(alone.path()), alone.root) == ([], alone)


class TestCircles:
    @pytest.mark.parametrize(
        ("cohorts", "circle"),
        [
            ([cohort("x", "x")], ("x",)),
            ([cohort("x", "y"), cohort("y", "x")], ("x", "y")),
            ([cohort("x", "y"), cohort("y", "z"), cohort("z", "y")], ("y", "z")),
        ],
        ids=["its own parent", "each other's parent", "above it"],
    )
    def test_cohorts_that_have_no_root_give_nothing(self, cohorts: list[Cohort], circle: tuple[str, ...]) -> None:
        forest = grow([queue("a", "x", 3), queue("b", "", 2)], cohorts)
        assert forest.circles == {"a": circle}
        assert forest.queues["b"].available(CPU) == 2
        found = trees([queue("a", "x", 3), queue("b", "", 2)], cohorts)
        assert (found["queue/a"], found["queue/b"]) == (f"cohort/{circle[0]}", "queue/b")


def test_a_cohort_too_far_below_its_root_lends_nothing() -> None:
    """Whoever may write Cohorts may write a thousand below each other. They ended every manager."""
    levels = 2000
    chain = [cohort("c0", "")] + [cohort(f"c{level}", f"c{level - 1}") for level in range(1, levels)]
    last = MOST_LEVELS - 1
    queues = [queue(name, f"c{level}", 1) for name, level in (("first", 0), ("last", last), ("deep", last + 1))]
    queues.append(queue("deepest", f"c{levels - 1}", 1))
    forest = grow(queues, chain)
    assert forest.too_deep == {"deep", "deepest"}
    assert forest.circles == {}
    assert {name for name in forest.queues if forest.problem(name)} == {"deep", "deepest"}
    assert available(forest, last=1, deepest=1) == {"first": 1, "last": 1, "deep": 1, "deepest": 0}
    assert forest.queues["last"].capacity(CPU) == 2
    assert forest.queues["last"].distance(CPU, 1) == (MOST_LEVELS, False)
    assert set(trees(queues, chain).values()) == {"cohort/c0"}


def test_nodes_with_one_root_are_one_tree() -> None:
    queues = [queue("a", "team", 1), queue("b", "org", 1), queue("c", "other", 1), queue("d", "", 1)]
    assert trees(queues, [cohort("team", "org"), cohort("empty")]) == {
        "queue/a": "cohort/org",
        "queue/b": "cohort/org",
        "queue/c": "cohort/other",
        "queue/d": "queue/d",
        "cohort/team": "cohort/org",
        "cohort/org": "cohort/org",
        "cohort/other": "cohort/other",
        "cohort/empty": "cohort/empty",
    }


limits = st.one_of(st.none(), st.integers(0, 6))
small = st.integers(0, 6)


@given(
    queues=st.lists(
        st.tuples(st.sampled_from(["", "org", "team", "unit"]), small, limits, limits), min_size=1, max_size=5
    ),
    cohorts=st.tuples(*[st.tuples(small, limits, limits)] * 3),
    moves=st.lists(st.tuples(st.integers(0, 4), st.integers(-4, 8)), max_size=12),
)
def test_use_is_the_same_in_whatever_steps_it_came(
    queues: list[tuple[str, int, int | None, int | None]],
    cohorts: tuple[tuple[int, int | None, int | None], ...],
    moves: list[tuple[int, int]],
) -> None:
    """And as long as nobody takes more than is available, every node stays within what it may use."""
    parents = {"org": "", "team": "org", "unit": "team"}
    inner = [cohort(name, parents[name], *spec) for name, spec in zip(parents, cohorts, strict=True)]
    leaves = [queue(f"q{i}", *spec) for i, spec in enumerate(queues)]
    forest, total = grow(leaves, inner), dict.fromkeys((leaf.name for leaf in leaves), 0)
    for number, more in moves:
        name = f"q{number % len(leaves)}"
        node = forest.queues[name]
        more = max(-total[name], min(more, node.available(CPU)))
        node.use(CPU, more)
        total[name] += more
        assert node.available(CPU) <= node.capacity(CPU)
        assert all(other.available(CPU) >= 0 for other in forest.queues.values())
    at_once = grow(leaves, inner)
    for name, value in total.items():
        at_once.queues[name].use(CPU, value)
    for before, after in ((forest.queues, at_once.queues), (forest.cohorts, at_once.cohorts)):
        assert {name: node.used(CPU) for name, node in before.items()} == {
            n: node.used(CPU) for n, node in after.items()
        }
    for root in (node for node in at_once.cohorts.values() if node.parent is None):
        assert root.used(CPU) <= root.quota.get(CPU, 0)
