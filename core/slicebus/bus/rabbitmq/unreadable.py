"""Lets aiormq read on where a message has properties that it cannot decode.

Whoever may publish chooses them: a `message_id` or a routing key that is no UTF-8, a time after the year 9999. RabbitMQ
passes all of that on. pamqp raises, in the task that reads the whole connection: every consumer would lose it, again
with each redelivery, and again with each look at the dead letters. So such a text has U+FFFD in place of its bytes, and
a message lacks the properties from the first one on that cannot be decoded. Whoever reads it finds it malformed.
"""

from pamqp import decode
from pamqp.commands import Basic

_DELIVERY_MODES = (None, 1, 2)
_unmarshal = Basic.Properties.unmarshal


def _short_str(value: bytes) -> tuple[int, str]:
    end = value[0] + 1
    return end, value[1:end].decode(errors="replace")


def _unmarshal_what_is_readable(properties: Basic.Properties, flags: int, data: bytes) -> None:
    try:
        _unmarshal(properties, flags, data)
    except Exception:  # noqa: BLE001 whoever sent the message must not end the connection
        properties.user_id = None  # Nothing is believed of a message that cannot be read.
    if properties.delivery_mode not in _DELIVERY_MODES:
        properties.delivery_mode = 2  # aio-pika knows no other, and would never settle the message.


def read_on() -> None:
    """Have this process read on. Idempotent."""
    decode.METHODS["shortstr"] = _short_str
    Basic.Properties.unmarshal = _unmarshal_what_is_readable  # type: ignore[method-assign, assignment]
