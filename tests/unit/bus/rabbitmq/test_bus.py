"""The RabbitMQ connection, as far as it can be tested without a broker."""

import asyncio
import math
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from aio_pika.exceptions import ProbableAuthenticationError
from structlog.testing import capture_logs
from yarl import URL

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.clock import ambient, now
from slicebus.bus.access.address import Access
from slicebus.bus.rabbitmq.bus import RabbitBus
from slicebus.bus.rabbitmq.link import Link
from slicebus.bus.settings import BusSettings
from slicebus.proto.errors import ConfigurationError, UnavailableError
from support.waiting import eventually
from unit.kube.loop_time import LoopTime

URL_ = "amqps://broker/v"


class Connection:
    """A connection that does nothing."""

    def __init__(self, url: str, **options: Any) -> None:
        self.url, self.options = URL(url), options
        self.is_closed = False
        self.close_callbacks: set[Any] = set()

    async def close(self) -> None:
        self.is_closed = True

    def break_(self) -> None:
        """Lose it."""
        self.is_closed = True
        for callback in self.close_callbacks:
            callback(self, ConnectionError("lost"))


class Brokers:
    """What `aio_pika.connect` finds: each attempt, and the connections of those that were answered."""

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.password: str | None = None
        self.tried: list[str] = []
        self.made: list[Connection] = []

    async def connect(self, url: str, **options: Any) -> Any:
        connection = Connection(url, **options)
        self.tried.append(str(connection.url.host))
        if connection.url.host in self.away:
            raise ConnectionRefusedError
        if self.password is not None and connection.url.password != self.password:
            raise ProbableAuthenticationError("ACCESS_REFUSED")
        self.made.append(connection)
        return connection


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    monkeypatch.setattr("aio_pika.connect", made.connect)
    return made


async def test_one_channel_is_opened_however_many_publishes_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []

    async def open_channel(_: RabbitBus, _link: Link, *, confirms: bool) -> Any:
        await asyncio.sleep(0)
        opened.append(Mock(is_closed=False))
        return opened[-1]

    monkeypatch.setattr(RabbitBus, "open_channel", open_channel)
    bus, link = RabbitBus(URL_, name="test", settings=BusSettings()), Link(Mock())
    channels = await asyncio.gather(*(bus._publish_channel(link) for _ in range(20)))
    assert channels == opened * 20
    opened[0].is_closed = True
    assert await bus._publish_channel(link) is opened[1]


async def test_a_channel_that_does_not_open_is_given_up(jumping: LoopTime) -> None:
    """A role waits for its first connection without end, and for nothing else."""
    channel = Mock(initialize=asyncio.Event().wait)
    bus = RabbitBus(URL_, name="test", settings=BusSettings(connect_s=math.inf))
    link = Link(Mock(channel=lambda **_: channel))
    with pytest.raises(UnavailableError):
        async with asyncio.timeout(3600):
            await bus.open_channel(link)


@pytest.mark.parametrize(("url", "heartbeat"), [(URL_, 6), (f"{URL_}?heartbeat=30", None)], ids=["default", "own"])
async def test_the_heartbeat_of_the_url_counts(url: str, heartbeat: int | None, brokers: Brokers) -> None:
    bus = await RabbitBus.connect(url, name="test", settings=BusSettings(heartbeat_s=6))
    await bus.aclose()
    assert brokers.made[0].options["heartbeat"] == heartbeat


@pytest.mark.parametrize(
    ("url", "user", "password"),
    [
        ("amqps://broker/v", "guest", "guest"),
        ("amqps://east@broker/v", "east", "guest"),
        ("amqps://e%40st:p%2Fw@broker/v?auth=external", "e@st", "p/w"),
    ],
)
async def test_the_user_of_the_url_logs_in(url: str, user: str, password: str, brokers: Brokers) -> None:
    bus = await RabbitBus.connect(url, name="test", settings=BusSettings())
    await bus.aclose()
    (made,) = brokers.made
    assert (made.url.user, made.url.password, made.options["auth"]) == (user, password, "plain")
    assert bus.user == user


HOSTS = Access(hosts="a,b,c:1234")
PATIENT = BusSettings(connect_s=60.0, reconnect_most_s=60.0)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch, brokers: Brokers) -> list[int]:
    """How many hosts had been tried at each pause. There is none in fact."""
    found: list[int] = []

    def pause_s(_: Backoff, failures: int, error: BaseException | None = None) -> float:
        found.append(len(brokers.tried))
        if failures == 2:
            brokers.away = set()
        return 0.0

    monkeypatch.setattr(Backoff, "pause_s", pause_s)
    return found


async def test_every_host_is_tried_in_turn_without_a_pause(brokers: Brokers, pauses: list[int]) -> None:
    brokers.away = {"a", "b"}
    bus = await RabbitBus.connect(URL_, name="test", settings=PATIENT, access=HOSTS)
    assert len(brokers.tried) <= 3
    assert brokers.tried[-1] == "c"
    assert brokers.made[0].url.port == 1234
    order, brokers.away, brokers.tried = [*brokers.tried], {"c"}, []
    brokers.made[0].break_()

    async def again() -> bool:
        return bus.connected

    await eventually(again, "it is connected again")
    assert brokers.tried in (["a"], ["b"]), f"the one that broke comes last: {order}"
    assert not pauses
    await bus.aclose()


async def test_a_pause_follows_when_every_host_was_tried(brokers: Brokers, pauses: list[int]) -> None:
    brokers.away = {"a", "b", "c"}
    bus = await RabbitBus.connect(URL_, name="test", settings=PATIENT, access=HOSTS)
    assert pauses == [3, 6]
    assert brokers.tried[:3] == brokers.tried[3:6]
    await bus.aclose()


async def test_the_first_host_differs_from_client_to_client(brokers: Brokers) -> None:
    for seed in range(20):
        with ambient(clock=now, random=Random(seed)):
            bus = await RabbitBus.connect(URL_, name="test", settings=PATIENT, access=HOSTS)
        await bus.aclose()
    assert {*brokers.tried} == {"a", "b", "c"}


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("one\n")
    return path


QUICK = BusSettings(files_s=0.01, reconnect_most_s=0.05)


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def connect_by_file(path: Path) -> RabbitBus:
    return await RabbitBus.connect(
        "amqps://east@broker/v", name="test", settings=QUICK, access=Access(password_file=str(path))
    )


async def test_a_changed_password_comes_into_use_before_the_old_connection_ends(
    brokers: Brokers, password: Path
) -> None:
    bus = await connect_by_file(password)
    first = await bus.wait_up()
    with first.used():
        write(password, "two")

        async def renewed() -> bool:
            return len(brokers.made) == 2

        await eventually(renewed, "it connects anew")
        assert [made.url.password for made in brokers.made] == ["one", "two"]
        assert await bus.wait_up() is not first
        assert bus.connected
        await asyncio.sleep(0)
        assert not brokers.made[0].is_closed, "something is under way on it"

    async def retired() -> bool:
        return brokers.made[0].is_closed

    await eventually(retired, "the old connection ends")
    assert bus.connected, "the end of the old connection is no loss"
    assert len(brokers.made) == 2
    await bus.aclose()
    assert brokers.made[1].is_closed


async def test_a_password_that_is_refused_ends_nothing_and_is_tried_again(brokers: Brokers, password: Path) -> None:
    brokers.password = "one"
    bus = await connect_by_file(password)
    with capture_logs() as logs:
        write(password, "two")

        async def refused() -> bool:
            return sum(entry["event"] == "bus.not_renewed" for entry in logs) > 1

        await eventually(refused, "it tries, and again")
    assert bus.connected
    assert not brokers.made[0].is_closed
    brokers.password = "two"

    async def renewed() -> bool:
        return brokers.made[0].is_closed

    await eventually(renewed, "the broker has learned the password too")
    await bus.aclose()


async def test_a_file_that_is_gone_ends_nothing(brokers: Brokers, password: Path) -> None:
    bus = await connect_by_file(password)
    with capture_logs() as logs:
        await asyncio.to_thread(password.unlink)
        brokers.made[0].break_()

        async def refused() -> bool:
            return any(entry["event"] == "bus.refused" for entry in logs)

        await eventually(refused, "the file is missed")
    assert not bus.connected
    write(password, "two")

    async def again() -> bool:
        return bus.connected

    await eventually(again, "it is connected with the file that has come back")
    assert brokers.made[-1].url.password == "two"
    await bus.aclose()


async def test_a_file_that_is_not_there_at_the_start_is_named(brokers: Brokers, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^SLICEBUS_AMQP_PASSWORD_FILE: .*: No such file"):
        await connect_by_file(tmp_path / "nowhere")
