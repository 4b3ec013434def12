"""The one place that prints: what it makes of hostile texts, and that nothing else prints."""

import ast
import io
from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import slicebus.cli.screen
from slicebus.cli.screen import SafeConsole, styled
from slicebus.journal.printable import printable, printable_json, printable_lines
from unit.cli.hostile import NAMED, is_harmless

SCREEN = Path(slicebus.cli.screen.__file__)
PRINTING = {"typer.echo", "typer.secho", "typer.confirm", "typer.prompt", "sys.stdout", "sys.stderr"}
PRINTERS = {"print", "Console"}


def printing(path: Path) -> set[str]:
    """What a module uses that prints."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return (used & PRINTING) | ((called | imported) & PRINTERS)


@pytest.mark.parametrize("path", sorted(SCREEN.parent.rglob("*.py")), ids=lambda path: path.stem)
def test_no_other_module_prints(path: Path) -> None:
    """Neither by a console of its own, nor by typer, nor to the streams."""
    assert printing(path) == set() if path != SCREEN else printing(path) >= {"typer.echo", "sys.stdout", "Console"}


def shown(renderable: RenderableType) -> str:
    out = io.StringIO()
    SafeConsole(file=out, width=4096).print(renderable)
    return out.getvalue()


def a_table(text: str) -> Table:
    table = Table(text, title=text, caption=text)
    table.add_row(text, Text(text), Panel(Text(text)))
    return table


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_whatever_is_shown_controls_nothing(text: str) -> None:
    for renderable in (text, Text(text), styled(text, (text, "bold")), a_table(text)):
        assert is_harmless(shown(renderable))


def test_a_terminal_gets_colours_of_ours_and_nothing_else() -> None:
    out = io.StringIO()
    console = SafeConsole(file=out)
    console._force_terminal = True
    console.print(styled(("\x1b[2J[bold]x", "red")))
    assert "\x1b[2J" not in out.getvalue()
    assert "[2J[bold]x" in out.getvalue()


def test_markup_and_emoji_are_text() -> None:
    assert shown("[bold]x[/bold] [/nope] :bomb:") == "[bold]x[/bold] [/nope] :bomb:\n"


def test_a_part_of_a_line_begins_no_other() -> None:
    assert shown(styled("a\nb", "\r\u2028c")).count("\n") == 1


@given(text=st.text())
def test_printable_texts_stay_and_others_keep_their_length(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)
    assert printable_lines(text).count("\n") == text.count("\n")
    if text.isprintable():
        assert printable(text) == text


JSON = st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(value=JSON)
def test_printable_json_says_the_same(value: object) -> None:
    encoded = orjson.dumps(value)
    safe = printable_json(encoded)
    assert orjson.loads(safe) == value
    assert safe.decode().isprintable()
    assert printable_json(safe) == safe
