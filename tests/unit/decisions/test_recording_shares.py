"""No sender's messages push the rest of a recording out of its stream."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import orjson
from prometheus_client import CollectorRegistry

from slicebus.decisions.commands import Command, Patch
from slicebus.decisions.decider import Decider, Incoming
from slicebus.journal.object_diffs import DiffWriter
from slicebus.journal.recorder import Recorder
from slicebus.journal.recording import Decided, Put, Received, decode_batch, encode_record
from slicebus.journal.recording_shares import RecordingShares, without_content
from slicebus.journal.redaction import MARK, Redactor
from slicebus.kube.cache import Cache
from slicebus.kube.resources import JOBS, Resource
from slicebus.proto.codec import decode, encode
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ProtocolError
from slicebus.proto.headers import PREFIX, SUBJECT
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, JobRef, Refused
from slicebus.sandbox.bus import MemoryBus
from slicebus.slices.api import api_names
from unit.decisions.roles import JOB, SOURCE, Manifest, Role, Store, a_pod, reason, replay

SHARE = 40_000
EAST, WEST = ClusterName("east"), ClusterName("west")
issuers: dict[ClusterName, Issuer] = {}


def a_message(size: int, cluster: ClusterName = EAST) -> WireMessage:
    issuer = issuers.setdefault(
        cluster, Issuer(epoch=1, user=cluster, now=lambda: datetime(2026, 1, 1, tzinfo=UTC), random=bytes)
    )
    message = Refused(job=JOB, workload="w", spec_version=1, reason="R", message="x" * size)
    wire = encode(issuer.envelope(message, cluster, ClusterUid("u")), message)
    return msgspec.structs.replace(wire, user_id=cluster)


class JobStore(Store):
    """A store with jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs = Cache()

    def decides_by(self) -> Iterator[tuple[Resource, Cache]]:
        yield from super().decides_by()
        yield JOBS, self.jobs


class SharedRole(Role):
    """A role whose senders have shares."""

    def __init__(self) -> None:
        super().__init__()
        self.store: JobStore = JobStore()
        registry = self.registry = CollectorRegistry()
        bus = MemoryBus(self.broker, user="manager")
        shares = RecordingShares(SHARE, registry=registry)
        self.decide = Decider(self.store, Recorder(bus, SOURCE, registry=registry), shares)

    def cut(self, sender: str) -> float:
        return self.registry.get_sample_value("slicebus_recording_cut_total", {"sender": sender}) or 0.0


def recorded(role: Role) -> tuple[list[Received], list[Decided]]:
    found = [record for each in role.records for record in decode_batch(each.message).records]
    return [each for each in found if isinstance(each, Received)], [each for each in found if isinstance(each, Decided)]


async def test_one_that_floods_is_recorded_by_name_and_others_in_full() -> None:
    role = SharedRole()
    async with role.recorded():
        for _ in range(100):
            incoming = role.decide.receive(a_message(5_000), decode)
            assert role.decide(reason, incoming=incoming, times=1000) == "R" * 1000
            role.decide(reason, incoming=incoming, times=5000)
        role.decide.receive(a_message(5_000, WEST), decode)
    received, decided = recorded(role)
    whole = [each for each in received if each.text != MARK]
    assert [each.user_id for each in whole] == ["east"] * 3 + ["west"]
    assert role.cut("east") == 97
    assert role.cut("west") == 0
    assert len(received) == 101
    assert received[50].headers[SUBJECT] == received[0].headers[SUBJECT]
    assert len(decided) == 200
    assert bytes(decided[100].outcome) == orjson.dumps("R" * 1000), "what is short is recorded"
    assert bytes(decided[101].outcome) == b"[]"
    assert sum(len(each.message.body) for each in role.records) < 3 * SHARE + 100 * 1500


async def test_a_replay_passes_over_what_has_no_content_and_makes_the_rest() -> None:
    role = SharedRole()
    async with role.recorded():
        role.store.pods.put(a_pod())
        for _ in range(10):
            role.decide(reason, incoming=role.decide.receive(a_message(5_000), decode), times=1)
    replayer, made = replay(role.records)
    assert [each.same for each in made] == [True] * 3
    assert replayer.passed_over == 7


async def test_what_cannot_be_read_is_bounded_too() -> None:
    role, problems = SharedRole(), []
    async with role.recorded():
        for _ in range(20):
            wire = a_message(10)
            junk = msgspec.structs.replace(wire, headers=wire.headers | {"x": "y" * 4000, f"{PREFIX}type": "z" * 4000})
            try:
                role.decide.receive(junk, decode)
            except ProtocolError as error:
                problems.append(error)
    received, _ = recorded(role)
    assert len(problems) == len(received) == 20
    assert "x" not in received[-1].headers
    assert max(map(len, received[-1].headers.values())) <= 256


def a_job(version: int, name: str = "train", **status: Any) -> Manifest:
    metadata: Manifest = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": str(version)}
    metadata["annotations"] = {"short": "x", api_names.UNSHOWN_ANNOTATION: "y" * 2000}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "status": status}


def jobs_of(store: Store) -> Cache:
    assert isinstance(store, JobStore)
    return store.jobs


def mirror(store: Store, *, incoming: Incoming[Any], text: str) -> list[Command]:
    job = jobs_of(store).get("team", incoming.message.job.name)
    assert job is not None
    return [Patch(resource=JOBS, target=job, body={"status": {"text": text}}, subresource="status")]


def text_of(store: Store, *, job: JobRef) -> str | None:
    found = jobs_of(store).get(job.namespace, job.name)
    return found.get("status", {}).get("text") if found else None


def texts(store: Store) -> list[str | None]:
    return [job.get("status", {}).get("text") for job in jobs_of(store).all()]


OTHER = msgspec.structs.replace(JOB, name="other")


async def flooded(times: int) -> SharedRole:
    """A role that writes large statuses of one job, as its cluster reports, and decides by each."""
    role = SharedRole()
    async with role.recorded():
        role.store.jobs.put(a_job(1))
        role.store.jobs.put(a_job(1, "other", text="other"))
        for number in range(times):
            text = f"{number}" + "x" * 5000
            role.decide(mirror, incoming=role.decide.receive(a_message(10), decode), text="short")
            role.store.jobs.put(a_job(number + 2, text=text))
            assert role.decide(text_of, job=JOB) == text
            role.decide(text_of, job=OTHER)
            role.decide(texts)
    return role


async def test_statuses_that_were_written_for_a_sender_count_as_its() -> None:
    role = await flooded(100)
    puts = [record for each in role.records for record in decode_batch(each.message).records if isinstance(record, Put)]
    assert sum(len(encode_record(put)) for put in puts) < SHARE + 100 * 500
    cut = [put for put in puts if put.cut]
    assert len(cut) > 90
    assert role.cut("east") >= len(cut)
    assert set(cut[-1].cut) == {"status", "metadata"}
    assert "status" not in cut[-1].object
    assert cut[-1].object["metadata"]["annotations"] == {"short": "x"}
    assert cut[-1].object["metadata"]["resourceVersion"] == "101"


async def test_a_replay_passes_over_what_may_depend_on_a_status_that_was_cut() -> None:
    """And says how much that is. The decisions about other jobs are made again."""
    role = await flooded(20)
    decisions = {each.__name__: each for each in (mirror, text_of, texts)}
    replayer, made = replay(role.records, state=JobStore, **decisions)
    assert [each.what for each in made if not each.same] == []
    assert sum(each.recorded == b'"other"' for each in made) == 20
    assert 20 < replayer.passed_over < 60


def test_a_status_is_recorded_again_when_there_is_room() -> None:
    writer = DiffWriter("jobs.batch", Redactor.keyed(b"k" * 32))
    first, second, third = a_job(1, text="x" * 5000), a_job(2, text="x" * 5000), a_job(3, text="x" * 5000)
    assert set(writer.put(first, has_room=lambda _: False).cut) == {"status", "metadata"}
    again = writer.put(second, has_room=lambda _: True)
    assert (again.cut, again.same) == ((), ("apiVersion", "kind"))
    assert b"xxx" in bytes(again.object["status"])
    assert "status" in writer.put(third, has_room=lambda _: False).same, "what is known takes no room"


def test_a_share_comes_back_within_an_hour() -> None:
    shares, wire = RecordingShares(SHARE, registry=CollectorRegistry()), a_message(9_000)
    taken = [shares.take(wire, at_s=0.0) for _ in range(4)]
    assert taken == [True, True, False, False]
    assert not shares.take(wire, at_s=60.0)
    assert shares.take(wire, at_s=1800.0)
    assert not shares.take(wire, at_s=1700.0), "a clock that goes back gives nothing"
    assert [shares.take(wire, at_s=9000.0) for _ in range(3)] == [True, True, False]


def test_only_what_names_a_message_is_left() -> None:
    wire = a_message(9_000)
    left = without_content(msgspec.structs.replace(wire, headers=wire.headers | {"x": "y"}))
    assert left.body == MARK.encode()
    assert left.headers == wire.headers
