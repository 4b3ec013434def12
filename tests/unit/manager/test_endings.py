"""Which deletes users asked for, which are inferred, what the held ones show, and what follows."""

from typing import Any

import pytest

from slicebus.decisions.commands import Create, Patch
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, NAMESPACES, WORKLOADS
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.decide.job import endings
from slicebus.manager.decide.job.endings import Ending, ending_of
from slicebus.manager.decide.kueue import beside_kueue
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.store import owner_ref
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import JobPhase, JobRef
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import HELD_CONDITION
from slicebus.slices.placement.fleet import Fleet, Strategy
from unit.manager.message_router import Manager
from unit.manager.objects import NOW, a_job, a_view, a_workload, condition, shorts, vanished, withdrawn
from unit.manager.test_inbox import status

Manifest = dict[str, Any]
RUNNING = a_workload(admitted=1, dispatched=1, applied=1)
GOING = a_workload(admitted=1, dispatched=1, applied=1, deleting=True)
EVICTED = condition("Evicted", reason="Deactivated")


def a_suspended() -> Manifest:
    job = a_job(annotations={api_names.SUSPENDED_ANNOTATION: "true"})
    return job | {"spec": job["spec"] | {"suspend": True}}


def a_namespace(created: str = "2025-01-01T00:00:00Z", *, terminating: bool = False) -> Manifest:
    going = {"deletionTimestamp": NOW} if terminating else {}
    return {"metadata": {"name": "team", "creationTimestamp": created} | going}


HERE, TERMINATING = a_namespace(), a_namespace(terminating=True)
CASES: dict[str, tuple[JobView, bool, Manifest | None, Ending]] = {
    "it runs": (a_view(a_job(), RUNNING), False, HERE, Ending.NONE),
    "it runs, and its namespace goes": (a_view(a_job(), RUNNING), False, TERMINATING, Ending.NONE),
    "it is being deleted": (a_view(a_job(deleting=True), RUNNING), False, HERE, Ending.ASKED),
    "it was seen to go": (a_view(None, RUNNING), True, HERE, Ending.ASKED),
    "its Workload is being deleted": (a_view(a_job(), GOING), False, HERE, Ending.ASKED),
    "it is missing": (a_view(None, RUNNING), False, HERE, Ending.MISSING),
    "it is missing, and so is its Workload soon": (a_view(None, GOING), False, HERE, Ending.MISSING),
    "it is being deleted with its namespace": (
        a_view(a_job(deleting=True), RUNNING),
        False,
        TERMINATING,
        Ending.NAMESPACE,
    ),
    "it was seen to go with its namespace": (a_view(None, GOING), True, TERMINATING, Ending.NAMESPACE),
    "its namespace is gone": (a_view(None, GOING), True, None, Ending.NAMESPACE),
    "its namespace is a later one of the name": (a_view(None, GOING), True, a_namespace(NOW), Ending.NAMESPACE),
    "its copy is gone": (vanished(), False, HERE, Ending.VANISHED),
    "its copy is gone, and it is being deleted": (vanished(job=a_job(deleting=True)), False, HERE, Ending.ASKED),
    "its copy is gone, and it is evicted": (vanished(conditions=(EVICTED,)), False, HERE, Ending.NONE),
    "it has ended": (a_view(a_job(over="Complete"), GOING), False, HERE, Ending.NONE),
    "its copy is gone after it has ended": (vanished(job=a_job(over="Complete")), False, HERE, Ending.NONE),
    "it goes its way": (a_view(None, withdrawn(applied=1)), False, TERMINATING, Ending.NONE),
    "it has gone": (a_view(None, withdrawn()), False, TERMINATING, Ending.NONE),
    "it never ran": (a_view(None, a_workload(admitted=1)), False, TERMINATING, Ending.NONE),
}


@pytest.mark.parametrize(("view", "was_seen", "namespace", "expected"), CASES.values(), ids=CASES.keys())
def test_why_a_job_ends(view: JobView, was_seen: bool, namespace: Manifest | None, expected: Ending) -> None:
    assert ending_of(view, was_seen=was_seen, namespace=namespace) is expected


MISSING_UNSERVED: dict[str, tuple[JobView, bool, Manifest | None, Ending]] = {
    "it is missing": (a_view(None, RUNNING), False, HERE, Ending.NOT_SERVED),
    "it was seen to go before": (a_view(None, RUNNING), True, HERE, Ending.ASKED),
    "its namespace goes": (a_view(None, RUNNING), False, TERMINATING, Ending.NAMESPACE),
    "it is there": (a_view(a_job(), RUNNING), False, HERE, Ending.NONE),
}


@pytest.mark.parametrize(
    ("view", "was_seen", "namespace", "expected"), MISSING_UNSERVED.values(), ids=MISSING_UNSERVED.keys()
)
def test_why_a_job_ends_while_its_kind_is_not_served(
    view: JobView, was_seen: bool, namespace: Manifest | None, expected: Ending
) -> None:
    assert ending_of(view, was_seen=was_seen, namespace=namespace, is_served=False) is expected


def test_a_workload_shows_afterwards_that_its_kind_was_not_served() -> None:
    view = a_view(None, showing_held("KindNotServed"))
    assert ending_of(view, was_seen=False, namespace=HERE) is Ending.NOT_SERVED


def test_what_was_asked_for_is_not_inferred() -> None:
    assert [ending for ending in Ending if not ending.is_inferred] == [Ending.NONE, Ending.ASKED]


# --- what is shown ----------------------------------------------------------------------------------------------------


def showing_held(reason: str = "JobMissing") -> Manifest:
    [patch, _] = endings.show_held(a_view(None, RUNNING, deletes_held=True), Ending(reason), now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(patch.body, dict)
    return RUNNING | {"status": RUNNING["status"] | patch.body["status"]}


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending.is_inferred])
def test_a_held_delete_shows_why_and_what_releases_it(ending: Ending) -> None:
    [shown] = [entry for entry in showing_held(ending)["status"]["conditions"] if entry["type"] == HELD_CONDITION]
    assert (shown["status"], shown["reason"]) == ("True", ending)
    assert shown["message"].endswith("look, then `slicebus fleet release east`")


TELLING: dict[str, tuple[JobView, Ending, list[tuple[Any, ...]]]] = {
    "held": (
        a_view(a_job(deleting=True), RUNNING, deletes_held=True),
        Ending.NAMESPACE,
        [("w1", f"{HELD_CONDITION}=True NamespaceTerminating"), ("warn Job", "DeleteHeld")],
    ),
    "held, without a job": (
        a_view(None, RUNNING, deletes_held=True),
        Ending.MISSING,
        [("w1", f"{HELD_CONDITION}=True JobMissing"), ("warn Workload", "DeleteHeld")],
    ),
    "held, and shown": (a_view(None, showing_held(), deletes_held=True), Ending.MISSING, []),
    "not held": (a_view(None, RUNNING), Ending.MISSING, []),
    "released": (a_view(None, showing_held()), Ending.MISSING, [("w1",)]),
    "no longer wanted": (a_view(a_job(), showing_held()), Ending.NONE, [("w1",)]),
}


@pytest.mark.parametrize(("view", "ending", "expected"), TELLING.values(), ids=TELLING.keys())
def test_what_a_workload_shows(view: JobView, ending: Ending, expected: list[tuple[Any, ...]]) -> None:
    assert shorts(endings.show_held(view, ending, now=NOW)) == expected


def test_what_is_released_keeps_the_other_conditions() -> None:
    [patch] = endings.show_held(a_view(None, showing_held()), Ending.MISSING, now=NOW)
    assert isinstance(patch, Patch)
    assert patch.body == {"status": {"conditions": RUNNING["status"]["conditions"]}}


# --- what comes of it -------------------------------------------------------------------------------------------------

GONE = [("warn Job", "DeletedOnWorker"), ("remove Job", "train")]
FOLLOWING: dict[str, tuple[JobView, list[tuple[Any, ...]]]] = {
    "it goes after its copy": (vanished(), GONE),
    "its copy is replaced after an eviction": (
        vanished(job=a_suspended(), conditions=(EVICTED,)),
        [("w1", "version 2 is absent"), ("delete to east", 2)],
    ),
}


@pytest.mark.parametrize(("view", "expected"), FOLLOWING.values(), ids=FOLLOWING.keys())
def test_a_job_without_its_copy(view: JobView, expected: list[tuple[Any, ...]]) -> None:
    assert shorts(reconcile(view, NOW)) == expected


def test_a_job_without_its_copy_that_is_held_stays_as_it_is() -> None:
    workloads = vanished().workloads.values()
    held = a_view(a_job(3), *workloads, deletes_held=True)
    assert reconcile(held, NOW) == []
    places = beside_kueue.Places(frozenset(("east",)), Fleet([], {}, {}), Strategy.SPREAD)
    assert beside_kueue.reconcile(held, places, NOW) == []
    assert shorts(beside_kueue.reconcile(a_view(a_job(), *workloads), places, NOW)) == GONE


# --- orphans ----------------------------------------------------------------------------------------------------------


def orphaned(workload: Manifest, **annotations: str) -> Manifest:
    metadata = workload["metadata"] | {"ownerReferences": []}
    return workload | {"metadata": metadata | {"annotations": metadata["annotations"] | annotations}}


def test_an_orphan_records_its_owner_and_goes_in_the_end() -> None:
    known = orphaned(RUNNING, **{api_names.JOB_ANNOTATION: "Job/train"})
    [patch] = endings.record_owner(a_view(a_job(deleting=True), orphaned(RUNNING)))
    assert isinstance(patch, Patch)
    assert patch.body == {"metadata": {"annotations": {api_names.JOB_ANNOTATION: "Job/train"}}}
    for view in (a_view(None, known), a_view(None, RUNNING), a_view(a_job(), orphaned(RUNNING))):
        assert endings.record_owner(view) == []
    assert shorts(reconcile(a_view(None, orphaned(withdrawn())), NOW)) == [("remove Workload", "w1")]
    assert shorts(reconcile(a_view(None, orphaned(withdrawn(deleting=True))), NOW)) == [("w1", "release")]


def test_a_workload_orphaned_without_a_manager_records_its_owner() -> None:
    job = a_job()
    [created] = [command for command in reconcile(a_view(job), NOW) if isinstance(command, Create)]
    assert owner_ref(orphaned(created.manifest)) == job_ref(job)


# --- with an API server ---------------------------------------------------------------------------------------------


async def many(manager: Manager, count: int = 4) -> list[JobRef]:
    """Jobs that run on east, more than may go at once."""
    manager.store.namespaces.put(await manager.client.get(NAMESPACES, "team"))
    manager.guard.watch()
    refs = []
    for number in range(count):
        job, name = a_job(), f"train-{number}"
        job["metadata"]["name"] = name
        ref = job_ref(await manager.given(JOBS, job))
        workload = a_workload(f"w{number}", admitted=1, dispatched=1, applied=1)
        workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = ref.uid
        workload["metadata"]["ownerReferences"][0] |= {"uid": ref.uid, "name": name}
        for each in workload["status"]["conditions"]:
            each["message"] = "so it is"
        await manager.given(WORKLOADS, workload)
        refs.append(ref)
    return refs


async def forgotten(manager: Manager, ref: JobRef, *, is_seen: bool) -> None:
    cache = manager.store.jobs[ref.kind]
    job = cache.get(ref.namespace, ref.name)
    assert job is not None
    newer = job | {"metadata": job["metadata"] | {"resourceVersion": f"{job['metadata']['resourceVersion']}0"}}
    cache.remove(newer, is_final=is_seen)


async def held(manager: Manager, refs: list[JobRef]) -> list[bool]:
    return [await manager.reconcile_job(ref) for ref in refs]


async def conditions(client: KubeClient) -> set[str]:
    workloads = (await client.list(WORKLOADS)).items
    return {
        entry["reason"]
        for each in workloads
        for entry in each["status"]["conditions"]
        if entry["type"] == HELD_CONDITION
    }


async def test_jobs_that_were_seen_to_go_go_at_once(manager: Manager) -> None:
    refs = await many(manager)
    for ref in refs:
        await forgotten(manager, ref, is_seen=True)
    assert await held(manager, refs) == [False] * 4
    assert [message.type for message in manager.published] == ["delete"] * 4


async def test_jobs_that_are_only_missing_are_held_and_show_why(manager: Manager) -> None:
    refs = await many(manager)
    for ref in refs:
        await forgotten(manager, ref, is_seen=False)
    assert await held(manager, refs) == [True] * 4
    assert await conditions(manager.client) == {"JobMissing"}
    assert manager.published == []


async def test_jobs_whose_delete_is_seen_late_are_held_no_longer(manager: Manager) -> None:
    refs = await many(manager)
    for ref in refs:
        await forgotten(manager, ref, is_seen=False)
    await held(manager, refs)
    gone = [await manager.client.get(JOBS, ref.name, ref.namespace) for ref in refs]
    manager.requeued.clear()
    for job in gone:
        manager.store.jobs["Job"].remove(job, is_final=True)
    assert manager.requeued == refs
    assert await held(manager, refs) == [False] * 4
    assert await conditions(manager.client) == set()
    await held(manager, refs)
    assert [message.type for message in manager.published] == ["delete"] * 4


async def test_a_namespace_is_read_where_its_watch_is_late(manager: Manager) -> None:
    refs = await many(manager)
    await manager.client.delete(NAMESPACES, "team")
    for ref in refs:
        await forgotten(manager, ref, is_seen=True)
    known = manager.store.namespaces.get(None, "team")
    assert known is not None
    assert "deletionTimestamp" not in known["metadata"]
    for workload in (await manager.client.list(WORKLOADS)).items:
        manager.store.workloads.put(workload)
    assert await held(manager, refs) == [True] * 4
    assert await conditions(manager.client) <= {"NamespaceTerminating"}


async def test_copies_that_vanish_together_are_held_and_released_by_their_id(manager: Manager) -> None:
    refs = await many(manager)
    for ref in refs:
        await manager.receive(status(ref, 0, JobPhase.GONE, seen=True))
    assert await held(manager, refs) == [True] * 4
    assert await conditions(manager.client) == {"GoneOnCluster"}
    records = [Dispatch.from_manifest(each) for each in (await manager.client.list(WORKLOADS)).items]
    assert all(record is not None and record.has_vanished for record in records)
    await manager.release("east")
    assert await held(manager, refs) == [False] * 4
    await held(manager, refs)
    assert (await manager.client.list(JOBS)).items == []


async def test_a_job_whose_copy_is_there_again_is_held_no_longer(manager: Manager) -> None:
    refs = await many(manager)
    for ref in refs:
        await manager.receive(status(ref, 0, JobPhase.GONE, seen=True))
    await held(manager, refs)
    for ref in refs:
        await manager.receive(status(ref, 1))
    assert await held(manager, refs) == [False] * 4
    assert await conditions(manager.client) == set()
    assert len((await manager.client.list(JOBS)).items) == 4
