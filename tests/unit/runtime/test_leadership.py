"""Whether a role works: its readiness, the annotations on its Lease, and how `doctor` reads them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from slicebus.ambient.clock import now
from slicebus.kube.cache import Cache
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CRDS, JOB_RESOURCES, LEASES, RAYCLUSTERS, RAYJOBS, WORKLOADS
from slicebus.kube.times import micro_time_text
from slicebus.proto.messages import JobRef, Manifest
from slicebus.runtime.leadership import Leadership, annotations
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.slices.jobs import LEFT_OUT
from support.waiting import eventually
from unit.kube.servers import DEFINITIONS, SYSTEM
from unit.runtime.test_role import AwayBus, Leader, leader

NOW = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)


def lease(holder: str = "a", *, age_s: float = 1.0, not_ready: str = "", left_out: tuple[str, ...] = ()) -> Manifest:
    written = annotations(not_ready=not_ready, left_out=left_out)
    renewed = micro_time_text(NOW - timedelta(seconds=age_s))
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 12, "leaseTransitions": 7}
    return {"metadata": {"annotations": {name: text for name, text in written.items() if text}}, "spec": spec}


STANDING: dict[str, tuple[Manifest, tuple[bool, str, str]]] = {
    "works": (lease(), (True, "", "")),
    "leaves kinds out": (
        lease(left_out=("RayCluster: why", "RayJob: why")),
        (True, "", "RayCluster: why; RayJob: why"),
    ),
    "leads and does not work": (lease(not_ready="waits"), (True, "waits", "")),
    "has stopped": (lease(""), (False, "", "")),
    "is silent": (lease(age_s=20), (False, "", "")),
}


@pytest.mark.parametrize(("manifest", "expected"), STANDING.values(), ids=STANDING.keys())
def test_a_lease_shows_who_leads_and_whether_it_works(manifest: Manifest, expected: tuple[bool, str, str]) -> None:
    found = Leadership.from_manifest(manifest, now=NOW)
    assert (found.is_at_work, found.not_ready, found.left_out) == expected
    assert found.epoch == 7


REFUSED: dict[str, tuple[dict[Any, str], dict[Any, str], str]] = {
    "nothing": ({}, {}, ""),
    "one": ({JobRef("batch/v1", "Job", "team", "a", "u"): "403: no"}, {}, "1 job, such as Job/team/a: 403: no"),
    "several": ({"b": "422: no", "a": "403: no", "c": "403: no"}, {}, "3 jobs, such as a: 403: no"),
    "a cluster": ({}, {"east": "403: no"}, "1 cluster, such as east: 403: no"),
    "both": ({"a": "no"}, {"west": "no", "east": "403"}, "1 job, such as a: no; 2 clusters, such as east: 403"),
}


@pytest.mark.parametrize(("refused", "clusters", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_a_lease_shows_what_the_api_server_refuses(
    refused: dict[Any, str], clusters: dict[Any, str], expected: str
) -> None:
    assert shown(refused=refused, refused_clusters=clusters) == expected


def test_a_lease_shows_what_its_holder_may_not_write_for_itself() -> None:
    unkept = {"ConfigMap slicebus-fence": "403: no"}
    assert shown(unkept=unkept) == "1 own object, such as ConfigMap slicebus-fence: 403: no"


def shown(**refused: dict[Any, str]) -> str:
    written = annotations(not_ready="", left_out=(), **refused)
    manifest = lease()
    manifest["metadata"]["annotations"] = {name: text for name, text in written.items() if text}
    return Leadership.from_manifest(manifest, now=NOW).refused


PROBLEMS: dict[str, tuple[Manifest, str]] = {
    "works": (lease(), ""),
    "does not work": (lease(not_ready="waits"), "a leads and does not work: waits"),
    "has stopped": (lease(""), "nobody leads since 2026-05-01T09:59:59Z"),
    "is silent": (
        lease(age_s=20, not_ready="waits"),
        "nobody leads since 2026-05-01T09:59:40Z: a has not renewed its Lease for 20 s",
    ),
    "has no time": ({"metadata": {}, "spec": {}}, "nobody leads"),
}


@pytest.mark.parametrize(("manifest", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_the_reason_why_nothing_is_done(manifest: Manifest, problem: str) -> None:
    assert Leadership.from_manifest(manifest, now=NOW).problem == problem


WATCHED: dict[str, tuple[float, str, float]] = {
    "renewed a moment ago": (1, "a", 0),
    "clocks differ by less than a second": (-0.5, "a", 0),
    "released": (300, "", 0),
    "expired by the clock": (13, "a", 6),
    "renewed in the future": (-60, "a", 13),
}


@pytest.mark.parametrize(("age_s", "holder", "watch_s"), WATCHED.values(), ids=WATCHED.keys())
def test_a_clock_that_may_be_wrong_is_not_believed_at_once(age_s: float, holder: str, watch_s: float) -> None:
    assert Leadership.from_manifest(lease(holder, age_s=age_s), now=NOW).watch_s == watch_s


LOOKS: dict[str, tuple[float, float, float, bool]] = {
    "renewed, by clocks that differ by minutes": (300, 298, 2, True),
    "renewed, by a clock that is behind": (-300, -302, 2, True),
    "not renewed": (20, 20, 6, False),
    "not renewed, and the clock is behind": (-300, -300, 13, False),
    "not renewed yet, and the clock is behind": (-300, -300, 5, True),
}


@pytest.mark.parametrize(("first_s", "last_s", "watched_s", "is_at_work"), LOOKS.values(), ids=LOOKS.keys())
def test_a_renewal_that_is_seen_counts_whatever_the_clocks_say(
    first_s: float, last_s: float, watched_s: float, is_at_work: bool
) -> None:
    first, last = lease(age_s=first_s), lease(age_s=last_s)
    found = Leadership.from_looks(first, last, watched_s=watched_s, now=NOW)
    assert found.is_at_work is is_at_work


class Waiting(Leader):
    """Leads once it has its definitions."""

    async def lead(self, epoch: int) -> None:
        kept = self.informers(JOB_RESOURCES.values(), unserved={}, definitions={})
        caches = {resource: Cache() for resource in (WORKLOADS, RAYCLUSTERS)}
        async with asyncio.TaskGroup() as group:
            for resource, cache in caches.items():
                group.create_task(kept.run(resource, cache))
            for cache in caches.values():
                await cache.synced.wait()
            self.leading.set()


@asynccontextmanager
async def runs(role: Leader) -> AsyncIterator[None]:
    task = asyncio.create_task(role.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_leader_and_standby_are_ready(api: KubeClient) -> None:
    first, second = leader(api, AwayBus(), "a"), leader(api, AwayBus(), "b")
    assert first.not_ready() == "the API server has not answered for the Lease"
    async with runs(first):
        await first.leading.wait()
        async with runs(second):

            async def both() -> bool:
                return not first.not_ready() and not second.not_ready()

            await eventually(both, "both are ready")
            assert not second.leading.is_set()


async def test_without_the_broker_nobody_is_ready(api: KubeClient) -> None:
    class CutBus(MemoryBus):
        connected = False  # type: ignore[assignment]

    role = leader(api, CutBus(MemoryBroker(), user="u"))
    async with runs(role):
        await role.leading.wait()
        assert role.not_ready() == "there is no connection to the broker"


async def test_a_leader_whose_broker_is_blocked_is_not_ready_and_its_lease_and_metric_say_so(api: KubeClient) -> None:
    broker, registry = MemoryBroker(), CollectorRegistry()
    role = Leader(leader(api, AwayBus())._settings, api, MemoryBus(broker, user="u"), registry)
    reason = "the broker takes nothing from publishers: low on memory"
    async with runs(role):
        await role.leading.wait()
        broker.alarm = "low on memory"
        assert role.not_ready() == reason
        assert registry.get_sample_value("slicebus_broker_blocked") == 1

        async def written() -> bool:
            found = Leadership.from_manifest(await api.get(LEASES, role.component, SYSTEM), now=now())
            return found.problem == f"a leads and does not work: {reason}"

        await eventually(written, "the Lease says why")
        broker.alarm = ""
        assert role.not_ready() == ""
        assert registry.get_sample_value("slicebus_broker_blocked") == 0


async def test_a_package_that_does_not_bring_its_job_kind_is_named(
    api: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LEFT_OUT, "train", "train_job:TrainJob is no job kind: it has no counts")
    role = leader(api, AwayBus())
    with capture_logs() as logs:
        async with runs(role):

            async def written() -> bool:
                lease = Leadership.from_manifest(await api.get(LEASES, role.component, SYSTEM), now=now())
                return lease.left_out == LEFT_OUT["train"]

            await eventually(written, "the Lease names what is left out")
    entry = {"event": "job_kind.left_out", "log_level": "error", "source": "train", "reason": LEFT_OUT["train"]}
    assert entry in logs


async def test_a_role_that_waits_for_a_definition_is_not_ready_until_it_comes(api: KubeClient) -> None:
    for resource in (WORKLOADS, RAYCLUSTERS, RAYJOBS):
        await api.delete(CRDS, resource.definition)
    bus = AwayBus()
    role = Waiting(leader(api, bus)._settings, api, bus, CollectorRegistry())
    async with runs(role):
        reason = "waits: the definition workloads.kueue.x-k8s.io is missing"

        async def written() -> Leadership | None:
            found = Leadership.from_manifest(await api.get(LEASES, role.component, SYSTEM), now=now())
            return found if found.not_ready else None

        found = await eventually(written, "the Lease says why its holder does not work")
        assert found is not None
        assert (found.is_at_work, found.not_ready) == (True, reason)
        assert found.left_out == "RayCluster: the definition rayclusters.ray.io is missing"
        assert role.not_ready() == reason
        for definition in DEFINITIONS:
            if definition["metadata"]["name"] == WORKLOADS.definition:
                await api.create(CRDS, definition)
        await role.leading.wait()
        assert role.not_ready() == ""

        async def cleared() -> bool:
            return not Leadership.from_manifest(await api.get(LEASES, role.component, SYSTEM), now=now()).not_ready

        await eventually(cleared, "the Lease no longer says so")
