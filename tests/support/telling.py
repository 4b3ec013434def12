"""What a worker's user and an operator are told of an outage: on the worker's job, by Events, on the Leases."""

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import EVENTS, LEASES
from slicebus.runtime.leadership import NOT_READY_ANNOTATION
from slicebus.slices.workload.waiting import Waiting
from support.scenario import NAMESPACE, Scenario
from support.waiting import PATIENCE_S, eventually


async def shown(scenario: Scenario, reason: str, *, within_s: float = PATIENCE_S) -> Waiting:
    """Why the worker's job waits, as soon as this is the reason."""

    async def look() -> Waiting | None:
        found = Waiting.from_manifest(await scenario.worker_job())
        return found if found is not None and found.reason == reason else None

    found = await eventually(look, f"the worker's job shows {reason}", within_s=within_s)
    assert found is not None
    return found


async def not_shown(scenario: Scenario) -> None:
    """Wait until the worker's job shows no reason to wait."""

    async def look() -> bool:
        return Waiting.from_manifest(await scenario.worker_job()) is None

    await eventually(look, "the worker's job shows no reason")


async def events_of(scenario: Scenario, reason: str) -> int:
    """How often a reason was told by Events on the worker's job."""
    found = (await (await scenario.worker()).list(EVENTS, namespace=NAMESPACE)).items
    own = [event for event in found if event["involvedObject"]["name"] == scenario.name]
    return sum(event.get("count") or 1 for event in own if event["reason"] == reason)


async def expect_one_event(scenario: Scenario, reason: str) -> None:
    """That was told on the worker's job, and once."""
    await scenario.expect_event(reason, on=await scenario.worker())
    assert await events_of(scenario, reason) == 1


async def expect_lease_says(client: KubeClient, role: str, reason: str) -> None:
    """Within a renewal."""

    async def look() -> bool:
        lease = await client.get(LEASES, f"slicebus-{role}", objects.SYSTEM_NAMESPACE)
        return reason in (lease["metadata"].get("annotations") or {}).get(NOT_READY_ANNOTATION, "")

    await eventually(look, f"the Lease of the {role} says why")
