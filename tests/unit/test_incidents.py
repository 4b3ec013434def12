"""The table of incidents in docs/operations.md: each incident says who tells of it, how soon, and by which test."""

import ast
import re
from pathlib import Path
from typing import NamedTuple

import pytest

TOP = Path(__file__).parents[2]
TEXT = (TOP / "docs/operations.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CELL = re.compile(r"(?<!\\)\|")


class Row(NamedTuple):
    """One way in which an incident is told."""

    incident: str
    who: str
    within: str
    tests: str


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    _, _, below = TEXT.partition(f"\n{heading}\n")
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None, heading
    return [[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines[0].splitlines()[2:]]


ROWS = [Row(*cells) for cells in table("### Who is told, and when")]


def test_every_incident_that_is_listed_is_told_by_somebody() -> None:
    listed = [incident for incident, *_ in table("## When something is down")]
    assert listed
    assert not set(listed) - {row.incident for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.incident or "more of it")
def test_a_row_says_who_within_what_time_and_by_which_test(row: Row) -> None:
    assert row.who
    assert row.within
    assert NAMED.findall(row.tests)


@pytest.mark.parametrize(("path", "name"), sorted({found for row in ROWS for found in NAMED.findall(row.tests)}))
def test_a_test_that_is_named_is_there(path: str, name: str) -> None:
    functions = [
        node.name
        for node in ast.walk(ast.parse((TOP / path).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert name in functions
