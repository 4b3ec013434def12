"""Turns by fair sharing pass, and a ring of other preemptions does not."""

from simulation.turns import Turns


def test_a_ring_without_fair_sharing_is_counted() -> None:
    turns = Turns()
    assert [turns.lose(chain, by_share=False) for chain in "ababa"] == [1, 1, 2, 2, 3]


def test_a_ring_with_a_step_by_fair_sharing_is_not() -> None:
    """As seed 102793 without its `NamespaceGoes`: g reclaims from h, a takes that, and h takes it back by share."""
    turns = Turns()
    for _ in range(100):
        assert turns.lose("h", by_share=False) == 1
        assert turns.lose("g", by_share=False) == 1
        assert turns.lose("a", by_share=True) == 0


def test_a_ring_that_goes_on_without_fair_sharing_is_counted_from_then_on() -> None:
    turns = Turns()
    turns.lose("a", by_share=False)
    turns.lose("b", by_share=True)
    assert [turns.lose("a", by_share=False) for _ in range(3)] == [1, 2, 3]
