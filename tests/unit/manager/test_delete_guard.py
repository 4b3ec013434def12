"""What the guard of deletes reads before it lets one go."""

import pytest
from prometheus_client import CollectorRegistry

from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS, NAMESPACES, WORKLOADS
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.decide.cluster.delete_breaker import DeleteLimits
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import UnavailableError
from slicebus.proto.messages import Applied, Heartbeat, Inventory, InventoryItem, JobPhase, JobRef, Message, Status
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.slices.api import kueue
from support.refusing import UNSERVED, refusing
from unit.manager.message_router import Manager
from unit.manager.objects import a_job, a_workload


async def running_jobs(manager: Manager, count: int) -> list[JobRef]:
    """Jobs that run on east."""
    refs = []
    for number in range(count):
        job, workload = a_job(), a_workload(f"w{number}", admitted=1, dispatched=1, applied=1)
        job["metadata"]["name"] = f"many-{number}"
        refs.append(ref := job_ref(await manager.given(JOBS, job)))
        workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = ref.uid
        workload["metadata"]["ownerReferences"][0] |= {"uid": ref.uid, "name": ref.name}
        for condition in workload["status"]["conditions"]:
            condition["message"] = condition["message"] or "so it is"
        await manager.given(WORKLOADS, workload)
    return refs


INVENTED = [JobRef("batch/v1", "Job", "team", f"invented-{number}", f"uid-{number}") for number in range(50)]
ITEMS = [InventoryItem(ref.kind, ref.namespace, ref.name, ref.uid, 1, "", "") for ref in INVENTED]
CLAIMS: dict[str, list[Message]] = {
    "as many as there are": [Heartbeat(jobs=10)],
    "many more, by a heartbeat": [Heartbeat(jobs=2**31 - 1)],
    "many more, by an inventory, and that they are no strays": [
        Inventory(round=1, page=0, last=False, items=ITEMS),
        *(Applied(job=ref, workload="w", spec_version=1) for ref in INVENTED),
        Inventory(round=1, page=1, last=True, items=[]),
    ],
}


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS.keys())
async def test_an_agent_that_says_it_has_many_jobs_gets_no_more_of_them_deleted(
    manager: Manager, claims: list[Message]
) -> None:
    refs = await running_jobs(manager, 10)
    for claim in claims:
        await manager.receive(claim)
    for number, ref in enumerate(refs):
        gone = Status(job=ref, workload=f"w{number}", spec_version=1, phase=JobPhase.GONE, seen=True)
        await manager.receive(gone)
    held = [await manager.reconcile_job(ref) for ref in refs]
    assert held.count(False) <= 2
    assert len((await manager.client.list(JOBS)).items) >= 8


async def test_a_namespace_whose_path_is_not_served_for_a_moment_is_still_there() -> None:
    """Without it no job of the namespace would be admitted, until somebody edits it: its version counts as gone."""
    store = ManagerStore()
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        store.namespaces.put(await client.create(NAMESPACES, {"metadata": {"name": "team"}}))
        guard = DeleteGuard(
            DeleteLimits(share=1.0, count=1, window_s=1.0),
            client=client,
            decide=Decider(store),
            executor=None,  # type: ignore[arg-type]
            requeue=lambda _: None,
            registry=CollectorRegistry(),
        )
        with refusing(server.api, UNSERVED, verbs="GET"), pytest.raises(UnavailableError, match="not served now"):
            await guard._read_namespace("team")
        await store.namespaces.replace((await client.list(NAMESPACES)).items, "9")
    assert store.namespaces.get(None, "team") is not None
