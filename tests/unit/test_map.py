"""The map at the door is true: what documents and package docstrings name is there."""

import ast
import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

from slicebus.slices.jobs.registry import ENTRY_POINTS

TOP = Path(__file__).parents[2]
ROOTS = ("proto", "core", "agent", "manager", "sandbox", "cli")
FUNCTION = re.compile(r"`(slicebus[\w.]+):([\w.]+)`")
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"[a-z_]+(\.[a-z_]+)*")
FOLDER = re.compile(r"`((?:proto|core|agent|manager|sandbox|cli|tests|charts|docs|bench|docker)/[\w./-]+)`")
MAPS = ("docs/architecture.md", "CONTRIBUTING.md")
PACKAGES = sorted(path.parent for root in ROOTS for path in (TOP / root).rglob("__init__.py"))


@pytest.mark.parametrize("name", MAPS)
def test_a_map_names_functions_and_files_that_exist(name: str) -> None:
    text = (TOP / name).read_text()
    for module, path in FUNCTION.findall(text):
        assert callable(reduce(getattr, path.split("."), import_module(module))), f"{module}:{path}"
    assert not [path for path in FOLDER.findall(text) if not (TOP / path).exists()]


def test_the_architecture_tells_the_trip_in_fifteen_steps() -> None:
    text = (TOP / "docs" / "architecture.md").read_text()
    steps = re.findall(r"^\| (\d+) \| (?:agent|manager) \|.*" + FUNCTION.pattern, text, re.MULTILINE)
    assert [int(number) for number, *_ in steps] == list(range(1, 16))


def defined_in(path: Path) -> set[str]:
    """The names at the top of a module."""
    body = ast.parse(path.read_text()).body
    functions = (node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef))
    return {*functions, *(alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names)}


def exists(name: str, package: Path) -> bool:
    """Whether a name is that of a module or package in a package or beside it, of one anywhere by its full path, or of
    a function in one of the package's modules."""
    roots = [TOP / root for root in ROOTS] if name.startswith("slicebus") else [package, package.parent]
    parts = name.split(".")
    found = [root.joinpath(*parts) for root in roots]
    if any(path.is_dir() or path.with_suffix(".py").is_file() for path in found):
        return True
    return any(name in defined_in(path) for path in package.glob("*.py"))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(TOP)))
def test_a_package_says_what_it_has(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    assert text, "a package says what it is for"
    named = [code for code in CODE.findall(text) if NAME.fullmatch(code)]
    assert not [name for name in named if name != ENTRY_POINTS and not exists(name, package)]


def test_a_term_of_the_glossary_has_one_line_and_its_place() -> None:
    rows = re.findall(r"^\| \*\*([^*]+)\*\*[^|]*\| (.+) \|$", (TOP / "docs" / "glossary.md").read_text(), re.MULTILINE)
    terms = [term.lower() for term, _ in rows]
    assert terms == sorted(terms)
    assert len(terms) > 40
