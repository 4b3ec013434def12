"""A RabbitMQ of a bench's own, and messages as an agent publishes them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.contract import Delivery
from slicebus.proto.headers import SUBJECT
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import releases

MANAGER = "manager"
VHOST = "bench"


@contextmanager
def rabbitmq(*clusters: str, shards: int = 1) -> Iterator[Callable[[str], str]]:
    """A broker for a manager of so many shards, and these clusters; gives the address of a role: `manager`, or a
    cluster's name.

    Ends the process where there is no RabbitMQ.
    """
    if not releases():
        sys.exit("there is no RabbitMQ: `make servers` installs it")
    with TemporaryDirectory() as folder:
        broker = RabbitBroker(Path(folder), releases()[0])
        try:
            broker.start()
            broker.add_vhost(VHOST, *clusters, shards=shards)
            yield lambda role: broker.url(VHOST, role)
        finally:
            broker.stop()


def rabbitmq_in_words() -> str:
    """The one that `rabbitmq` starts."""
    return f"RabbitMQ {releases()[0].version}" if releases() else "no RabbitMQ"


def subject_of(delivery: Delivery) -> str:
    """What a message is about: those of one subject stay in order."""
    return delivery.message.headers.get(SUBJECT, "")


def uid_of(cluster: str) -> ClusterUid:
    """The UID of a cluster that is only its name."""
    return ClusterUid(f"uid-of-{cluster}")


def issuer_of(cluster: str, *, epoch: int = 1) -> Issuer:
    """The issuer of an agent's envelopes."""
    return Issuer(epoch=epoch, user=ClusterName(cluster), now=now, random=random_bytes)
