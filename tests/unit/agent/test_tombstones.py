"""Tombstones: written before anything is deleted, read after a restart, not kept for ever."""

import asyncio
import time
from typing import Any

import msgspec
import pytest

from slicebus.agent.act.tombstones import NAME, Tombstones
from slicebus.agent.decide import catalog
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.tables import AgentTable
from slicebus.agent.state.views import JobKey, Tombstone
from slicebus.decisions.commands import Forget, Publish
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import UnavailableError
from slicebus.proto.messages import JobRef
from unit.agent.objects import KEY, REF
from unit.kube.servers import SYSTEM

DAY_S = 24 * 3600


def a_ref(uid: str, name: str = "train") -> JobRef:
    return JobRef("batch/v1", "Job", "team", name, uid)


class Loaded(Tombstones):
    """Tombstones as they are after a start, with what they leave in the store."""

    def __init__(self, api: KubeClient) -> None:
        self.store = AgentStore()
        super().__init__(api, SYSTEM, self.store)

    def of(self, job: JobRef) -> Tombstone | None:
        return self.store.tombstones.get(job.uid)

    def is_unreported(self, job: JobRef) -> bool:
        return job.uid in self.store.unreported


async def loaded(api: KubeClient) -> Loaded:
    tombstones = Loaded(api)
    await tombstones.load()
    return tombstones


async def stored(api: KubeClient) -> dict[str, str]:
    return (await api.get(CONFIGMAPS, NAME, SYSTEM)).get("data") or {}


async def test_the_first_start_creates_the_config_map(api: KubeClient) -> None:
    tombstones = await loaded(api)
    assert await stored(api) == {}
    assert tombstones.of(REF) is None


async def test_unreadable_entries_are_skipped(api: KubeClient) -> None:
    await (await loaded(api)).add(REF, 3)
    await api.patch(CONFIGMAPS, NAME, SYSTEM, MergePatch({"data": {"a": "by hand", "b": "[" * 5000, "c": "{}"}}))
    tombstones = await loaded(api)
    assert list(tombstones.store.tombstones) == list(tombstones.store.unreported) == [REF.uid]


async def test_an_end_is_known_after_a_restart(api: KubeClient) -> None:
    await (await loaded(api)).add(REF, 3)
    tombstone = (await loaded(api)).of(REF)
    assert tombstone is not None
    assert (tombstone.job, tombstone.version) == (REF, 3)


@pytest.mark.parametrize(("first", "second", "expected"), [(3, 5, 5), (3, 3, 3), (5, 3, 5)], ids=["up", "same", "down"])
async def test_the_version_only_grows(api: KubeClient, first: int, second: int, expected: int) -> None:
    tombstones = await loaded(api)
    await tombstones.add(REF, first)
    await tombstones.add(REF, second)
    for each in (tombstones, await loaded(api)):
        found = each.of(REF)
        assert found is not None
        assert found.version == expected


async def test_jobs_of_one_name_have_an_end_each(api: KubeClient) -> None:
    tombstones = await loaded(api)
    refs = [a_ref(uid, name) for uid, name in (("u1", "train"), ("u2", "train"), ("u3", "other"))]
    for ref in refs:
        await tombstones.add(ref, 2)

    def unreported(key: JobKey) -> list[str]:
        absence = catalog.reconcile_absent(tombstones.store, key=key, stored=None)
        return sorted(command.message.job.uid for command in absence.commands if isinstance(command, Publish))

    assert unreported(KEY) == ["u1", "u2"]
    assert unreported(JobKey("Job", "team", "other")) == ["u3"]
    assert unreported(JobKey("RayJob", "team", "train")) == []


def test_an_end_is_found_by_the_name_that_its_job_had() -> None:
    store = AgentStore()
    for uid, name, version in (("u1", "train", 2), ("u2", "train", 3), ("u1", "other", 4)):
        store.tombstones[uid] = Tombstone(a_ref(uid, name), version, 0)
    assert [tombstone.version for tombstone in store.ended(KEY)] == [3]
    del store.tombstones["u2"]
    assert store.ended(KEY) == []
    assert [tombstone.version for tombstone in store.ended(JobKey("Job", "team", "other"))] == [4]


async def test_a_tombstone_that_was_not_stored_is_not_known(api: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unavailable(*_: Any, **__: Any) -> Any:
        raise UnavailableError("503")

    tombstones = await loaded(api)
    monkeypatch.setattr(api, "patch", unavailable)
    with pytest.raises(UnavailableError):
        await tombstones.add(REF, 3)
    assert tombstones.of(REF) is None


async def tombstone_at(api: KubeClient, *ages_s: int) -> None:
    """Tombstones that are so old."""
    now = int(time.time())
    data = {
        f"old-{number}": msgspec.json.encode(Tombstone(a_ref(f"old-{number}"), 1, now - age)).decode()
        for number, age in enumerate(ages_s)
    }
    await api.patch(CONFIGMAPS, NAME, SYSTEM, MergePatch({"data": data}))


async def test_tombstones_of_a_day_ago_go_with_the_next_one(api: KubeClient) -> None:
    await loaded(api)
    await tombstone_at(api, DAY_S + 60, DAY_S - 60)
    tombstones = await loaded(api)
    await tombstones.add(REF, 3)
    assert sorted(await stored(api)) == ["manager-uid", "old-1"]
    assert tombstones.of(a_ref("old-0")) is None
    assert tombstones.of(a_ref("old-1")) is not None


async def test_many_ends_at_once_with_some_that_have_expired(api: KubeClient) -> None:
    await loaded(api)
    await tombstone_at(api, DAY_S + 60, DAY_S + 61, DAY_S + 62)
    tombstones = await loaded(api)
    await asyncio.gather(*(tombstones.add(a_ref(f"u{number}"), 2) for number in range(8)))
    assert sorted(await stored(api)) == [f"u{number}" for number in range(8)]


async def test_the_oldest_tombstones_go_beyond_the_limit(api: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slicebus.agent.act.tombstones._MOST", 3)
    await loaded(api)
    await tombstone_at(api, 30, 10, 20)
    tombstones = await loaded(api)
    await tombstones.add(REF, 3)
    assert sorted(await stored(api)) == ["manager-uid", "old-1", "old-2"]


async def test_the_oldest_tombstones_go_where_a_config_map_has_no_room(api: KubeClient) -> None:
    await loaded(api)
    long, now = "n" * 253, int(time.time())
    for start in range(0, 3000, 500):
        data = {
            f"old-{number}": msgspec.json.encode(Tombstone(a_ref(f"old-{number}", long), 1, now - number)).decode()
            for number in range(start, start + 500)
        }
        await api.patch(CONFIGMAPS, NAME, SYSTEM, MergePatch({"data": data}))
    tombstones = await loaded(api)
    await tombstones.add(REF, 3)
    left = await stored(api)
    assert sum(len(uid) + len(text) for uid, text in left.items()) < 2**20, "the API server refuses more"
    assert REF.uid in left
    assert "old-0" in left
    assert "old-2999" not in left


async def test_a_config_map_that_somebody_has_deleted_is_made_anew(api: KubeClient) -> None:
    tombstones = await loaded(api)
    await tombstones.add(a_ref("u1", "other"), 2)
    await api.delete(CONFIGMAPS, NAME, SYSTEM)
    await tombstones.add(REF, 3)
    assert sorted(await stored(api)) == ["manager-uid", "u1"]
    assert tombstones.of(REF) is not None


async def test_an_end_is_unreported_until_its_report_is_published(api: KubeClient) -> None:
    tombstones = await loaded(api)
    await tombstones.add(REF, 3)
    assert tombstones.is_unreported(REF)
    _, [report, forget] = catalog.reconcile_absent(tombstones.store, key=KEY, stored=None)
    assert isinstance(report, Publish)
    assert forget == Forget(table=AgentTable.UNREPORTED, key=REF.uid)
    del tombstones.store.unreported[REF.uid]
    for version in (3, 4):
        await tombstones.add(REF, version)
        assert tombstones.is_unreported(REF), "it has asked again"
    assert (await loaded(api)).is_unreported(REF), "nobody knows after a restart"
