"""Takes secrets out of recorded messages.

It takes out the values of environment variables and annotations with secret-sounding names, credentials in URLs, and
the data of Secrets; also inside a manifest that is the text of an annotation. The names of Secrets stay.
"""

import re
from typing import Any

import orjson

MARK = "(redacted)"

_SECRET_NAME = re.compile(r"passw|token|secret|credential|api[-_]?key|access[-_]?key|private[-_]?key", re.IGNORECASE)
_URL_CREDENTIALS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)[^/?#\s]+@", re.IGNORECASE)
_SECRET_DATA = ("data", "stringData")


def redacted(value: Any) -> Any:
    """A copy of the value without secrets."""
    if isinstance(value, dict):
        return _redacted_object(value)
    if isinstance(value, list):
        return [redacted(entry) for entry in value]
    if isinstance(value, str):
        return _redacted_text(value)
    return value


def _redacted_text(text: str) -> str:
    """Text without secrets. JSON text, such as kubectl's last-applied-configuration, is redacted as a value."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            inner = orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
        else:
            clean = redacted(inner)
            return text if clean == inner else orjson.dumps(clean).decode()
    return _URL_CREDENTIALS.sub(rf"\g<scheme>{MARK}@", text)


def _redacted_object(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("kind") == "Secret":
        return {name: MARK if name in _SECRET_DATA else redacted(entry) for name, entry in value.items()}
    if isinstance(value.get("value"), str) and _SECRET_NAME.search(str(value.get("name", ""))):
        return value | {"value": MARK}
    return {name: MARK if _is_secret(name, entry) else redacted(entry) for name, entry in value.items()}


def _is_secret(name: str, value: Any) -> bool:
    """Whether a text has a secret-sounding name; `secretName` is a reference."""
    return isinstance(value, str) and bool(_SECRET_NAME.search(name)) and not name.endswith("Name")
