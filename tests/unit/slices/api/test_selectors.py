"""Label selectors as text."""

import pytest

from slicebus.slices.api.selectors import parse_selector, selects

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
