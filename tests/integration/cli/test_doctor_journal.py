"""What `slicebus doctor` says of the journal, on both buses: it keeps the limits that it was made with."""

from collections.abc import Iterator

import pytest

from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.cli.cluster.options import ClusterAccess
from slicebus.cli.doctor.check import Check
from slicebus.cli.doctor.checks import checks, needs_of
from slicebus.proto.topology import Topology, journal_queues, manager_topology
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import EACH
from support.servers import vhost_of


@pytest.fixture(params=["memory", *EACH])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "memory":
        yield f"memory://manager@{request.getfixturevalue('broker_name')}"
        return
    broker: RabbitBroker = request.getfixturevalue("brokers")(request.param)
    with vhost_of(broker) as vhost:
        yield broker.url(vhost, "manager")


async def journal_check(url: str, *, max_age: str, max_bytes: int) -> Check:
    needs = needs_of(None, "slicebus-system", journal_queues(max_age=max_age, max_bytes=max_bytes))
    made = checks(needs, cluster=None, amqp_url=url, access=ClusterAccess(kubeconfig="/nowhere"))
    [found] = [check async for check in made if check.subject == "journal"]
    return found


async def declare(bus: Bus, *, max_age: str) -> None:
    await bus.declare(manager_topology() + Topology((), journal_queues(max_age=max_age, max_bytes=2**30), ()))


async def test_other_limits_are_shown_and_are_no_fault(url: str) -> None:
    absent = await journal_check(url, max_age="7D", max_bytes=2**30)
    assert absent.advice
    bus = await connect(url, name="test")
    try:
        await declare(bus, max_age="7D")
        await declare(bus, max_age="30D")
    finally:
        await bus.aclose()
    same = await journal_check(url, max_age="7D", max_bytes=2**30)
    assert (same.ok, same.found) == (True, "keeps 7D or 1073741824 bytes, unless a policy says otherwise")
    other = await journal_check(url, max_age="30D", max_bytes=2**30)
    assert other.ok
    assert "was made with other limits than 30D or 1073741824 bytes, which only a policy can change" in other.found
    assert "7D" in other.found.partition("change now")[2]
