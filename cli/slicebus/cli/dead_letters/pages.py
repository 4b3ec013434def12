"""Dead letters for the terminal: a table, one in full, and JSON."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson
from rich.text import Text

from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.bus.sizes import SIZE_HEADER
from slicebus.cli.durations import age_text, local_time
from slicebus.journal.printable import printable, printable_lines
from slicebus.journal.redaction import MARK, redacted, redacted_headers
from slicebus.proto.envelope import WireMessage

_HEAD = ("ID", "WHEN", "AGE", "CLUSTER", "TYPE", "SUBJECT", "REASON", "DETAIL")
_STYLES = ("bold", "dim", "", "bold", "cyan", "", "red", "")
_DETAIL = 200
"""The most characters of a detail in a table."""


def table(letters: Sequence[DeadLetter], now: datetime) -> list[Text]:
    """A header line, and a line for each letter."""
    rows = [_HEAD, *(_row(letter, now) for letter in letters)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        Text("  ").join(
            Text(value.ljust(width), style="dim" if row is _HEAD else style)
            for value, width, style in zip(row, (*widths[:-1], 0), _STYLES, strict=True)
        )
        for row in rows
    ]


def to_json(letter: DeadLetter, now: datetime) -> dict[str, Any]:
    """A letter as JSON."""
    age = letter.age(now)
    return {
        "id": letter.id,
        "at": letter.at.isoformat() if letter.at else None,
        "age_s": round(age.total_seconds(), 3) if age is not None else None,
        "cluster": letter.cluster,
        "type": letter.type,
        "subject": letter.subject,
        "reason": letter.reason,
        "detail": redacted(letter.detail),
        "queue": letter.queue,
        "by": letter.by,
    }


def in_full(message: WireMessage, now: datetime, *, redact: bool) -> str:
    """A letter in full: its properties, headers and body."""
    letter = DeadLetter.from_message(message)
    properties = {
        "id": letter.id,
        "when": f"{_clock(letter.at)}, {age_text(letter.age(now))} ago",
        "reason": letter.reason,
        "detail": letter.detail,
        "queue": letter.queue,
        "dead-lettered by": letter.by or "nobody the broker has verified",
        "routing key": message.routing_key,
        "correlation id": message.correlation_id or "",
        "content type": message.content_type,
    }
    headers = redacted_headers(message.headers) if redact else message.headers
    properties = {name: redacted(value) if redact else value for name, value in properties.items()}
    lines = [f"{name:<17} {printable(value)}" for name, value in properties.items()]
    lines += ["", *(f"{printable(name)}: {printable(value)}" for name, value in sorted(headers.items()))]
    size = message.headers.get(SIZE_HEADER)
    body = f"{size} bytes, more than the limit, were not kept" if size else _body(message.body, redact=redact)
    return "\n".join([*lines, "", body])


def _row(letter: DeadLetter, now: datetime) -> tuple[str, ...]:
    detail = redacted(letter.detail)
    values = (
        letter.short_id,
        _clock(letter.at),
        age_text(letter.age(now)),
        letter.cluster,
        letter.type,
        letter.subject or "-",
        letter.reason or "?",
        detail if len(detail) <= _DETAIL else f"{detail[:_DETAIL]}…",
    )
    return tuple(map(printable, values))


def _clock(at: datetime | None) -> str:
    return local_time(at) if at else "?"


def _body(body: bytes, *, redact: bool) -> str:
    """Indented JSON. Any other body cannot be searched for secrets, so it is shown only with `--no-redact`."""
    try:
        value = orjson.loads(body)
        text = orjson.dumps(redacted(value) if redact else value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONDecodeError:
        if redact:
            return f"{len(body)} bytes that are not JSON: --no-redact shows them"
        text = body.decode(errors="replace")
    except orjson.JSONEncodeError:
        text = MARK if redact else body.decode(errors="replace")
    return printable_lines(text)
