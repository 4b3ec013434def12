"""Events: created once, counted after that, and never in the way of the work that they are about."""

import asyncio
from typing import Any

import pytest

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.events import EventRecorder
from slicebus.kube.resources import CONFIGMAPS, EVENTS, Resource
from slicebus.proto.errors import ForbiddenError, NotFoundError, SlicebusError, UnavailableError
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
def recorder(server: Events) -> EventRecorder:
    return EventRecorder(server, component="slicebus-test")


async def test_an_event_has_its_object_reason_and_note(server: Events, recorder: EventRecorder) -> None:
    await recorder.record(JOB, reason="Admitted", note="runs on east", warning=True)
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
    await recorder.record(JOB | {"metadata": {"name": "east", "uid": "u2"}}, reason="Connected", note="")
    [event] = server.created
    assert (event["metadata"]["namespace"], event["involvedObject"]["namespace"]) == ("default", "")


async def test_names_and_notes_fit(server: Events, recorder: EventRecorder) -> None:
    long = JOB | {"metadata": JOB["metadata"] | {"name": "j" * 253}}
    await recorder.record(long, reason="Long", note="n" * 5000)
    [event] = server.created
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["message"]) == 1024


async def test_a_repeated_event_is_counted(server: Events, recorder: EventRecorder, loop_time: LoopTime) -> None:
    for _ in range(4):
        await recorder.record(JOB, reason="Pending", note="waits")
        await loop_time.advance(60)
    assert len(server.created) == 1
    assert server.counts == [2, 3, 4]


async def test_after_ten_minutes_an_event_is_created_anew(
    server: Events, recorder: EventRecorder, loop_time: LoopTime
) -> None:
    await recorder.record(JOB, reason="Pending", note="waits")
    await loop_time.advance(601)
    await recorder.record(JOB, reason="Pending", note="waits")
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
    await recorder.record(JOB, reason="Pending", note="waits")
    await recorder.record(regarding, reason=reason, note=note)
    assert len(server.created) == 2


async def test_an_event_that_the_server_has_dropped_is_created_anew(server: Events, recorder: EventRecorder) -> None:
    await recorder.record(JOB, reason="Pending", note="waits")
    server.fails = {"patch": NotFoundError("404")}
    await recorder.record(JOB, reason="Pending", note="waits")
    assert len(server.created) == 2


async def test_many_at_once_that_the_server_has_dropped(server: Events, recorder: EventRecorder) -> None:
    await recorder.record(JOB, reason="Pending", note="waits")
    server.fails = {"patch": NotFoundError("404")}

    async def slow(*_: Any) -> Manifest:
        await asyncio.sleep(0)
        raise NotFoundError("404")

    server.patch = slow  # type: ignore[method-assign]
    await asyncio.gather(*(recorder.record(JOB, reason="Pending", note="waits") for _ in range(5)))


@pytest.mark.parametrize("verb", ["create", "patch"])
@pytest.mark.parametrize("error", [UnavailableError("503"), ForbiddenError("403")], ids=["503", "403"])
async def test_losing_an_event_stops_nothing(
    server: Events, recorder: EventRecorder, verb: str, error: SlicebusError
) -> None:
    if verb == "patch":
        await recorder.record(JOB, reason="Pending", note="waits")
    server.fails = {verb: error}
    await recorder.record(JOB, reason="Pending", note="waits")


async def test_it_remembers_a_bounded_number(server: Events, recorder: EventRecorder) -> None:
    for number in range(4097):
        await recorder.record(JOB, reason="Pending", note=f"waits {number}")
    await recorder.record(JOB, reason="Pending", note="waits 0")
    assert len(server.created) == 4098


async def test_on_an_api_server(api: KubeClient) -> None:
    regarding = await api.create(CONFIGMAPS, config_map())
    recorder = EventRecorder(api, component="slicebus-test")
    for _ in range(3):
        await recorder.record(regarding, reason="Seen", note="again")
    [event] = (await api.list(EVENTS, namespace=NAMESPACE)).items
    assert (event["count"], event["reason"]) == (3, "Seen")
    await settle()
