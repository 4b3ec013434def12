"""The inventory: one item a job, and pages that stay below their limit."""

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.agent.act.inventory import InventoryPublisher
from slicebus.agent.decide.job.inventory import PAGE_BYTES, Entry, item, pages, unanswered
from slicebus.agent.settings import AgentSettings
from slicebus.agent.state import annotations
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.kube.resources import JOBS, PODS
from slicebus.proto.errors import InvalidError
from slicebus.proto.messages import MOST_VERSION, Inventory, InventoryItem, JobPhase, Message, RequestKey, Waits
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import spec_hash, status_hash
from unit.agent.objects import EAST, KEY, REF, a_copy, a_job, a_pod, a_view
from unit.kube.loop_time import LoopTime

HELD = spec_hash(EAST, "w1", {"main": 1}, {"main": 1})
UNREADY = status_hash({}, JobPhase.RUNNING, False)
TEXTS = st.text(max_size=60) | st.sampled_from(["\x00" * 50, '"' * 50, "é" * 50])
ITEMS = st.builds(
    InventoryItem,
    kind=st.sampled_from(["Job", "RayCluster", "J" * 63]),
    namespace=st.sampled_from(["a", "n" * 63]),
    name=st.integers(1, 253).map(lambda length: "x" * length),
    uid=TEXTS,
    spec_version=st.integers(0, MOST_VERSION),
    spec_hash=TEXTS,
    status_hash=TEXTS,
)
REQUEST_KEYS = st.builds(RequestKey, worker_uid=TEXTS, worker_generation=st.integers(0, MOST_VERSION))
ENTRIES = st.tuples(ITEMS, st.none() | REQUEST_KEYS)


def an_item(number: int) -> InventoryItem:
    return InventoryItem("RayCluster", "n" * 63, f"{number:05}" + "x" * 248, f"{number:036}", 2**40, "h" * 16, "s" * 16)


def test_an_item_has_the_hashes_of_spec_and_status() -> None:
    found = item(a_view(a_job(version=3), a_copy()), EAST)
    assert found == InventoryItem(REF.kind, REF.namespace, REF.name, REF.uid, 3, HELD, UNREADY)


@pytest.mark.parametrize(
    "changed",
    [a_job(workload="w2"), a_job(granted=2), a_job(baseline=2), a_job(baseline=None)],
    ids=["slice", "granted", "baseline", "no baseline"],
)
def test_any_difference_of_the_spec_changes_its_hash(changed: Any) -> None:
    found = item(a_view(changed), EAST)
    assert found is not None
    assert found.spec_hash != HELD


def test_a_pod_that_gets_ready_changes_the_status() -> None:
    ready = a_pod("a", ready=True)
    found = item(a_view(a_job(), pods=(ready,)), EAST)
    assert found is not None
    assert found.status_hash == status_hash({}, JobPhase.RUNNING, True)


def test_a_reason_to_wait_that_only_the_worker_knows_changes_the_hash() -> None:
    refused = Waits(wanted={"main": 1}, reason="WriteRefused", message="denied", since="2026-01-31T12:00:00Z")
    found = item(msgspec.structs.replace(a_view(a_job(), a_copy()), refused_write=refused), EAST)
    assert found is not None
    assert found.status_hash == status_hash({}, JobPhase.RUNNING, False, waits="WriteRefused")


ASKED = annotations.PendingRequests.after(None, RequestKey("worker-uid", 2), wanted={"main": 5}, granted={"main": 1})
NEXT = annotations.PendingRequests.after(ASKED, RequestKey("worker-uid", 4), wanted={"main": 3}, granted={"main": 1})
REQUESTS: dict[str, tuple[annotations.PendingRequests | None, RequestKey | None]] = {
    "none": (None, None),
    "not answered": (ASKED, RequestKey("worker-uid", 2)),
    "answered": (ASKED.answered(by=RequestKey("worker-uid", 2)), None),
    "only the one before is answered": (
        NEXT.answered(by=RequestKey("worker-uid", 2)),
        RequestKey("worker-uid", 4),
    ),
}


@pytest.mark.parametrize(("requested", "expected"), REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_is_listed_until_it_is_answered(
    requested: annotations.PendingRequests | None, expected: RequestKey | None
) -> None:
    assert unanswered(a_view(a_job(requested=requested))) == expected
    assert unanswered(a_view(None, a_copy())) is None


def test_requests_cost_nothing_where_there_are_none() -> None:
    [page] = pages([(an_item(1), None)], round=1)
    assert "unanswered" not in msgspec.to_builtins(page)
    request = RequestKey("worker-uid", 2)
    [page] = pages([(an_item(1), None), (msgspec.structs.replace(an_item(2), uid="v"), request)], round=1)
    assert page.unanswered == {"v": request}


def test_a_job_that_is_going_has_no_status() -> None:
    found = item(a_view(a_job(deleting=True)), EAST)
    assert found is not None
    assert (found.spec_hash, found.status_hash) == (HELD, "")


def test_foreign_jobs_are_not_listed() -> None:
    assert item(a_view(a_job(ours=False)), EAST) is None
    assert item(a_view(None), EAST) is None


def test_what_a_controller_made_of_our_job_is_not_listed() -> None:
    """KubeRay gives a RayJob's cluster its labels and annotations. It has no order of its own."""
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "uid-of-train", "controller": True}
    child = a_job()
    child |= {"kind": "RayCluster", "metadata": child["metadata"] | {"ownerReferences": [owner]}}
    assert item(a_view(child), EAST) is None
    assert WorkerJobReading.from_manifest(child) is None
    store = AgentStore()
    store.cache_of(JOBS).put(child)  # type: ignore[union-attr]
    assert not [*store.our_jobs()]
    store.cache_of(JOBS).put(a_job() | {"metadata": a_job()["metadata"] | {"name": "own"}})  # type: ignore[union-attr]
    assert [key.name for key in store.our_jobs()] == ["own"]


@pytest.mark.parametrize("uid", ["", "u" * 129], ids=["none", "too long"])
def test_a_job_without_a_readable_manager_uid_is_not_listed(uid: str) -> None:
    job = a_job(of=msgspec.structs.replace(REF, uid=uid))
    assert item(a_view(job), EAST) is None


def granted_nothing(job: dict[str, Any]) -> dict[str, Any]:
    return merge_patch(job, {"metadata": {"annotations": {api_names.GRANTED_ANNOTATION: "{}"}}})


LACKING: dict[str, tuple[WorkerView, bool]] = {
    "none": (a_view(a_job()), True),
    "another job's": (a_view(a_job(), a_copy(of=msgspec.structs.replace(REF, uid="other"))), True),
    "that of an earlier slice": (a_view(a_job(workload="w2"), a_copy()), False),
    "none of a suspended job": (a_view(granted_nothing(a_job())), False),
    "none of a job that is being deleted": (a_view(a_job(deleting=True)), False),
}


@pytest.mark.parametrize(("view", "lacks"), LACKING.values(), ids=LACKING.keys())
def test_a_job_that_shall_run_without_a_copy_is_not_as_ordered(view: WorkerView, lacks: bool) -> None:
    """The copy was to be made after it. Without one nobody would notice that the job is deleted."""
    found = item(view, EAST)
    assert found is not None
    assert (found.spec_hash == api_names.WITHOUT_COPY) is lacks


@pytest.mark.parametrize(("linked", "hash"), [(True, ""), (False, api_names.ABSENT)])
def test_a_copy_alone_says_whether_its_job_is_gone_or_never_was(linked: bool, hash: str) -> None:
    copy = a_copy(version=4)
    copy["metadata"]["annotations"].pop(api_names.JOB_UID_ANNOTATION, None)
    if linked:
        copy["metadata"]["annotations"][api_names.JOB_UID_ANNOTATION] = "worker-uid"
    found = item(a_view(None, copy), EAST)
    assert found is not None
    assert (found.uid, found.spec_version, found.spec_hash, found.status_hash) == (REF.uid, 4, hash, "")
    assert (found.kind, found.namespace, found.name) == (KEY.kind, KEY.namespace, KEY.name)


def test_nothing_is_one_page() -> None:
    [page] = pages([], round=7)
    assert (page.round, page.page, page.last, page.items) == (7, 0, True, [])


def test_the_longest_names_fit_in_pages_below_32_kib() -> None:
    request = RequestKey("u" * 36, 2**40)
    entries = [(an_item(number), request if number % 2 else None) for number in range(1000)]
    found = list(pages(entries, round=MOST_VERSION))
    sizes = [len(orjson.dumps(msgspec.to_builtins(page))) for page in found]
    [alone] = pages(entries[-1:], round=MOST_VERSION)
    longest = len(orjson.dumps(msgspec.to_builtins(alone)))
    assert max(sizes) < PAGE_BYTES == 32 * 1024
    assert min(sizes[:-1]) > PAGE_BYTES - longest, "a page is full before the next begins"
    assert longest < PAGE_BYTES * 0.05


@given(st.lists(ENTRIES, max_size=60), st.integers(0, MOST_VERSION))
def test_pages_hold_everything_once_in_order_and_stay_below_the_limit(entries: list[Entry], round: int) -> None:
    found = list(pages(entries, round=round, most_bytes=4096))
    assert [item for page in found for item in page.items] == [item for item, _ in entries]
    requests = {uid: request for page in found for uid, request in (page.unanswered or {}).items()}
    assert requests == {item.uid: request for item, request in entries if request is not None}
    assert [page.page for page in found] == list(range(len(found)))
    assert [page.last for page in found] == [False] * (len(found) - 1) + [True]
    assert all(len(orjson.dumps(msgspec.to_builtins(page))) < 4096 for page in found)


def test_items_are_made_when_their_page_is() -> None:
    made: list[int] = []

    def items() -> Any:
        for number in range(2000):
            made.append(number)
            yield an_item(number), None

    next(pages(items(), round=1))
    assert len(made) < 400


async def test_after_a_reconnect_there_are_two(jumping: LoopTime) -> None:
    published: list[float] = []

    async def publish(_: Message) -> None:
        published.append(jumping.now)

    settings = AgentSettings(amqp_url="memory://a@b", cluster=EAST, manager_user="m", namespace="n", identity="i")
    store: Any = SimpleNamespace(caches=tuple, keys=tuple)
    inventories = InventoryPublisher(settings, store=store, publish=publish, listed=lambda _: None)
    task = asyncio.create_task(inventories.run())
    await asyncio.sleep(1)
    reconnected = jumping.now
    inventories.ask_twice()
    await asyncio.sleep(100)
    assert [round(at - reconnected) for at in published] == [0, 30]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def a_pod_of_many_resources(number: int) -> dict[str, Any]:
    pod = a_pod("many")
    requests = {f"example.com/{'r' * 50}-{each}": "1" for each in range(number)}
    pod["spec"]["containers"] = [{"name": "main", "resources": {"requests": requests, "limits": requests}}]
    return pod


LONG = annotations.PendingRequests.after(None, RequestKey("u" * 40_000, 1), wanted={"main": 2}, granted={"main": 1})


@pytest.mark.parametrize(
    ("requested", "listed"),
    [(LONG.to_annotation(), ["other"]), ("", ["other", "train"])],
    ids=["a request of any length", "pods that request anything"],
)
async def test_a_job_that_no_page_takes_keeps_no_other_out(
    jumping: LoopTime, requested: str, listed: list[str]
) -> None:
    """A tenant may write such a request, and make such a pod. The manager would drop the page, and the broker's adapter
    refuses a larger one."""
    store, published = AgentStore(), list[Inventory]()
    for name in ("train", "other"):
        job = a_job()
        job["metadata"] |= {"name": name, "uid": f"uid-{name}"}
        if name == "train":
            job["metadata"]["annotations"][api_names.REQUESTED_ANNOTATION] = requested
        store.cache_of(JOBS).put(job)  # type: ignore[union-attr]
    store.cache_of(PODS).put(a_pod_of_many_resources(1000))  # type: ignore[union-attr]
    for _, cache in store.caches():
        cache.synced.set()

    async def publish(message: Message) -> None:
        assert isinstance(message, Inventory)
        published.append(message)

    settings = AgentSettings(amqp_url="memory://a@b", cluster=EAST, manager_user="m", namespace="n", identity="i")
    await InventoryPublisher(settings, store=store, publish=publish, listed=lambda _: None).publish()
    assert [each.name for page in published for each in page.items] == listed


async def test_a_page_that_is_refused_ends_nothing(jumping: LoopTime) -> None:
    asked: list[float] = []

    async def publish(_: Message) -> None:
        asked.append(jumping.now)
        raise InvalidError("more than the limit")

    settings = AgentSettings(amqp_url="memory://a@b", cluster=EAST, manager_user="m", namespace="n", identity="i")
    store: Any = SimpleNamespace(caches=tuple, keys=tuple)
    inventories = InventoryPublisher(settings, store=store, publish=publish, listed=lambda _: None)
    task = asyncio.create_task(inventories.run())
    await asyncio.sleep(1500)
    assert len(asked) >= 2
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
