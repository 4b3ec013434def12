"""Reads the values of filters: an unknown one is an error that names the nearest."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import typer

from slicebus.proto.errors import ConfigurationError

Value = TypeVar("Value", bound=StrEnum)


def option_of(
    kind: type[StrEnum] | Sequence[str], word: str, *spelled: str, help: str, envvar: str | None = None
) -> Any:
    """An option whose values are those of an enumeration, in any case, or names. `word` is what one of them is.

    An unknown value is an error that names the nearest, and a shell completes them.
    """
    parser = one_of(kind, word) if isinstance(kind, type) else one_of_names(kind, word)
    names = [str(name) for name in kind]
    return typer.Option(
        *spelled,
        parser=parser,
        autocompletion=lambda: names,
        metavar=word.rpartition(" ")[2].upper(),
        help=help,
        envvar=envvar,
        show_envvar=envvar is not None,
    )


def one_of(kind: type[Value], word: str) -> Callable[[str], Value]:
    """A parser of an option whose values are those of an enumeration, in any case. `word` is what one of them is."""

    def parse(text: str) -> Value:
        known = {value.lower(): value for value in kind}
        if text.lower() not in known:
            raise typer.BadParameter(unknown(text, word, known.values()))
        return known[text.lower()]

    return parse


def one_of_names(names: Sequence[str], word: str) -> Callable[[str], str]:
    """The same, where the values are names."""

    def parse(text: str) -> str:
        if text not in names:
            raise typer.BadParameter(unknown(text, word, names))
        return text

    return parse


def check_known(text: str | None, word: str, known: Iterable[str]) -> None:
    """Raise ConfigurationError for a filter that names nothing that is there. Where nothing is known, it passes."""
    names = sorted(set(known))
    if text is not None and names and text not in names:
        raise ConfigurationError(unknown(text, word, names))


def unknown(text: str, word: str, known: Iterable[str]) -> str:
    """`there is no state Runing; did you mean Running?`, or else what there is."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(text.lower(), names, n=1)
    if near:
        return f"there is no {word} {text}; did you mean {names[near[0]]}?"
    only = f", only {', '.join(sorted(names.values()))}" if names else ""
    return f"there is no {word} {text}{only}"
