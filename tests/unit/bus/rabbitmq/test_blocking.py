"""The reason why a broker blocks a connection, as its frames bring it."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiormq import connection as aiormq_connection
from pamqp.commands import Connection as Frames

from slicebus.bus.rabbitmq import blocking
from slicebus.bus.rabbitmq.blocking import blocked

REASONS = {"memory": ("low on memory", "low on memory"), "none": ("", "it does not say why")}


@pytest.mark.parametrize(("sent", "shown"), REASONS.values(), ids=REASONS.keys())
async def test_the_broker_says_why_and_when_it_is_over(sent: str, shown: str) -> None:
    """The frames go to the handlers that aiormq has for them."""
    below: Any = aiormq_connection.Connection("amqp://127.0.0.1:1/")
    connection: Any = SimpleNamespace(transport=SimpleNamespace(connection=below))
    assert blocked(connection) == ""
    await getattr(below, blocking._BLOCKED)(Frames.Blocked(reason=sent))
    assert blocked(connection) == shown
    await getattr(below, blocking._UNBLOCKED)(Frames.Unblocked())
    assert blocked(connection) == ""


def test_a_connection_without_a_transport_is_not_blocked() -> None:
    connection: Any = SimpleNamespace(transport=None)
    assert blocked(connection) == ""
