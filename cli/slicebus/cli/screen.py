"""The one place that prints: nothing that a command shows can control the terminal.

What commands show comes from senders, tenants and clusters, or from a file that somebody sent. Every text passes
through here: characters that a terminal acts on are replaced, and no text is read as markup. Layout may be lost where a
text is hostile, and nothing else.
"""

import io
import os
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, TextIO

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from slicebus.journal.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress

_UNBOUNDED = 4096
"""The columns of an output that is no terminal, so that a line stays one line for grep."""


class SafeConsole(Console):
    """A console that shows every text as it is, and lets none of it control the terminal."""

    def __init__(
        self, *, file: TextIO | None = None, stderr: bool = False, width: int | None = None, soft_wrap: bool = True
    ) -> None:
        super().__init__(
            file=file, stderr=stderr, width=width, soft_wrap=soft_wrap, markup=False, emoji=False, highlight=False
        )

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments to write. Only rich's own ones that move the cursor may control the terminal."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def show(renderable: RenderableType, *, style: str = "") -> None:
    """Print something to standard output. A line may be longer than the terminal is wide."""
    SafeConsole().print(renderable, style=style or None)


def show_wrapped(renderable: RenderableType) -> None:
    """Print as wide as the terminal; into a file or a pipe every line stays one."""
    if sys.stdout.isatty():
        SafeConsole(soft_wrap=False).print(renderable)
        return
    plain = io.StringIO()
    SafeConsole(file=plain, width=_UNBOUNDED, soft_wrap=False).print(renderable)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in plain.getvalue().removesuffix("\n").split("\n"))


def show_page(renderable: RenderableType) -> None:
    """Print something that has a frame: as wide as the terminal, or else as COLUMNS says."""
    SafeConsole(soft_wrap=False).print(renderable)


def is_live() -> bool:
    """Whether standard output is a terminal where one can draw again and again."""
    return sys.stdout.isatty() and not SafeConsole().is_dumb_terminal


def say(text: str) -> None:
    """Print one line to standard output."""
    typer.echo(printable(text))


def say_lines(text: str) -> None:
    """Print a text of several lines to standard output."""
    typer.echo(printable_lines(text))


def say_json(encoded: bytes) -> None:
    """Print one line of JSON Lines at once, whole: a reader of it gets every character back."""
    sys.stdout.write(printable_json(encoded).decode() + "\n")
    sys.stdout.flush()


def binary_output() -> BinaryIO:
    """Standard output for lines that are safe to show already, such as those of an export."""
    return sys.stdout.buffer


def warn(text: str) -> None:
    """Print one line to standard error: a note beside the result."""
    typer.echo(printable(text), err=True)


def fail(text: str) -> None:
    """Print an error to standard error, in red."""
    typer.secho(printable_lines(text), err=True, fg=typer.colors.RED)


def can_ask() -> bool:
    """Whether somebody sits at a terminal who can answer."""
    return sys.stdin.isatty()


def confirm(question: str) -> None:
    """Ask, beside the result. Ends the command unless the answer is yes."""
    typer.confirm(printable(question), abort=True, err=True)


def progress_bar() -> "Progress | None":
    """A bar beside the result, with the fields `told` and `left` of its task; None where standard error is no terminal.
    What is said meanwhile comes above it, and what goes into a pipe goes there."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        return None
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(show_speed=False),
        TextColumn("{task.fields[told]}", markup=False),
        TimeRemainingColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        console=SafeConsole(stderr=True, soft_wrap=False),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    )


def show_unexpected(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """Print the traceback of an error that nobody expected: its text may come from a message too."""
    sys.stderr.write(printable_lines("".join(traceback.format_exception(kind, error, where))))


def styled(*parts: str | tuple[str, str], style: str = "") -> Text:
    """Parts of one line, each with its style. No part can begin another line."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((printable(text), of) for text, of in pairs), style=style)


def flush_nowhere() -> None:
    """Have what is still to be flushed at the end go nowhere: the reader of the output has gone away."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
