"""What a role publishes and receives is measured."""

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from slicebus.bus.contract import Delivery
from slicebus.bus.lanes import consume
from slicebus.bus.metering import DeliveryMetrics, MeteredBus
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import (
    ConflictError,
    DeadReason,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProtocolError,
    SlicebusError,
    ThrottledError,
    UnavailableError,
)
from slicebus.proto.topology import UP, Binding, Exchange, Queue, Topology, common_topology
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from unit.kube.loop_time import LoopTime, settle

MESSAGE = WireMessage(routing_key="east.status", body=b"{}", headers={})


class SlowBus(MemoryBus):
    """A bus whose confirms take two seconds, or fail."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(broker, user="u")
        self.error: SlicebusError | None = None

    async def publish(self, exchange: str, message: WireMessage) -> None:
        await asyncio.sleep(2)
        if self.error is not None:
            raise self.error
        await super().publish(exchange, message)


async def test_a_confirm_counts_with_the_time_that_it_took(jumping: LoopTime) -> None:
    broker, registry = MemoryBroker(), CollectorRegistry()
    broker.declare(common_topology() + Topology((), (Queue("q", {}),), (Binding(UP, "q", "#"),)))
    await MeteredBus(SlowBus(broker), registry).publish(UP, MESSAGE)
    labels = {"exchange": UP}
    assert registry.get_sample_value("slicebus_broker_confirm_seconds_count", labels) == 1
    assert registry.get_sample_value("slicebus_broker_confirm_seconds_sum", labels) == pytest.approx(2)
    assert registry.get_sample_value("slicebus_broker_confirm_seconds_bucket", labels | {"le": "1.0"}) == 0
    assert len(broker.queues["q"].ready) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ThrottledError("confirms nothing"), "unconfirmed"),
        (UnavailableError("no connection"), "unavailable"),
        (NotFoundError("no queue"), "unroutable"),
        (InvalidError("too large"), "too_large"),
        (ForbiddenError("another user"), "forbidden"),
        (ConflictError("what else"), "other"),
    ],
)
async def test_a_publish_that_fails_counts_with_its_reason(
    jumping: LoopTime, error: SlicebusError, reason: str
) -> None:
    bus, registry = SlowBus(MemoryBroker()), CollectorRegistry()
    bus.error = error
    with pytest.raises(type(error)):
        await MeteredBus(bus, registry).publish(UP, MESSAGE)
    labels = {"exchange": UP, "reason": reason}
    assert registry.get_sample_value("slicebus_broker_publish_failures_total", labels) == 1
    assert registry.get_sample_value("slicebus_broker_confirm_seconds_count", {"exchange": UP}) is None


async def test_each_message_counts_by_its_type_and_what_became_of_it(jumping: LoopTime) -> None:
    broker, registry = MemoryBroker(), CollectorRegistry()
    broker.declare(common_topology() + Topology((Exchange("e"),), (Queue("q", {}),), (Binding("e", "q", "#"),)))
    bus, requeued = MemoryBus(broker, user="u"), list[Delivery]()

    async def handle(delivery: Delivery) -> None:
        await asyncio.sleep(3)
        match delivery.message.routing_key:
            case "east.hello":
                raise ProtocolError(DeadReason.REFUSED, "no")
            case "east.applied" if not requeued:
                requeued.append(delivery)
                raise ConflictError("not now")

    async def work() -> None:
        async with bus.subscribe("q", prefetch=20) as subscription:
            await consume(
                subscription,
                handle,
                key=lambda delivery: delivery.message.routing_key,
                superseded=lambda older, _: older.message.routing_key == "east.heartbeat",
                retry_s=0,
                slot_s=0,
                on_settled=DeliveryMetrics(registry).settled,
            )

    task = asyncio.create_task(work())
    await settle()
    for kind in ("status", "hello", "applied", "of-tomorrow", "heartbeat", "heartbeat", "heartbeat"):
        await bus.publish("e", msgspec.structs.replace(MESSAGE, routing_key=f"east.{kind}"))
    await asyncio.sleep(30)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    counted = {
        (sample.labels["type"], sample.labels["result"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "slicebus_message_handling_seconds_count"
    }
    assert counted == {
        ("status", "handled"): 1,
        ("hello", "dead_lettered"): 1,
        ("applied", "requeued"): 1,
        ("applied", "handled"): 1,
        ("other", "handled"): 1,
        ("heartbeat", "handled"): 2,
        ("heartbeat", "superseded"): 1,
    }
    labels = {"type": "status", "result": "handled"}
    assert registry.get_sample_value("slicebus_message_handling_seconds_sum", labels) == pytest.approx(3)
