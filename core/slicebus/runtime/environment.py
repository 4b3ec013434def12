"""Reads settings from environment variables, with errors that name the variable."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_origin

import msgspec
from msgspec.structs import FieldInfo

from slicebus.bus.access.address import URL
from slicebus.proto.errors import ConfigurationError

Settings = TypeVar("Settings", bound=msgspec.Struct)

Address = Annotated[str, msgspec.Meta(pattern=r"^\S*:[0-9]{1,5}$")]
"""`host:port`."""
Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
"""A time of at most a day: infinity is a number too."""

_VARIABLES_OF_OTHERS = {"amqp_url": URL, "kubeconfig": "KUBECONFIG"}
"""The fields whose variables are not slicebus' own."""
_PATH = re.compile(r" - at `\$(?:\.\w+)*?\.(\w+)(?:\[[^`]*)?`$")
"""The field in the text of a msgspec error, also where the error is within a list."""


def variable_of(field: str) -> str:
    """The environment variable of a field: `SLICEBUS_CLUSTER_LOST_SECONDS` of `cluster_lost_s`."""
    name = f"{field.removesuffix('_s')}_seconds" if field.endswith("_s") else field
    return _VARIABLES_OF_OTHERS.get(field) or f"SLICEBUS_{name.upper()}"


def variables_of(settings: type[msgspec.Struct]) -> dict[str, str]:
    """The environment variable of each field, those of settings within settings too."""
    return {name: variable_of(name) for name in _names_of(settings)}


def from_environment(settings: type[Settings], environment: Mapping[str, str]) -> Settings:
    """A settings object from environment variables. Empty counts as unset.

    Raises ConfigurationError, which names the variable, for a missing or invalid value.
    """
    for field in msgspec.structs.fields(settings):
        if field.required and not environment.get(variable_of(field.name)):
            raise ConfigurationError(f"{variable_of(field.name)} is not set")
    try:
        return msgspec.convert(_values(settings, environment), settings, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        location = _PATH.search(text)
        # An error without a path is about several settings, and names their variables itself.
        raise ConfigurationError(
            f"{variable_of(location[1])}: {text[: location.start()]}" if location else text
        ) from error


def _values(settings: type[msgspec.Struct], environment: Mapping[str, str]) -> dict[str, Any]:
    """What the environment has for each field, in the nesting of the settings."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(settings):
        if inner := _inner(field):
            values[field.name] = _values(inner, environment)
        elif text := environment.get(variable_of(field.name)):
            values[field.name] = _decoded(text) if get_origin(field.type) is tuple else text
    return values


def _decoded(text: str) -> Any:
    """A list, as JSON; the text where it is none, which is an error of the setting then."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _names_of(settings: type[msgspec.Struct]) -> Iterator[str]:
    for field in msgspec.structs.fields(settings):
        inner = _inner(field)
        yield from _names_of(inner) if inner else (field.name,)


def _inner(field: FieldInfo) -> type[msgspec.Struct] | None:
    """The settings that a field holds; None for a field with a value of its own."""
    return field.type if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) else None
