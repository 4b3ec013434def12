"""Settings from environment variables, with errors that name the variable."""

import re
from collections.abc import Mapping
from typing import Annotated, TypeVar

import msgspec

from slicebus.proto.errors import ConfigurationError

Settings = TypeVar("Settings", bound=msgspec.Struct)

AmqpUrl = Annotated[str, msgspec.Meta(pattern="^(amqps?|memory)://.")]
Address = Annotated[str, msgspec.Meta(pattern=r"^\S*:[0-9]{1,5}$")]
"""`host:port`."""
Count = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
"""At most a day: infinity is a number too."""

_PATH = re.compile(r" - at `\$\.(\w+).*`$")
"""The field in the text of a msgspec error."""


def from_environment(type: type[Settings], environment: Mapping[str, str], names: Mapping[str, str]) -> Settings:
    """A settings object from environment variables; `names` has the variable of each field. Empty counts as unset.

    Raises ConfigurationError, which names the variable, for a missing or invalid value.
    """
    values = {field: environment[name] for field, name in names.items() if environment.get(name)}
    for field in msgspec.structs.fields(type):
        if field.required and field.name not in values:
            raise ConfigurationError(f"{names[field.name]} is not set")
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        # An error without a path is about several settings, and names their variables itself.
        raise ConfigurationError(f"{names[found[1]]}: {text[: found.start()]}" if found else text) from error
