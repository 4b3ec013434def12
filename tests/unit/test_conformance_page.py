"""Kueue's conformance list: each of its points is held by a test of tests/e2e that runs on real servers."""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "e2e"
PAGE = TESTS.parents[1] / "docs" / "conformance.md"


def points() -> list[tuple[str, str, str]]:
    """Number, file and test of every row of the page's table."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    tests = [(number, held.strip("`").partition("::")) for number, _, held in rows if number.isdigit()]
    return [(number, file, test) for number, (file, _, test) in tests]


def marks_of(file: str, test: str) -> str:
    """The decorators of a test and the marks of its file, as they are written, with what their names stand for."""
    body = ast.parse((TESTS / file).read_text()).body
    [found] = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test]
    assigned = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in body if isinstance(node, ast.Assign)}
    names = [node.id for each in found.decorator_list for node in ast.walk(each) if isinstance(node, ast.Name)]
    marks = [*map(ast.unparse, found.decorator_list), *(assigned.get(name, "") for name in ("pytestmark", *names))]
    return " ".join(marks)


@pytest.mark.parametrize(("number", "file", "test"), points())
def test_a_point_is_held_by_a_test_on_real_servers(number: str, file: str, test: str) -> None:
    assert "mark.real" in marks_of(file, test) or "mark.controlplane" in marks_of(file, test)


def test_the_list_is_whole() -> None:
    assert {int(number) for number, _, _ in points()} == set(range(1, 18))
