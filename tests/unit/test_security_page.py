"""docs/security.md names tests that exist, and every threat of its table has one or says why not."""

import ast
import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "security.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(r"^\| (?!tries to \||---)(.+?) \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)


def named_in(path: Path) -> set[str]:
    """The tests of a module."""
    body = ast.parse(path.read_text()).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_that_the_page_names_exists() -> None:
    named = TEST.findall(PAGE)
    assert len(named) > 10
    assert not [f"{path}::{name}" for path, name in named if not (TOP / path).exists()]
    assert not [f"{path}::{name}" for path, name in named if name not in named_in(TOP / path)]


def test_what_no_test_shows_says_what_bounds_it() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) > 10
    unshown = {threat: answer for threat, answer, shown in rows if not TEST.search(shown) and shown != "the same"}
    assert all("bounded by" in answer for answer in unshown.values()), unshown


def test_every_kind_of_attacker_has_a_table() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    found = " ".join(headings).lower()
    for attacker in ("agent", "worker", "manager", "tenant", "network", "poisoned", "exhaustion"):
        assert attacker in found
