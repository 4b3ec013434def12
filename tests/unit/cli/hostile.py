"""Texts that somebody writes to harm whoever looks at them, and commands as a user calls them."""

import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

import orjson
from hypothesis import strategies as st

from slicebus.cli.main import main

NAMED: dict[str, str] = {
    "clears the screen": "\x1b[2J\x1b[1;1H",
    "sets the title": "\x1b]0;owned\x07",
    "links": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "one byte for two": "\x9b31m\x9d0;owned\x9c",
    "overwrites": "fine\rowned\b\b\x7f\x00",
    "another line": "x\nmanager is fine\r\n\x85\u2028\u2029y\x0b\x0cz",
    "bidirectional": "\u202egnp.exe\u2066\u2069\u200f",
    "without width": "ad\u200bmin\ufeff\u2060",
    "markup": "[bold red]x[/bold red][/][/nope][link=http://evil.example]y[/link]",
    "an emoji": ":bomb:",
    "tags": "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'",
    "a template": "{{ 7 * 7 }}{% raw %}{0}%s%(x)s",
    "brackets": "[" * 1000 + "]" * 1000,
    "objects": '{"a":' * 1000 + "1" + "}" * 1000,
    "brackets in text": orjson.dumps({"a": "[" * 900 + "]" * 900}).decode(),
    "brackets without an end": "[" * 100_000,
    "a scheme without an end": "a" * 100_000 + "://",
    "long": "x" * 10_000,
}

TEXTS = st.one_of(st.sampled_from(list(NAMED.values())), st.text(max_size=50))


class Called(NamedTuple):
    """A command that has ended."""

    status: int
    out: str
    err: str


def call(*arguments: str) -> Called:
    """Run a command in this process, with the error handling of the entry point."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    status = 0
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        patch.object(sys, "argv", ["slicebus", *arguments]),
        patch.object(sys, "excepthook", sys.excepthook),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
    return Called(status, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


def is_harmless(text: str) -> bool:
    """Whether a terminal only shows it."""
    return all(line.isprintable() for line in text.split("\n"))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all texts in JSON; those of keys end in None."""
    if isinstance(value, dict):
        for name, entry in value.items():
            yield (*path, name, None)
            yield from leaves(entry, (*path, name))
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            yield from leaves(entry, (*path, index))
    elif isinstance(value, str):
        yield path


def replaced(value: Any, path: tuple[Any, ...], text: str) -> Any:
    """A copy of JSON with another text at a path."""
    if not path:
        return text
    head, *rest = path
    if rest == [None]:
        return {text if name == head else name: entry for name, entry in value.items()}
    if isinstance(value, dict):
        return value | {head: replaced(value[head], tuple(rest), text)}
    return [replaced(entry, tuple(rest), text) if index == head else entry for index, entry in enumerate(value)]
