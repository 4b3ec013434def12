"""TLS to a real broker: who is trusted, who logs in, and certificates and passwords that change while messages flow."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from slicebus.bus.access.address import Access
from slicebus.bus.contract import Bus, Delivery
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ForbiddenError, SlicebusError, UnavailableError
from slicebus.proto.rights import manager_rights
from slicebus.proto.topology import UP, manager_topology
from support.rabbitmq import RabbitBroker
from support.waiting import eventually

pytestmark = pytest.mark.rabbitmq

SOON = BusSettings(connect_s=5.0)
"""Long enough for a handshake on a slow machine. A refused connection is tried again until then."""
QUICK = BusSettings(connect_s=10.0, files_s=0.1, reconnect_most_s=1.0)
USER = "tls-user"
QUEUE = "slicebus.manager.control"


class Secret:
    """The files of a Secret of one user. They are replaced as the kubelet does: never half written."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.folder, self._authority = folder, authority
        self.write("ca", authority.cert_pem.bytes())
        self.write("password", b"one\n")
        self.issue(USER, days=30)

    def issue(self, name: str, *, days: int) -> None:
        """A new certificate. Its key comes with it, in one file."""
        ends = datetime.now(UTC) + timedelta(days=days)
        issued = self._authority.issue_cert("client.example", common_name=name, not_after=ends)
        self.write("cert", issued.private_key_and_cert_chain_pem.bytes())

    def write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        path.with_suffix(".new").write_bytes(content)
        os.replace(path.with_suffix(".new"), path)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def by_certificate(self) -> Access:
        return Access(ca_file=self.path("ca"), cert_file=self.path("cert"))

    @property
    def by_password(self) -> Access:
        return Access(ca_file=self.path("ca"), password_file=self.path("password"))


@pytest.fixture
def secret(rabbitmq: RabbitBroker, tmp_path: Path) -> Secret:
    return Secret(tmp_path, rabbitmq.authority)


@pytest.fixture
def user(rabbitmq: RabbitBroker, vhost: str) -> Iterator[str]:
    """A user of this vhost, with a password and a manager's rights."""
    set_password(rabbitmq, "one")
    [rights] = manager_rights(USER).permissions
    rabbitmq.permit(vhost, USER, configure=rights.configure, write=rights.write, read=rights.read)
    yield USER
    rabbitmq.api("DELETE", f"users/{USER}")


def set_password(rabbitmq: RabbitBroker, password: str) -> None:
    rabbitmq.api("PUT", f"users/{USER}", {"password": password, "tags": ""})


def connections(rabbitmq: RabbitBroker) -> list[dict[str, Any]]:
    """The open connections of the user, as the broker sees them."""
    return [found for found in rabbitmq.api("GET", "connections") if found.get("user") == USER]


@asynccontextmanager
async def connected(url: str, access: Access, settings: BusSettings = QUICK) -> AsyncIterator[Bus]:
    bus = await connect(url, name="tls", settings=settings, access=access)
    try:
        yield bus
    finally:
        await bus.aclose()


async def test_a_broker_of_another_authority_is_refused(rabbitmq: RabbitBroker, vhost: str, secret: Secret) -> None:
    secret.write("ca", trustme.CA().cert_pem.bytes())
    url = rabbitmq.tls_url(vhost, "guest:guest")
    with pytest.raises(UnavailableError, match=r"^connect to localhost:\d+: the broker's certificate is refused: "):
        await connect(url, name="tls", settings=SOON, access=Access(ca_file=secret.path("ca")))
    with pytest.raises(UnavailableError, match="the broker's certificate is refused"):
        await connect(url, name="tls", settings=SOON)


async def test_a_broker_of_another_name_is_refused(rabbitmq: RabbitBroker, vhost: str, secret: Secret) -> None:
    url = rabbitmq.tls_url(vhost, "guest:guest", host="127.0.0.1")
    with pytest.raises(UnavailableError, match=r"certificate is refused: .*not valid for '127\.0\.0\.1'"):
        await connect(url, name="tls", settings=SOON, access=Access(ca_file=secret.path("ca")))


async def test_a_user_with_a_password_needs_no_certificate(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str
) -> None:
    async with connected(rabbitmq.tls_url(vhost, user), secret.by_password) as bus:
        assert bus.user == user
        await bus.declare(manager_topology())
        await bus.publish(UP, message(1, user))


@pytest.mark.parametrize("named", [True, False])
async def test_the_certificate_is_the_user(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str, named: bool
) -> None:
    url = rabbitmq.tls_url(vhost, user if named else "")
    async with connected(url, secret.by_certificate) as bus:
        assert bus.user == user
        await bus.declare(manager_topology())
        await bus.publish(UP, message(1, bus.user))
        with pytest.raises(ForbiddenError, match="user_id property"):
            await bus.publish(UP, message(2, "manager"))

        async def seen() -> list[str]:
            return [found["auth_mechanism"] for found in await asyncio.to_thread(connections, rabbitmq)]

        assert await eventually(seen, "the management knows the connection") == ["EXTERNAL"]


async def test_a_certificate_of_nobody_is_forbidden(rabbitmq: RabbitBroker, vhost: str, secret: Secret) -> None:
    secret.issue("nobody", days=1)
    with pytest.raises(ForbiddenError, match="EXTERNAL"):
        await connect(rabbitmq.tls_url(vhost), name="tls", settings=SOON, access=secret.by_certificate)


async def test_a_client_certificate_of_another_authority_is_refused(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret
) -> None:
    other = trustme.CA().issue_cert("client.example", common_name=USER)
    secret.write("cert", other.private_key_and_cert_chain_pem.bytes())
    # With TLS 1.3 the broker's alert comes after the handshake, and may be lost with the connection.
    with pytest.raises(UnavailableError, match=r"TLS failed: .*UNKNOWN_CA|Connection reset"):
        await connect(rabbitmq.tls_url(vhost), name="tls", settings=SOON, access=secret.by_certificate)


class Flow:
    """Messages that go through the broker without a pause: published, delivered, and settled after some work."""

    MOST_AHEAD = 40
    """Twice the prefetch. With more, what is left at the end takes the longer, the faster the broker is."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.published = 0
        self.received: list[int] = []
        self._ahead = asyncio.Semaphore(self.MOST_AHEAD)
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        async with self._bus.subscribe(QUEUE, prefetch=20) as subscription, asyncio.TaskGroup() as group:

            async def consume() -> None:
                async for delivery in subscription:
                    group.create_task(self._work(delivery))

            consuming = group.create_task(consume())
            publishing = group.create_task(self._publish())
            yield
            await self.more(50)
            self._stopping.set()
            await publishing

            async def all_there() -> bool:
                return len(set(self.received)) == self.published

            await eventually(all_there, "everything that was published has come")
            consuming.cancel()

    async def more(self, count: int) -> None:
        """Wait until so many more have come through."""
        goal = len(self.received) + count

        async def reached() -> bool:
            return len(self.received) >= goal

        await eventually(reached, f"{count} more messages come through")

    async def _publish(self) -> None:
        while not self._stopping.is_set():
            await self._ahead.acquire()
            await self._bus.publish(UP, message(self.published, self._bus.user))
            self.published += 1

    async def _work(self, delivery: Delivery) -> None:
        await asyncio.sleep(0.3)
        self.received.append(int(delivery.message.body))
        await delivery.ack()
        self._ahead.release()


def message(number: int, user: str) -> WireMessage:
    return WireMessage(
        routing_key="east.scale-request", body=str(number).encode(), headers={}, message_id=str(number), user_id=user
    )


async def ports(rabbitmq: RabbitBroker) -> dict[int, str]:
    """The client's port of each of the user's connections, and until when its certificate is valid."""
    return {
        found["peer_port"]: str(found.get("peer_cert_validity"))
        for found in await asyncio.to_thread(connections, rabbitmq)
    }


@pytest.mark.parametrize("what", ["certificate", "password", "authority"])
async def test_what_changes_comes_into_use_while_messages_flow(
    what: str, rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str
) -> None:
    access = secret.by_password if what == "password" else secret.by_certificate
    async with connected(rabbitmq.tls_url(vhost, user), access) as bus:
        await bus.declare(manager_topology())
        flow = Flow(bus)

        async def one() -> dict[int, str]:
            found = await ports(rabbitmq)
            return found if len(found) == 1 else {}

        with capture_logs() as logs:
            async with flow.flowing():
                await flow.more(20)
                before = await eventually(one, "the management knows the connection")
                if what == "certificate":
                    secret.issue(user, days=60)
                elif what == "authority":
                    # As during a rotation: the one that the broker's certificate has, and the next one.
                    secret.write("ca", rabbitmq.authority.cert_pem.bytes() + trustme.CA().cert_pem.bytes())
                else:
                    await asyncio.to_thread(set_password, rabbitmq, "two")
                    secret.write("password", b"two")

                async def replaced() -> dict[int, str]:
                    found = await one()
                    return found if found.keys() != before.keys() else {}

                after = await eventually(replaced, "another connection has taken its place")
                await flow.more(20)
        events = [entry["event"] for entry in logs]
        assert events.count("bus.renewed") == 1
        assert not {"bus.lost", "subscription.interrupted", "delivery.stale"} & set(events), "nothing was cut off"
        assert ([*after.values()] != [*before.values()]) == (what == "certificate")
        # RabbitMQ may mark one as redelivered that was on its way when the consumer was cancelled: nobody had seen it.
        assert sorted(flow.received) == list(range(flow.published)), "each was handled once"


async def test_a_password_that_the_broker_does_not_know_yet_waits(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str
) -> None:
    async with connected(rabbitmq.tls_url(vhost, user), secret.by_password) as bus:
        await bus.declare(manager_topology())
        with capture_logs() as logs:
            secret.write("password", b"two")

            async def logged(event: str) -> bool:
                return any(entry["event"] == event for entry in logs)

            await eventually(lambda: logged("bus.not_renewed"), "the broker refuses it")
            await bus.publish(UP, message(1, user))
            await asyncio.to_thread(set_password, rabbitmq, "two")
            await eventually(lambda: logged("bus.renewed"), "the broker has learned it")
        assert not any(entry["event"] == "bus.lost" for entry in logs)
        await bus.publish(UP, message(2, user))


async def test_an_authority_that_the_broker_does_not_have_yet_waits(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str
) -> None:
    async with connected(rabbitmq.tls_url(vhost, user), secret.by_password) as bus:
        await bus.declare(manager_topology())
        with capture_logs() as logs:
            secret.write("ca", trustme.CA().cert_pem.bytes())

            async def logged(event: str) -> bool:
                return any(entry["event"] == event for entry in logs)

            await eventually(lambda: logged("bus.not_renewed"), "the broker's certificate is not trusted")
            await bus.publish(UP, message(1, user))
            secret.write("ca", rabbitmq.authority.cert_pem.bytes() + trustme.CA().cert_pem.bytes())
            await eventually(lambda: logged("bus.renewed"), "it is trusted")
        assert not any(entry["event"] == "bus.lost" for entry in logs)
        await bus.publish(UP, message(2, user))


async def test_a_lost_connection_comes_back_with_what_the_files_say_then(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str
) -> None:
    rarely = BusSettings(files_s=3600.0, reconnect_most_s=1.0)
    async with connected(rabbitmq.tls_url(vhost, user), secret.by_password, rarely) as bus:
        await bus.declare(manager_topology())
        secret.write("password", b"two")
        await asyncio.to_thread(set_password, rabbitmq, "two")
        await asyncio.to_thread(rabbitmq.close_connections)

        async def again() -> bool:
            try:
                await bus.publish(UP, message(1, user))
            except SlicebusError:
                return False
            return True

        await eventually(again, "it publishes again")


async def test_the_certificate_of_another_user_is_refused(
    rabbitmq: RabbitBroker, vhost: str, secret: Secret, user: str
) -> None:
    async with connected(rabbitmq.tls_url(vhost), secret.by_certificate) as bus:
        await bus.declare(manager_topology())
        with capture_logs() as logs:
            secret.issue("manager", days=30)

            async def refused() -> str:
                return next((entry["error"] for entry in logs if entry["event"] == "bus.not_renewed"), "")

            assert await eventually(refused, "it is refused") == (
                f"the certificate is of manager, and this process began as {user}"
            )
        assert bus.user == user
        await bus.publish(UP, message(1, user))
