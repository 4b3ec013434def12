"""Granted pods that nobody can make: why, by the Events of their controller, and since when that is shown."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from slicebus.agent.act.pod_refusals import PodRefusals
from slicebus.agent.decide.job import waiting
from slicebus.agent.decide.pods import pod_refusals
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, PodsRefusal, WorkerView
from slicebus.kube.lists import ListPage
from slicebus.kube.resources import EVENTS, JOBS
from slicebus.proto.errors import UnavailableError
from slicebus.proto.messages import Manifest, Waits
from slicebus.slices.workload.waiting import PODS_REFUSED, Waiting
from unit.agent.objects import KEY, a_copy, a_job, a_pod, a_view
from unit.agent.test_ray_pods import a_spec as a_ray_spec
from unit.agent.test_ray_pods import an_object
from unit.kube.loop_time import LoopTime

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SINCE = "2026-01-31T12:00:00Z"
TEXT = "exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2"
DENIED = 'admission webhook "policy" denied the request: no'
REFUSED = PodsRefusal(PODS_REFUSED, TEXT)
MESSAGE = f'Error creating: pods "train-x7k2p" is forbidden: {TEXT}'


OF_RAYJOB = [f"involvedObject.uid={uid},type=Warning" for uid in ("uid-train", "uid-train-x7k2p")]


def an_event(message: str = MESSAGE, *, reason: str = "FailedCreate", at: str = "11:59:00", **more: Any) -> Manifest:
    return {
        "metadata": {"name": "e", "creationTimestamp": "2026-01-31T09:00:00Z"},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"2026-01-31T{at}Z",
        **more,
    }


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([an_event()], TEXT),
        ([an_event(reason="FailedToCreateWorkerPod")], TEXT),
        ([an_event(reason="FailedToCreateHeadPod")], TEXT),
        ([an_event(DENIED)], DENIED),
        ([an_event("older", at="11:50:00"), an_event("newer"), an_event("oldest", at="11:49:00")], "newer"),
        ([an_event(at="11:00:00")], ""),
        ([an_event(at="11:00:00", series={"lastObservedTime": "2026-01-31T11:59:30.000000Z"})], TEXT),
        ([an_event(lastTimestamp=None, eventTime="2026-01-31T11:59:30.000000Z")], TEXT),
        ([an_event(lastTimestamp=None)], ""),
        ([an_event(lastTimestamp="yesterday")], ""),
        ([], ""),
    ],
    ids=[
        "a Job's",
        "a worker's",
        "a head's",
        "a webhook's",
        "the newest",
        "an old one",
        "an old one that goes on",
        "of the newer API",
        "without a time of its own",
        "without a readable time",
        "none",
    ],
)  # fmt: skip
def test_the_newest_refusal_says_why(events: list[Manifest], expected: str) -> None:
    assert why(events) == expected


def test_what_was_said_of_an_earlier_job_of_the_name_is_left_out() -> None:
    assert why([an_event(at="11:59:00")], created="2026-01-31T11:58:00Z") == TEXT
    assert why([an_event(at="11:57:00")], created="2026-01-31T11:58:00Z") == ""


def found(events: list[Manifest], *, created: str = "2026-01-31T10:00:00Z", pods: int = 0) -> PodsRefusal:
    there = tuple(a_pod(f"p{number}") for number in range(pods))
    return pod_refusals.why(events, NOW, view=a_view(made(a_job(2), creationTimestamp=created), pods=there))


def why(events: list[Manifest], *, created: str = "2026-01-31T10:00:00Z") -> str:
    refusal = found(events, created=created)
    assert refusal.reason in ("", PODS_REFUSED)
    return refusal.text


NAMED = {
    "a Job's pod": "resource Pod/team/train-{} was blocked",
    "an indexed Job's pod": "label missing on train-{1}-{0}, says k8s-policy",
    "a KubeRay pod": "Failed to create worker Pod for the cluster team/train, Pod train-gpu-worker-{} is invalid",
    "a pod whose long name was cut in front": 'Pod "in-gpu-worker-{}" is invalid: spec.containers: too many',
    "a numbered pod": 'create Pod train-{1} failed error: pods "train-{1}" is denied',
    "a pod of a numbered one": "pod train-{1}-{2} is denied.",
}
AGAIN = (("x7k2p", 0, 3), ("9bvw4", 1, 12), ("ddddd", 12, 0))


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED.keys())
def test_the_text_is_the_same_for_every_pod(text: str) -> None:
    told = {why([an_event(text.format(*names))]) for names in AGAIN}
    assert len(told) == 1
    assert "-*" in told.pop()


def test_other_names_are_kept() -> None:
    text = 'admission webhook "train-policy.a100.io" denied train-gpu-pool of team-2 (v1.2-3): no class train-gold'
    assert why([an_event(text)]) == text


def test_texts_about_several_objects_do_not_take_turns() -> None:
    """Each of two ReplicaSets, or a RayCluster and a submitter, has a refusal of its own, and repeats it."""
    texts = [
        why([
            an_event("quota", at="11:59:00", involvedObject={"uid": "a"}),
            an_event("webhook", at=at, involvedObject={"uid": "b"}),
            an_event("an older one", at="11:50:00", involvedObject={"uid": "b"}),
        ])
        for at in ("11:58:00", "11:59:30")
    ]  # fmt: skip
    assert texts == ["quota; webhook"] * 2
    same = [an_event("no pod train-x7k2p"), an_event("no pod train-bbbbb", involvedObject={"uid": "b"})]
    assert why(same) == "no pod train-*"


def test_a_time_without_a_zone_is_utc() -> None:
    assert why([an_event(lastTimestamp="2026-01-31T11:59:00")]) == TEXT


BY_NAME = "involvedObject.kind=Job,involvedObject.name=train,type=Warning"


@pytest.mark.parametrize(
    ("kind", "spec", "selectors"),
    [
        ("RayCluster", a_ray_spec(), ["involvedObject.uid=uid-train,type=Warning"]),
        ("RayJob", {"rayClusterSpec": a_ray_spec()}, [*OF_RAYJOB, BY_NAME]),
        ("RayJob", {"rayClusterSpec": a_ray_spec(), "submissionMode": "HTTPMode"}, OF_RAYJOB),
    ],
    ids=["a cluster", "a RayJob with a submitter", "a RayJob without"],
)
def test_the_submitters_job_is_known_by_its_name(kind: str, spec: Manifest, selectors: list[str]) -> None:
    job = an_object(kind, "train", spec)
    child = an_object("RayCluster", "train-x7k2p", a_ray_spec())
    view = WorkerView(key=JobKey(kind, "team", "train"), job=job, scale_target=job if kind == "RayCluster" else child)
    assert pod_refusals.selectors(view) == selectors
    assert pod_refusals.selectors(structs.replace(view, job=None)) == []


def lacking_view(pods: int = 1, *, refused: str | None = TEXT, reason: str = PODS_REFUSED, **how: Any) -> WorkerView:
    """A job of four pods of which so many are there, gated ones among them."""
    job = a_job(4, granted=4, baseline=4, **how)
    view = a_view(job, a_copy(), pods=tuple(a_pod(f"p{number}", gated=number % 2 == 1) for number in range(pods)))
    refusal = None if refused is None else PodsRefusal(reason, refused) if refused else PodsRefusal()
    return structs.replace(view, refused_pods=refusal)


def test_pods_are_lacking_that_are_wanted_and_not_there() -> None:
    assert pod_refusals.lacking(lacking_view(1)) == 3
    assert pod_refusals.lacking(lacking_view(4)) == 0


@pytest.mark.parametrize("how", [{"suspended": True}, {"deleting": True}, {"over": "Complete"}], ids=str)
def test_a_job_that_does_not_run_lacks_none(how: dict[str, Any]) -> None:
    assert pod_refusals.lacking(lacking_view(0, **how)) == 0


def shown(view: WorkerView, *, before: Waiting | None = None) -> list[Waiting]:
    """What is written onto the job."""
    if before is not None:
        assert view.job is not None
        view.job["metadata"]["annotations"]["slicebus.dev/waiting"] = before.to_annotation()
    patches = [command for command in waiting.reconcile(view, now=SINCE) if hasattr(command, "body")]
    texts = [patch.body["metadata"]["annotations"]["slicebus.dev/waiting"] for patch in patches]
    return [Waiting.from_manifest({"metadata": {"annotations": {"slicebus.dev/waiting": t}}}) for t in texts]  # type: ignore[misc]


WAITING = Waiting(
    wanted={"main": 4},
    granted={"main": 4},
    reason=PODS_REFUSED,
    message=f"3 pods cannot be made and hold their quota: {TEXT}",
    since=SINCE,
)


def test_what_holds_quota_for_nothing_is_shown() -> None:
    assert shown(lacking_view()) == [WAITING]
    [one] = shown(lacking_view(3))
    assert one.message.startswith("1 pod cannot be made and holds its quota: ")


def test_it_keeps_its_time_and_other_numbers_are_no_news() -> None:
    since = structs.replace(WAITING, since="2026-01-31T11:00:00Z")
    assert shown(lacking_view(), before=since) == []
    for one_more in ("requested: pods=9, used: pods=1", "for pod train-9bvw4, 8c5e1f0a-1111-4222-8333-123456789abc"):
        first = structs.replace(since, message=f"3 pods cannot be made and hold their quota: {one_more}")
        again = one_more.replace("9bvw4", "x7k2p").replace("8c5e", "0000").replace("used: pods=1", "used: pods=2")
        assert shown(lacking_view(refused=again), before=first) == []
    [other] = shown(lacking_view(refused="denied by a webhook"), before=since)
    assert (other.message.endswith(": denied by a webhook"), other.since) == (True, since.since)


def test_it_goes_when_the_pods_are_there_or_nobody_says_why() -> None:
    assert shown(lacking_view(4), before=WAITING) == [None]
    assert shown(lacking_view(refused=""), before=WAITING) == [None]


def test_a_lack_of_quota_comes_first() -> None:
    view = lacking_view()
    assert view.job is not None
    view.job["spec"]["parallelism"] = 9
    pending = Waiting.of({"main": 9}, {"main": 4}, reason="Pending", message="5 cpu short", since=SINCE)
    assert shown(view, before=pending) == []


def test_the_manager_is_told() -> None:
    view = lacking_view()
    assert view.job is not None
    view.job["metadata"]["annotations"]["slicebus.dev/waiting"] = WAITING.to_annotation()
    view = a_view(view.job)
    assert view.reading is not None
    assert waiting.reported(view, view.reading) == Waits(
        wanted={"main": 4}, reason=PODS_REFUSED, message=WAITING.message, since=SINCE
    )


class Cluster:
    """A client that has Events, and counts who asks for them."""

    def __init__(self) -> None:
        self.events: list[Manifest] = []
        self.asked: list[str] = []
        self.is_away = False

    async def list(
        self, resource: Any, *, namespace: str, fields: str, limit: int, continue_token: str | None, shape: Any
    ) -> ListPage:
        assert (resource, namespace) == (EVENTS, KEY.namespace)
        self.asked.append(fields)
        if self.is_away:
            raise UnavailableError("reset")
        begin = int(continue_token or 0)
        rest = str(begin + limit) if begin + limit < len(self.events) else ""
        page = [*map(shape, self.events[begin : begin + limit])]
        return ListPage(items=page, resource_version="1", continue_token=rest)


def made(job: Manifest, **metadata: str) -> Manifest:
    return job | {"metadata": job["metadata"] | {"creationTimestamp": "2026-01-31T10:00:00Z"} | metadata}


@pytest.fixture
def store() -> AgentStore:
    store = AgentStore()
    store.cache_of(JOBS).put(made(a_job(1)))  # type: ignore[union-attr]
    return store


async def test_of_events_that_a_tenant_writes_as_much_is_read_as_a_controller_writes(
    jumping: LoopTime, store: AgentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicebus.agent.act.pod_refusals.now", lambda: NOW)
    cluster = Cluster()
    cluster.events = [an_event() for _ in range(45)]
    refusals = PodRefusals(store, cluster, changed=lambda _: None)  # type: ignore[arg-type]
    running = asyncio.create_task(refusals.run())
    refusals.note(KEY)
    await asyncio.sleep(16)
    assert (len(cluster.asked), dict(store.refused_pods.items())) == (3, {KEY: REFUSED}), "all pages of a controller's"
    cluster.events = [an_event("x" * 100_000) for _ in range(5000)]
    await asyncio.sleep(30)
    assert len(cluster.asked) == 3 + 10
    assert len(pod_refusals.shortened(cluster.events[0])["message"]) == 2000
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.decisions_fail
async def test_events_that_cannot_be_read_end_nothing(
    jumping: LoopTime, store: AgentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: Any, **__: Any) -> PodsRefusal:
        raise KeyError("creationTimestamp")

    cluster = Cluster()
    monkeypatch.setattr(pod_refusals, "why", stumble)
    refusals = PodRefusals(store, cluster, changed=lambda _: None)  # type: ignore[arg-type]
    running = asyncio.create_task(refusals.run())
    refusals.note(KEY)
    await asyncio.sleep(50)
    assert (len(cluster.asked), running.done()) == (2, False)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_events_of_a_job_that_lacks_pods_are_read_until_it_has_them(
    jumping: LoopTime, store: AgentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slicebus.agent.act.pod_refusals.now", lambda: NOW)
    cluster, changed = Cluster(), list[JobKey]()
    refusals = PodRefusals(store, cluster, changed=changed.append)  # type: ignore[arg-type]
    running = asyncio.create_task(refusals.run())
    refusals.note(KEY)
    await asyncio.sleep(8)
    assert cluster.asked == [], "a pod takes a moment"
    await asyncio.sleep(8)
    assert cluster.asked == ["involvedObject.uid=worker-uid,type=Warning"]
    assert (dict(store.refused_pods.items()), changed) == ({KEY: PodsRefusal()}, [KEY]), "it is known that none is said"

    cluster.events = [an_event()]
    await asyncio.sleep(40)
    assert (dict(store.refused_pods.items()), changed) == ({KEY: REFUSED}, [KEY, KEY])
    cluster.events = [an_event(MESSAGE.replace("used: pods=2", "used: pods=1"))]
    await asyncio.sleep(40)
    assert (dict(store.refused_pods.items()), changed) == ({KEY: REFUSED}, [KEY, KEY]), "the same is said again"
    cluster.is_away = True
    await asyncio.sleep(40)
    assert dict(store.refused_pods.items()) == {KEY: REFUSED}

    store.cache_of(JOBS).put(made(a_job(0), resourceVersion="11"))  # type: ignore[union-attr]
    refusals.note(KEY)
    assert (dict(store.refused_pods.items()), changed) == ({}, [KEY, KEY, KEY])
    asked = len(cluster.asked)
    await asyncio.sleep(100)
    assert len(cluster.asked) == asked
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_the_owners_of_pods_are_asked_too_but_not_all() -> None:
    def of(uid: str, name: str) -> Manifest:
        owner = {"kind": "ReplicaSet", "name": uid, "uid": uid, "controller": True}
        pod = a_pod(name)
        return pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]}}

    job = a_job()
    pods = tuple(of(f"r{number}", f"p{number}") for number in range(9))
    own = job["metadata"]["uid"]

    def asked(*pods: Manifest) -> list[str]:
        found = pod_refusals.selectors(a_view(job, pods=pods))
        return [selector.removeprefix("involvedObject.uid=").removesuffix(",type=Warning") for selector in found]

    assert asked(*pods[:2]) == [own, "r0", "r1"]
    assert asked(of(own, "p")) == [own]
    assert len(asked(*pods)) == 9
