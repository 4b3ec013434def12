"""Bounds the size of messages: how much of one is read, published and kept. Pure.

Whoever sends a message chooses its size, and RabbitMQ takes up to 128 MiB (`max_message_size`). So a receiver cuts off
the body of one that is too large as soon as it arrives, and dead-letters the rest with a reason of its own. A sender
measures before it publishes.
"""

from collections.abc import Callable

import msgspec

from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import DeadReason, InvalidError, ProtocolError
from slicebus.proto.headers import PREFIX
from slicebus.proto.topology import AGENT_DECISIONS, DEAD_LETTERS, DECISIONS

MESSAGE_BYTES = 1024**2
"""The default limit of a message between roles, with its headers. Kubernetes takes objects of one and a half times
this."""
LEAST_MESSAGE_BYTES = 256 * 1024
"""The least limit, and the largest of a type."""
RECORDING_BYTES = 16 * 1024**2
"""The limit of a batch of recorded decisions: 64 KiB and one record, of an object that Kubernetes takes."""
HEADER_BYTES = 64 * 1024
"""Most bytes of headers that are published. They travel in one frame of 128 KiB, and RabbitMQ closes the connection of
whoever sends a larger one: a dead copy of a message with many headers would end it again and again."""
SIZE_HEADER = "slicebus-dead-size"
"""The size in bytes of a message whose body was cut off."""
LEFT_OUT_HEADER = "slicebus-dead-headers-left-out"
"""How many headers a dead letter lacks."""

Keep = Callable[[WireMessage], WireMessage]
"""What a receiver keeps of a message from its arrival on."""


def size_of(message: WireMessage) -> int:
    """The bytes of the body and of the headers."""
    return len(message.body) + header_bytes(message)


def header_bytes(message: WireMessage) -> int:
    """The bytes of the names and values of the headers."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in message.headers.items())


def cut(message: WireMessage, most_bytes: int) -> WireMessage:
    """The message; without its body, and with its size in a header, where it is larger than `most_bytes`."""
    size = size_of(message)
    if size <= most_bytes:
        return message
    return msgspec.structs.replace(message, body=b"", headers=message.headers | {SIZE_HEADER: f"{size}"})


def check_whole(message: WireMessage) -> None:
    """Raises ProtocolError for a message whose body was cut off."""
    if SIZE_HEADER in message.headers:
        raise ProtocolError(DeadReason.TOO_LARGE, f"{message.headers[SIZE_HEADER][:20]} bytes are more than the limit")


def limit_of(name: str, most_bytes: int) -> int:
    """The limit of the messages of an exchange or a queue, where messages between roles may have `most_bytes`: dead
    letters have more headers, and recordings are larger."""
    if name in DEAD_LETTERS:
        return most_bytes + 2 * HEADER_BYTES
    return RECORDING_BYTES if name in (DECISIONS, AGENT_DECISIONS) else most_bytes


def check_publishable(exchange: str, message: WireMessage, *, most_bytes: int) -> None:
    """Raises InvalidError for a message that its receivers would cut off, or the broker would not take."""
    most = limit_of(exchange, most_bytes)
    if (size := size_of(message)) > most:
        raise InvalidError(f"{message.routing_key}: {size} bytes are more than the limit of {most}")
    if (size := header_bytes(message)) > HEADER_BYTES + HEADER_BYTES // 2:
        raise InvalidError(f"{message.routing_key}: {size} bytes of headers are more than a frame takes")


def bounded_headers(headers: dict[str, str]) -> dict[str, str]:
    """As many of the headers as a dead letter may have: the attributes of slicebus first, short ones before long
    ones."""
    kept, size = dict[str, str](), 0
    for name, value in sorted(headers.items(), key=lambda header: (not header[0].startswith(PREFIX), len(header[1]))):
        size += len(name.encode()) + len(value.encode())
        if size > HEADER_BYTES:
            break
        kept[name] = value
    if len(kept) == len(headers):
        return headers
    return kept | {LEFT_OUT_HEADER: f"{len(headers) - len(kept)}"}
