"""Label selectors as text."""

from typing import Any

import pytest

from slicebus.slices.api import selectors
from slicebus.slices.api.selectors import parse_selector, problem_of, readable, selects

LABELS = {"region": "eu", "tier": "3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        ("region=eu", True),
        ("region==us", False),
        ("region!=us, tier=3", True),
        ("zone!=a", True),
        ("region in (us, eu)", True),
        ("region notin (us,eu)", False),
        ("zone notin (a)", True),
        ("region,!zone", True),
        ("! region", False),
        ("tier>2,tier<4", True),
        ("tier<3", False),
        ("region>2", False),
    ],
)
def test_a_selector_matches_as_kubernetes_does(text: str, expected: bool) -> None:
    assert selects(parse_selector(text), LABELS) is expected


@pytest.mark.parametrize("text", ["region=eu=us", "in (a)", "=a", "tier>x", "a in b", "a;b"])
def test_an_invalid_selector_raises(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse requirement"):
        parse_selector(text)


def test_a_selector_has_a_length() -> None:
    longest = ",".join(["!absent"] * 1024) + "!"
    assert len(parse_selector(longest[:-1])["matchExpressions"]) == 1024
    with pytest.raises(ValueError, match="it has 8200 characters, and 8192 are the most"):
        parse_selector(f"{longest[:-1]},!another"[:8200].ljust(8200, "a"))


TAKEN: dict[str, Any] = {
    "everything": {},
    "nothing in it": {"matchLabels": None, "matchExpressions": None},
    "an expression with nothing in it": {"matchExpressions": [{"key": "region", "operator": "Exists", "values": None}]},
    "labels": {"matchLabels": {"region": "eu"}},
    "expressions": {"matchExpressions": [{"key": "region", "operator": "In", "values": ["eu"]}]},
    "presence": {"matchExpressions": [{"key": "region", "operator": "Exists"}]},
}


@pytest.mark.parametrize("selector", TAKEN.values(), ids=TAKEN.keys())
def test_a_selector_of_an_object_counts_as_it_is(selector: Any) -> None:
    assert problem_of(selector) == ""
    assert selects(readable(selector), LABELS)


WRONG: dict[str, tuple[Any, str]] = {
    "a field that is none": ({"matchLabel": {"region": "eu"}}, "unknown field `matchLabel`"),
    "an operator that is none": ({"matchExpressions": [{"key": "region", "operator": "in"}]}, "operator"),
    "an operator of nodes": ({"matchExpressions": [{"key": "tier", "operator": "Gt", "values": ["1"]}]}, "operator"),
    "no operator": ({"matchExpressions": [{"key": "region"}]}, "missing required field `operator`"),
    "no key": ({"matchExpressions": [{"operator": "Exists"}]}, "missing required field `key`"),
    "no list": ({"matchExpressions": {"key": "region"}}, "Expected `array`"),
    "no labels": ({"matchLabels": ["region"]}, "Expected `object`"),
    "a label that is no text": ({"matchLabels": {"region": True}}, "Expected `str`"),
    "no selector": (["region"], "Expected `object`"),
}


@pytest.mark.parametrize(("selector", "problem"), WRONG.values(), ids=WRONG.keys())
def test_one_that_is_no_selector_selects_nothing(selector: Any, problem: str) -> None:
    assert problem in problem_of(selector)
    assert not selects(readable(selector), LABELS)
    assert not selects(readable(selector), {})


@pytest.mark.timeout(60)
def test_many_commas_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cycle reads the selector of each job that waits, several times. A text of this length takes a second, and took
    ten minutes when the rest of it was searched for each comma."""
    monkeypatch.setattr(selectors, "MOST_CHARACTERS", 1_000_000)
    assert parse_selector("," * 1_000_000) == {"matchExpressions": []}
