"""What the commands of the journal hide, and what they say of a filter that names nothing."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from slicebus.bus.contract import Record
from slicebus.cli.journal.command import _print
from slicebus.cli.journal.source import STREAM, MessageFilter, Span
from slicebus.journal.entry import Entry
from slicebus.proto.messages import ClusterName
from slicebus.proto.topology import cluster_topology
from slicebus.sandbox.bus import MemoryBroker
from unit.cli.hostile import Called, call
from unit.cli.test_hostile_text import BROKER, URL, broker, recorded

ENTRIES = [Entry.from_record(Record(0, message, None)) for message in recorded()]
CLUSTER, TYPO = "east", "eats"
AT_FIRST = "2020-01-01T00:00:00Z"
"""Before everything that was recorded."""
HEARTBEATS = [message for message in recorded() if message.routing_key.endswith(".heartbeat")]


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A broker with one message of each type, in the journal and dead, and with the queues of a cluster that has said
    nothing."""
    monkeypatch.setenv("AMQP_URL", URL)
    with broker(journal=[*recorded(), *HEARTBEATS], dead=recorded()):
        MemoryBroker.named(BROKER).declare(cluster_topology(ClusterName("silent")))
        yield


pytestmark = pytest.mark.usefixtures("fleet")
TAIL = ("journal", "tail", "--no-follow", "--since", AT_FIRST)


def types(done: Called) -> list[str]:
    """The types of the printed messages. Fails where the command has."""
    assert done.status == 0, done.err
    known = {message.routing_key.split(".")[1] for message in recorded()}
    return [word for line in done.out.splitlines() for word in line.split() if word in known]


def test_heartbeats_are_left_out_and_counted() -> None:
    assert HEARTBEATS
    done = call(*TAIL)
    assert "heartbeat" not in types(done)
    assert "hello" in types(done)
    assert done.err == f"{2 * len(HEARTBEATS)} heartbeats are left out: --heartbeats shows them\n"


@pytest.mark.parametrize("asked", [("--heartbeats",), ("--type", "heartbeat")], ids=" ".join)
def test_who_asks_for_heartbeats_gets_them(asked: tuple[str, ...]) -> None:
    done = call(*TAIL, *asked)
    assert types(done).count("heartbeat") == 2 * len(HEARTBEATS)
    assert done.err == ""


def test_other_readers_have_every_message() -> None:
    assert "heartbeat" in types(call("journal", "query"))


async def test_the_count_is_said_where_somebody_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    reading = _print(
        STREAM, MessageFilter(), Span.of(AT_FIRST), amqp_url=URL, follow=True, json=False, hidden="heartbeat"
    )
    tail = asyncio.create_task(reading)
    out = ""
    while "hello" not in out or out.count("\n") < len(recorded()) - len(HEARTBEATS):
        await asyncio.sleep(0)
        out += capsys.readouterr().out
    tail.cancel()
    with suppress(asyncio.CancelledError):
        await tail
    assert "left out: --heartbeats shows them" in capsys.readouterr().err


OF_CLUSTERS = {
    "tail": ("journal", "tail", "--cluster"),
    "tail, to an end": ("journal", "tail", "--no-follow", "--since", AT_FIRST, "--cluster"),
    "query": ("journal", "query", "--cluster"),
    "export": ("journal", "export", "/dev/null", "--cluster"),
    "redrive": ("redrive", "stream", "--dry-run", "--cluster"),
    "dead list": ("dead", "list", "--cluster"),
    "dead requeue": ("dead", "requeue", "--dry-run", "--cluster"),
    "dead discard": ("dead", "discard", "--dry-run", "--cluster"),
}


@pytest.mark.parametrize("arguments", OF_CLUSTERS.values(), ids=OF_CLUSTERS.keys())
def test_an_unknown_cluster_is_an_error(arguments: tuple[str, ...]) -> None:
    done = call(*arguments, TYPO)
    assert (done.status, f"there is no cluster {TYPO}; did you mean {CLUSTER}?" in done.err) == (2, True), done


@pytest.mark.parametrize(
    "arguments", [words for name, words in OF_CLUSTERS.items() if name != "tail"], ids=lambda words: " ".join(words[:2])
)
def test_a_cluster_that_has_said_nothing_is_none(arguments: tuple[str, ...]) -> None:
    done = call(*arguments, "silent")
    assert done.status == 0, done.err
    assert "no such message is recorded" in done.err or "no dead letters" in done.err


OF_JOBS = {
    "query": ("journal", "query", "--job"),
    "tail": (*TAIL, "--job"),
    "export": ("journal", "export", "/dev/null", "--job"),
    "redrive": ("redrive", "stream", "--dry-run", "--job"),
}


@pytest.mark.parametrize("arguments", OF_JOBS.values(), ids=OF_JOBS.keys())
def test_an_unknown_job_is_an_error(arguments: tuple[str, ...]) -> None:
    done = call(*arguments, "jbo-a")
    assert (done.status, "nothing is recorded about a job jbo-a; did you mean Job/" in done.err) == (1, True), done


def test_a_trace_of_an_unknown_cluster_is_an_error() -> None:
    job = next(
        message.headers["cloudEvents_subject"] for message in recorded() if "cloudEvents_subject" in message.headers
    )
    done = call("trace", job, "--cluster", TYPO)
    assert (done.status, f"there is no cluster {TYPO}; did you mean {CLUSTER}?" in done.err) == (2, True), done
    assert "nothing about" in call("trace", job, "--cluster", "silent").err


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_time_without_a_zone_is_refused(option: str) -> None:
    done = call("journal", "query", option, "2026-01-31T12:00")
    assert done.status == 2
    assert f"{option} 2026-01-31T12:00 has no zone: use 2026-01-31T12:00:00Z, or 2026-01-31T12:00:00" in done.err
    assert call("journal", "query", option, "2026-01-31T12:00+01:00").status == 0
