"""Fixtures of the real servers: started when the first test asks for one, ended with the session."""

import itertools
from collections.abc import Iterator

import pytest

from support.missing import skip_or_fail
from support.rabbitmq import SERVER, RabbitBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitBroker]:
    """A broker."""
    if not SERVER.exists():
        skip_or_fail("no RabbitMQ: Debian's package rabbitmq-server is not installed")
    broker = RabbitBroker(tmp_path_factory.mktemp("rabbitmq"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def vhost(rabbitmq: RabbitBroker) -> Iterator[str]:
    """A vhost of the test's own, for the users guest, manager, east and west."""
    name = f"test-{next(_numbers)}"
    rabbitmq.add_vhost(name, "manager", "east", "west")
    yield name
    rabbitmq.remove_vhost(name)
