"""The deliveries of a cluster's own messages."""

from collections.abc import AsyncIterator

import structlog

from slicebus.bus.contract import Delivery, Subscription
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import words

_log = structlog.get_logger()


class OwnDeliveries:
    """The deliveries of a cluster's own messages. RabbitMQ 3 puts a message into the queues of others too, whose keys
    its header CC names without a right: such a copy is settled at once, and waits for nobody's turn."""

    def __init__(self, subscription: Subscription, cluster: ClusterName) -> None:
        self._subscription = subscription
        self._cluster = cluster

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        async for delivery in self._subscription:
            if cluster_of(delivery) == self._cluster:
                yield delivery
            else:
                _log.info("delivery.of.another", queue=delivery.queue, user=delivery.message.user_id)
                await delivery.ack()


def cluster_of(delivery: Delivery) -> str:
    """The cluster of a message's routing key, which the broker has checked."""
    return words(delivery.message.routing_key)[0]
