"""Events: created once, counted after that, and never in the way of the work that they are about."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import CONFIGMAPS, EVENTS, Resource
from slicebus.proto.errors import AlreadyExistsError, ForbiddenError, NotFoundError, SlicebusError, UnavailableError
from support.waiting import eventually
from unit.kube.loop_time import LoopTime, settle
from unit.kube.servers import NAMESPACE, config_map

Manifest = dict[str, Any]
JOB: Manifest = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"namespace": "team", "name": "j", "uid": "u1", "resourceVersion": "7"},
}


class Events:
    """Notes requests; the gate holds creates back."""

    def __init__(self) -> None:
        self.created: list[Manifest] = []
        self.counts: list[int] = []
        self.fails: dict[str, SlicebusError] = {}
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, resource: Resource, manifest: Manifest, *, field_manager: str) -> Manifest:
        assert resource is EVENTS
        self.created.append(manifest)
        await self.gate.wait()
        self._fail("create")
        return manifest

    async def patch(self, resource: Resource, name: str, namespace: str, patch: MergePatch) -> Manifest:
        self._fail("patch")
        assert name == self.created[-1]["metadata"]["name"]
        self.counts.append(patch.body["count"])
        return {}

    def _fail(self, verb: str) -> None:
        if verb in self.fails:
            raise self.fails[verb]


@pytest.fixture
def server() -> Events:
    return Events()


@pytest.fixture
async def recorder(server: Events) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(server, component="slicebus-test")
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(recorder.run())
        yield recorder
        writing.cancel()


async def test_an_event_has_its_object_reason_and_note(server: Events, recorder: EventRecorder) -> None:
    recorder.record(JOB, reason="Admitted", note="runs on east", warning=True)
    await settle()
    [event] = server.created
    assert event["involvedObject"] == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "team",
        "name": "j",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert (event["reason"], event["message"], event["type"]) == ("Admitted", "runs on east", "Warning")
    assert (event["count"], event["source"]) == (1, {"component": "slicebus-test"})
    assert event["metadata"]["namespace"] == "team"


async def test_an_event_on_a_cluster_scoped_object_is_in_the_default_namespace(
    server: Events, recorder: EventRecorder
) -> None:
    recorder.record(JOB | {"metadata": {"name": "east", "uid": "u2"}}, reason="Connected", note="")
    await settle()
    [event] = server.created
    assert (event["metadata"]["namespace"], event["involvedObject"]["namespace"]) == ("default", "")


async def test_names_and_notes_fit(server: Events, recorder: EventRecorder) -> None:
    long = JOB | {"metadata": JOB["metadata"] | {"name": "j" * 253}}
    recorder.record(long, reason="Long", note="n" * 5000)
    await settle()
    [event] = server.created
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1024


async def test_a_repeated_event_is_counted(server: Events, recorder: EventRecorder, loop_time: LoopTime) -> None:
    for _ in range(4):
        recorder.record(JOB, reason="Pending", note="waits")
        await loop_time.advance(60)
    assert len(server.created) == 1
    assert server.counts == [2, 3, 4]


async def test_the_count_is_written_once_a_minute(server: Events, recorder: EventRecorder, loop_time: LoopTime) -> None:
    for _ in range(90):
        recorder.record(JOB, reason="Pending", note="waits")
        await loop_time.advance(1)
    await loop_time.advance(60)
    assert len(server.created) == 1
    assert server.counts == [61, 90]


async def test_those_that_come_before_the_first_is_written_are_counted_with_it(
    server: Events, recorder: EventRecorder, loop_time: LoopTime
) -> None:
    server.gate.clear()
    recorder.record(JOB, reason="Pending", note="waits")
    await settle()
    for _ in range(3):
        recorder.record(JOB, reason="Pending", note="waits")
    server.gate.set()
    await settle()
    await loop_time.advance(60)
    assert [event["count"] for event in server.created] == [1]
    assert server.counts == [4]


async def test_after_ten_minutes_an_event_is_created_anew(
    server: Events, recorder: EventRecorder, loop_time: LoopTime
) -> None:
    recorder.record(JOB, reason="Pending", note="waits")
    await loop_time.advance(601)
    recorder.record(JOB, reason="Pending", note="waits")
    await settle()
    assert len(server.created) == 2
    assert server.counts == []


OTHERS = {
    "reason": (JOB, "Other", "waits"),
    "note": (JOB, "Pending", "waits longer"),
    "object": (JOB | {"metadata": JOB["metadata"] | {"uid": "u2"}}, "Pending", "waits"),
}


@pytest.mark.parametrize(("regarding", "reason", "note"), OTHERS.values(), ids=OTHERS.keys())
async def test_another_note_is_another_event(
    server: Events, recorder: EventRecorder, regarding: Manifest, reason: str, note: str
) -> None:
    recorder.record(JOB, reason="Pending", note="waits")
    recorder.record(regarding, reason=reason, note=note)
    await settle()
    assert len(server.created) == 2


async def test_an_event_that_the_server_has_dropped_is_created_anew(
    server: Events, recorder: EventRecorder, loop_time: LoopTime
) -> None:
    recorder.record(JOB, reason="Pending", note="waits")
    await settle()
    server.fails = {"patch": NotFoundError("404")}
    recorder.record(JOB, reason="Pending", note="waits")
    await loop_time.advance(60)
    assert [event["count"] for event in server.created] == [1, 2]


async def test_an_event_without_an_answer_is_written_again_by_its_name(
    server: Events, recorder: EventRecorder, jumping: LoopTime
) -> None:
    server.fails = {"create": UnavailableError("503")}
    recorder.record(JOB, reason="Pending", note="waits")
    await asyncio.sleep(1)
    server.fails = {"create": AlreadyExistsError("409")}
    await asyncio.sleep(10)
    tries = len(server.created)
    assert tries > 1
    assert len({event["metadata"]["name"] for event in server.created}) == 1
    await asyncio.sleep(300)
    assert len(server.created) == tries


async def test_losing_an_event_stops_nothing(server: Events, recorder: EventRecorder, loop_time: LoopTime) -> None:
    server.fails = {"create": ForbiddenError("403")}
    recorder.record(JOB, reason="Pending", note="waits")
    await settle()
    server.fails = {}
    recorder.record(JOB, reason="Other", note="waits")
    await settle()
    assert [event["reason"] for event in server.created] == ["Pending", "Other"]


async def test_one_that_is_refused_for_a_moment_is_written_later(
    server: Events, recorder: EventRecorder, jumping: LoopTime
) -> None:
    """A right may come back. Where it does not, an Event takes few requests: a storm of them is one of refusals too."""
    server.fails = {"create": ForbiddenError("403")}
    recorder.record(JOB, reason="Pending", note="waits")
    await asyncio.sleep(100)
    tries = len(server.created)
    server.fails = {}
    await asyncio.sleep(100)
    assert len(server.created) == tries + 1
    server.fails = {"create": ForbiddenError("403")}
    recorder.record(JOB, reason="Other", note="waits")
    await asyncio.sleep(3000)
    assert 2 < len(server.created) - tries - 1 < 8
    assert len({event["metadata"]["name"] for event in server.created}) == 2


async def test_past_many_unwritten_ones_further_ones_are_lost(server: Events, recorder: EventRecorder) -> None:
    server.gate.clear()
    for number in range(4200):
        recorder.record(JOB, reason="Pending", note=f"waits {number}")
    server.gate.set()
    await settle(80_000)
    assert len(server.created) == 4096
    recorder.record(JOB, reason="Pending", note="waits 4199")
    await settle()
    assert len(server.created) == 4097


async def test_it_remembers_a_bounded_number(server: Events, recorder: EventRecorder) -> None:
    for number in range(4097):
        recorder.record(JOB, reason="Pending", note=f"waits {number}")
        await settle(4)
    recorder.record(JOB, reason="Pending", note="waits 0")
    await settle()
    assert len(server.created) == 4098


async def test_on_an_api_server(api: KubeClient) -> None:
    regarding = await api.create(CONFIGMAPS, config_map())
    recorder = EventRecorder(api, component="slicebus-test")
    recorder.record(regarding, reason="Seen", note="again")
    writing = asyncio.create_task(recorder.run())

    async def written() -> list[Manifest]:
        return (await api.list(EVENTS, namespace=NAMESPACE)).items

    [event] = await eventually(written, "the Event is written")
    assert (event["count"], event["reason"], event["message"]) == (1, "Seen", "again")
    writing.cancel()
