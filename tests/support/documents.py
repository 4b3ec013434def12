"""The shell blocks of the documents: which are run by a test, and which say why they are not."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import typer

from slicebus.cli import main as command_line

TOP = Path(__file__).parents[2]
_FENCE = re.compile(
    r"^(?P<indent> *)(?:<!-- not run: (?P<reason>[^\n]*) -->\n *)?```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_SHELL = ("sh", "bash", "shell", "console")
_CONTINUED = re.compile(r"\\\n\s*")
_CALL = re.compile(r"(?:^|\s|bin/)slicebus +(?P<arguments>[a-z-]+(?:\s.*)?)$")
_OPTION = re.compile(r"-[^\d]")
"""A time such as -15m is a value."""
_IN_PROSE = re.compile(r"`slicebus ([^`]+)`")
_HELP = {"-h", "--help", "--install-completion", "--show-completion", "--version"}


class Block(NamedTuple):
    """A block of shell commands in a document."""

    line: int
    """Where it begins, from 1."""
    text: str
    reason: str | None
    """Why no test runs it."""


def blocks(page: Path) -> list[Block]:
    """The shell blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in _FENCE.finditer(text) if match["language"] in _SHELL]
    return [
        Block(
            text.count("\n", 0, match.start("language")) + 1,
            re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE),
            match["reason"],
        )
        for match in found
    ]


def to_run(page: Path) -> list[str]:
    """The blocks that a test runs."""
    return [block.text for block in blocks(page) if block.reason is None]


def calls(page: Path) -> Iterator[list[str]]:
    """The arguments of each call of `slicebus` in the shell blocks of a page, and in its prose."""
    for block in blocks(page):
        for line in _CONTINUED.sub(" ", block.text).splitlines():
            for part in re.split(r"[|;&]|\$\(", line.partition(" #")[0]):
                if match := _CALL.search(part):
                    yield _words(match["arguments"])
    for arguments in _IN_PROSE.findall(page.read_text(encoding="utf-8")):
        yield _words(arguments)


def _words(arguments: str) -> list[str]:
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def fault(arguments: list[str]) -> str | None:
    """What is wrong with a call: a command or an option that `slicebus` has not. None where nothing is."""
    found, left = typer.main.get_command(command_line.app), list(arguments)
    while left and (inner := getattr(found, "commands", None)) and not left[0].startswith("-"):
        name = left.pop(0).rstrip(",")
        if name not in inner:
            return None if name.isupper() else f"no command {name}"
        found = inner[name]
    known = {spelling for option in found.params for spelling in (*option.opts, *option.secondary_opts)} | _HELP
    given = [word.partition("=")[0] for word in left if _OPTION.match(word)]
    return next((f"no option {option}" for option in given if option not in known), None)
