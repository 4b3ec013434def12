"""Settings from environment variables, with errors that name the variable."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from slicebus.proto.errors import ConfigurationError

Settings = TypeVar("Settings", bound=msgspec.Struct)


def from_environment(type: type[Settings], environment: Mapping[str, str], names: Mapping[str, str]) -> Settings:
    """A settings object from the variables that are set; `names` gives the variable of each field.

    Raises ConfigurationError for one that is missing or is not what the field is.
    """
    values = {field: environment[name] for field, name in names.items() if environment.get(name)}
    for field in msgspec.structs.fields(type):
        if field.required and field.name not in values:
            raise ConfigurationError(f"{names[field.name]} is not set")
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        wrong = next((names[field] for field in values if f"$.{field}" in str(error)), "settings")
        raise ConfigurationError(f"{wrong}: {str(error).partition(' - at ')[0]}") from error
