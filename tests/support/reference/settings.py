"""The page docs/reference/settings.md: the environment variables of both roles.

Names, values and defaults are those of the settings. The words of a row are written in the page itself, and kept.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect

from slicebus.agent.settings import AgentSettings
from slicebus.manager.settings import ManagerSettings
from slicebus.runtime.environment import variable_of
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.jobs.registry import DECLARATIONS

_HEAD = """# Settings

Environment variables of both roles. `make reference` writes the names, values and defaults of this page from the code,
and keeps the rest; a test compares them. In the charts most of them are [values](values.md), and any of them can be in
`extraEnv`. A value that cannot work ends the process at its start, with one line that names the variable. An empty
variable counts as not set.

The commands that read the broker take the `AMQP` variables too. They need no others; `trace --otlp` reads
`OTEL_EXPORTER_OTLP_HEADERS`.
"""
_TITLES = {"Both roles": RoleSettings, "The manager": ManagerSettings, "An agent": AgentSettings}
_TABLE = "| variable | values | default | meaning |\n|---|---|---|---|\n"
_ROW = re.compile(r"^\| `([A-Z_]+)` \| .*? \| (.*?) \| (.*) \|$", re.MULTILINE)
_UNSET = ("", None, ())
"""Defaults in whose place a row has words."""
_NO_WORDS = "none"
_REQUIRED = "required"


class _Setting(msgspec.Struct):
    """One environment variable."""

    name: str
    values: str
    default: str | None
    """As it is written; None where words say what happens without it."""


def settings_page(present: str) -> str:
    """The page, with the words that the present one has. A new variable gets a row without words: a test finds it."""
    words = {name: (default, text) for name, default, text in _ROW.findall(present)}
    parts, known = [_HEAD], set()
    for title, settings in _TITLES.items():
        rows = [setting for setting in _settings(settings) if setting.name not in known]
        known |= {setting.name for setting in rows}
        lines = [_row(setting, *words.get(setting.name, ("", ""))) for setting in rows]
        parts.append(f"## {title}\n\n{_TABLE}" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def rows_without_words(page: str) -> list[str]:
    """The variables that nothing is said of."""
    return [name for name, _, text in _ROW.findall(page) if not text.strip()]


def _row(setting: _Setting, default: str, text: str) -> str:
    return f"| `{setting.name}` | {setting.values} | {setting.default or default or _NO_WORDS} | {text} |"


def _settings(of: type[msgspec.Struct]) -> Iterator[_Setting]:
    """The variables of settings, those of settings within settings too."""
    for field in msgspec.structs.fields(of):
        described = inspect.type_info(field.type)
        if isinstance(described, inspect.StructType):
            yield from _settings(described.cls)
        else:
            yield _Setting(variable_of(field.name), _values(described), _default(field.default))
    if of is RoleSettings:
        yield _Setting(DECLARATIONS, "path", None)


def _default(value: Any) -> str | None:
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case float():
            return f"`{value:.12g}`"
        case _:
            return _REQUIRED if value is msgspec.NODEFAULT else None if value in _UNSET else f"`{value}`"


def _values(described: inspect.Type) -> str:
    """What a variable may have, in a few words."""
    match described:
        case inspect.Metadata(type=inner):
            return _values(inner)
        case inspect.UnionType(types=types):
            return " or ".join(_values(one) for one in types if not isinstance(one, inspect.NoneType))
        case inspect.LiteralType(values=values):
            return ", ".join(f"`{value}`" for value in values)
        case inspect.EnumType(cls=kind):
            return ", ".join(f"`{member.value}`" for member in kind)
        case inspect.BoolType():
            return "`true`, `false`"
        case inspect.IntType():
            return _bounded("integer", described)
        case inspect.FloatType():
            return _bounded("number", described)
        case inspect.VarTupleType():
            return "JSON"
        case _:
            return "text"


def _bounded(kind: str, described: inspect.IntType | inspect.FloatType) -> str:
    """A kind of number with its bounds."""
    bounds = {"above": described.gt, "at least": described.ge, "at most": described.le}
    return ", ".join([kind, *(f"{word} {bound:.12g}" for word, bound in bounds.items() if bound is not None)])
