"""Reads the recorded entries of a table."""

from typing import Any, Self

import msgspec
from msgspec import Raw

from slicebus.decisions.table import Table
from slicebus.proto.errors import InvalidError


class TableReader(msgspec.Struct, frozen=True):
    """Reads the keys and values of one table. Raises InvalidError for those that this version cannot read."""

    _key: msgspec.json.Decoder[Any]
    _value: msgspec.json.Decoder[Any]

    @classmethod
    def for_table(cls, table: Table[Any, Any]) -> Self:
        """The reader of a table of this version."""
        return cls(msgspec.json.Decoder(table.key_type), msgspec.json.Decoder(table.value_type))

    def key(self, raw: Raw) -> Any:
        """A key."""
        return _read(self._key, raw)

    def value(self, raw: Raw) -> Any:
        """A value."""
        return _read(self._value, raw)


def _read(decoder: msgspec.json.Decoder[Any], raw: Raw) -> Any:
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise InvalidError(f"recorded by a version whose tables were others: {error}") from error
