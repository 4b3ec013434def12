"""Takes secrets out of what is recorded or exported, and leaves marks in their place.

It takes out the values of environment variables, the data of Secrets, values whose names say that they are secret, and
whatever looks like a secret in texts (`secret_patterns`): in arguments, commands, YAML, and JSON that is a text. The
names of Secrets stay. A secret that neither a name nor a form gives away stays too.

A mark of a recording has a keyed hash: equal secrets have equal marks, so that a decision that compares them decides
the same again. The key is drawn for each source and kept nowhere, so nobody can try secrets out. An export has one mark
for all secrets, and leaves the marks of recordings.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from slicebus.journal.secret_patterns import (
    MARKS,
    Hint,
    Mark,
    has_telling_words,
    hint,
    is_environment_name,
    is_secret_name,
    is_secret_option,
    shape,
    with_marks,
)
from slicebus.slices.jobs.ray import ALLOCATE_TIMEOUT

MARK = "(redacted)"
_OPENING = "(redacted"

_SECRET_DATA = ("data", "stringData")
_OUR_VARIABLES = frozenset({ALLOCATE_TIMEOUT})
"""Variables that decisions set themselves: a replay sets them again, and has no mark to compare."""
_ARGUMENTS = ("args", "command")
_VALUES = ("value", "plain", "plaintext", "literal", "inline")
"""Fields that have a secret itself, beside those that refer to one."""
_PROGRAM_OPTIONS = {
    **dict.fromkeys(("mysql", "mysqladmin", "mysqldump", "mariadb", "sshpass", "docker", "podman", "az"), "-p"),
    **dict.fromkeys(("mongo", "mongosh", "mongodump", "mongorestore", "mongoimport", "mongoexport"), "-p"),
    **dict.fromkeys(("redis-cli", "redis-benchmark"), "-a"),
    **dict.fromkeys(("sqlcmd", "bcp", "mosquitto_pub", "mosquitto_sub", "zip", "unzip"), "-P"),
    **dict.fromkeys(("ldapsearch", "ldapmodify", "ldapadd", "ldapwhoami"), "-w"),
    "openssl": "-k",
}
"""The short options for a password, by program."""
_VARIABLE_OPTIONS = ("-e", "--env")
"""Options of programs that start containers: a variable and its value follow."""
_CONTAINERS = ("containers", "initContainers")
_BEFORE_CONTAINERS = b'"containers":'
"""In JSON: within a text its quotes would be escaped."""
_KNOWN_BY = 1024
_WRITTEN = ("annotations", "labels")
_TEMPLATE = "template"
_CLEAN = object()
"""Stands for a part without secrets among those that are remembered."""
_MOST_LEVELS = 150
"""A message has 100 at most, and a recording wraps it in some more. Far from where Python would end the recursion."""
_SHORTEST = 6
_TEXTS_KEPT = 4096
_PARTS_KEPT = 512
_SHAPES_KEPT = 1024
_LONGEST_SHAPE = 8192
_LONGEST_KEPT = 64 * 1024


class _TooDeepError(Exception):
    """A value has more levels than are searched."""


class Redactor:
    """Replaces secrets with marks. It remembers what it has searched: the same texts and templates come again."""

    def __init__(self, mark: Mark = lambda _: MARK) -> None:
        self._make = mark
        self._texts: dict[str, str] = {}
        self._parts: dict[bytes, Any] = {}
        self._hints: dict[bytes, Hint] = {}
        """What the shapes of JSON say: specs and statuses come again, with other numbers."""
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        """Containers as JSON, and what is recorded of them, by how they begin."""

    @classmethod
    def keyed(cls, key: bytes) -> "Redactor":
        """A redactor whose marks are hashes under this key of at most 64 bytes."""
        return cls(lambda secret: f"(redacted:{hashlib.blake2b(_bytes(secret), digest_size=8, key=key).hexdigest()})")

    def value(self, value: Any) -> Any:
        """The value without secrets: itself where it has none, and `MARK` where it is nested too deep to search it.
        Never raises."""
        try:
            return self._value(value, 0)
        except _TooDeepError:
            return MARK

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers without secrets. Each is searched by itself."""
        return {name: self._mark(text) if is_secret_name(name) else self.value(text) for name, text in headers.items()}

    def encoded(self, encoded: bytes) -> bytes:
        """JSON without secrets: itself where it has none. JSON that may have some and cannot be read is replaced as a
        whole."""
        rest, spliced = self._without_known(encoded)
        if self._is_harmless(rest):
            return spliced
        try:
            value = orjson.loads(encoded)
            clean = self.value(value)
            return encoded if clean is value else orjson.dumps(clean)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError):
            return orjson.dumps(MARK)

    def metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """An object's metadata without secrets: users write into its annotations and labels, and nowhere else."""
        written = {name: metadata[name] for name in _WRITTEN if name in metadata}
        clean = self._remembered(written, 0)
        return metadata if clean is written else metadata | clean

    def _is_harmless(self, encoded: bytes) -> bool:
        """Whether nothing in this JSON can be a secret."""
        seen = shape(encoded)
        known = self._hints.get(seen)
        if known is None:
            known = hint(seen)
            if len(self._hints) >= _SHAPES_KEPT:
                self._hints.clear()
            if len(seen) <= _LONGEST_SHAPE:
                self._hints[seen] = known
        return known is Hint.NONE or (known is Hint.WORDS and not has_telling_words(encoded))

    def _without_known(self, encoded: bytes) -> tuple[bytes, bytes]:
        """JSON without those containers in it that were searched before, and the same with them as they are recorded.
        Most of a recording are the same containers again, and decoding them takes longer than comparing bytes."""
        at, rest, spliced = 0, list[bytes](), list[bytes]()
        while (begin := encoded.find(_BEFORE_CONTAINERS, at)) >= 0:
            begin += len(_BEFORE_CONTAINERS)
            known = self._known.get(encoded[begin : begin + _KNOWN_BY])
            if known is None or not encoded.startswith(known[0], begin):
                break
            rest.append(encoded[at:begin])
            spliced += (rest[-1], known[1])
            at = begin + len(known[0])
        if not at:
            return encoded, encoded
        return b"".join((*rest, encoded[at:])), b"".join((*spliced, encoded[at:]))

    def _learn(self, containers: bytes, clean: Any) -> None:
        if len(self._known) >= _PARTS_KEPT:
            self._known.clear()
        self._known[containers[:_KNOWN_BY]] = containers, orjson.dumps(clean)

    def _mark(self, secret: str) -> str:
        """The mark of a secret. A mark stays as it is, and so does an empty text."""
        return secret if not secret or MARKS.fullmatch(secret) else self._make(secret)

    def _value(self, value: Any, level: int) -> Any:
        if isinstance(value, str):
            return self._text(value, level) if len(value) >= _SHORTEST else value
        if isinstance(value, dict):
            return self._object(value, level + 1)
        if isinstance(value, list):
            return self._list(value, level + 1)
        return value

    def _list(self, values: list[Any], level: int) -> list[Any]:
        if level > _MOST_LEVELS:
            raise _TooDeepError
        clean = [self._value(entry, level) for entry in values]
        return clean if any(map(_is_other, clean, values)) else values

    def _object(self, value: dict[str, Any], level: int) -> dict[str, Any]:
        if level > _MOST_LEVELS:
            raise _TooDeepError
        changed = {}
        for name, entry in value.items():
            clean = self._entry(name, entry, level)
            if clean is not entry:
                changed[name] = clean
        if value.get("kind") == "Secret":
            changed |= {name: MARK for name in _SECRET_DATA if name in value}
        if isinstance(value.get("value"), str) and is_secret_name(str(value.get("name", value.get("key", "")))):
            changed["value"] = self._mark(value["value"])
        return value | changed if changed else value

    def _entry(self, name: str, entry: Any, level: int) -> Any:
        if isinstance(entry, str):
            return self._mark(entry) if is_secret_name(name) else self._value(entry, level)
        if name in _CONTAINERS and isinstance(entry, list):
            return self._remembered(entry, level)
        if isinstance(entry, (dict, list)):
            if is_environment_name(name):
                return self._variables(entry, level)
            if is_secret_name(name):
                return self._secrets(entry, level)
        if name in _ARGUMENTS and isinstance(entry, list):
            return self._arguments(self._list(entry, level))
        if name == _TEMPLATE and isinstance(entry, dict):
            return self._remembered(entry, level)
        return self._value(entry, level)

    def _remembered(self, part: Any, level: int) -> Any:
        """A part without secrets, from memory where it was searched before: templates and containers are the largest
        part of most objects, and come again in each copy and message."""
        try:
            key = orjson.dumps(part)
        except orjson.JSONEncodeError:
            raise _TooDeepError from None
        if key in self._parts:
            clean = self._parts[key]
            return part if clean is _CLEAN else clean
        if self._is_harmless(key):
            clean = part
        else:
            clean = self._list(part, level + 1) if isinstance(part, list) else self._object(part, level + 1)
        if len(self._parts) >= _PARTS_KEPT:
            self._parts.clear()
        if len(key) <= _LONGEST_KEPT:
            self._parts[key] = _CLEAN if clean is part else clean
            if isinstance(part, list):
                self._learn(key, clean)
        return clean

    def _variables(self, variables: Any, level: int) -> Any:
        """Variables without their values: Kubernetes' list, texts such as `A=b`, or values by name as Ray has them."""
        if isinstance(variables, list):
            clean = [self._variable(variable, level) for variable in variables]
            return clean if any(map(_is_other, clean, variables)) else variables
        values = {name: self._mark(value) for name, value in variables.items() if isinstance(value, str)}
        rest = self._object({name: value for name, value in variables.items() if name not in values}, level + 1)
        clean_values = {name: rest.get(name, values.get(name)) for name in variables}
        return clean_values if any(clean_values[name] is not variables[name] for name in variables) else variables

    def _secrets(self, entry: Any, level: int) -> Any:
        """What the name of a secret has in place of a text: texts in a list, or an object with its `value`."""
        clean = self._value(entry, level)
        if isinstance(clean, list):
            marked = [self._mark(text) if isinstance(text, str) else text for text in clean]
            return marked if any(map(_is_other, marked, clean)) else clean
        values = {name: self._mark(clean[name]) for name in _VALUES if isinstance(clean.get(name), str)}
        return clean | values if any(values[name] is not clean[name] for name in values) else clean

    def _variable(self, variable: Any, level: int) -> Any:
        if isinstance(variable, dict) and isinstance(variable.get("value"), str):
            if variable.get("name") in _OUR_VARIABLES:
                return variable
            clean = self._mark(variable["value"])
            return variable if clean is variable["value"] else variable | {"value": clean}
        if isinstance(variable, str) and "=" in variable:
            name, _, value = variable.partition("=")
            clean = self._mark(value)
            return variable if clean is value else f"{name}={clean}"
        return self._value(variable, level)

    def _arguments(self, arguments: list[Any]) -> list[Any]:
        """The arguments without those that follow an option for a secret: `--password`, `hunter2`."""
        texts = [argument if isinstance(argument, str) else "" for argument in arguments]
        short = next((option for text in texts if (option := _PROGRAM_OPTIONS.get(text.rpartition("/")[2]))), None)
        clean = [
            self._argument(argument, before, short) if isinstance(argument, str) else argument
            for before, argument in zip(["", *texts], arguments, strict=False)
        ]
        return clean if any(map(_is_other, clean, arguments)) else arguments

    def _argument(self, argument: str, before: str, short: str | None) -> str:
        if is_secret_option(before) or before == short:
            return self._mark(argument)
        if before in _VARIABLE_OPTIONS and argument.partition("=")[0].isidentifier():
            return str(self._variable(argument, 0))
        if short is not None and argument != short and argument.startswith(short):
            clean = self._mark(argument[len(short) :])
            return argument if clean is argument[len(short) :] else short + clean
        return argument

    def _text(self, text: str, level: int) -> str:
        clean = self._texts.get(text)
        if clean is None:
            clean = self._searched(text, level)
            if len(self._texts) >= _TEXTS_KEPT:
                self._texts.clear()
            if len(text) <= _LONGEST_KEPT:
                self._texts[text] = clean
        return text if clean == text else clean

    def _searched(self, text: str, level: int) -> str:
        """Text without secrets. JSON text, such as kubectl's last-applied-configuration, is searched as a value, and
        replaced as a whole where it is nested too deep for that."""
        if text.lstrip()[:1] in ("{", "["):
            try:
                inner = orjson.loads(text)
            except orjson.JSONDecodeError:
                pass
            else:
                try:
                    clean = self._value(inner, level + 1)
                    return text if clean is inner else orjson.dumps(clean).decode()
                except (_TooDeepError, orjson.JSONEncodeError):
                    return self._mark(text)
        return with_marks(text, self._mark)


def redacted(value: Any) -> Any:
    """The value without secrets, with one mark for all of them."""
    return Redactor().value(value)


def redacted_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers without secrets, with one mark for all of them."""
    return Redactor().headers(headers)


def has_marks(encoded: bytes) -> bool:
    """Whether something was taken out of this JSON."""
    return _OPENING.encode() in encoded


def _is_other(value: object, another: object) -> bool:
    return value is not another


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
