"""A tenant with Kubernetes' role `edit` on the manager's cluster writes our annotations onto its own job, to have its
quota freed while its pods run."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.impersonation import Impersonation
from slicebus.kube.resources import WORKLOADS, Resource
from slicebus.proto.errors import ForbiddenError
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from support.scenario import NAMESPACE, Scenario, expect_used, set_quota
from support.waiting import eventually

TENANT = Impersonation("tenant")
RBAC = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
FAR = 1_000_000
Manifest = dict[str, Any]


async def admit_tenant(world: World) -> None:
    """Give a user the role `edit`, and what the manager's chart adds to it for Ray's kinds."""
    rule = {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["create", "update", "patch", "delete"]}
    ray = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": [rule]}
    await world.ensure(world.manager, ROLES, ray | {"metadata": {"name": "ray", "namespace": NAMESPACE}})
    for kind, name in (("ClusterRole", "edit"), ("Role", "ray")):
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"tenant-{name}", "namespace": NAMESPACE},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": TENANT.user}],
        }
        await world.ensure(world.manager, RBAC, binding)


@pytest.fixture
async def tenant(parts: str, world: World) -> Impersonation | None:
    """Who writes: an embedded API server knows no users."""
    if parts == "embedded":
        return None
    await admit_tenant(world)
    return TENANT


def shrunk(worker: Manifest, own: Mapping[str, int]) -> dict[str, str]:
    """A request of its worker for no pod, newer than any other."""
    record = {
        "counts": dict.fromkeys(own, 0),
        "worker_uid": worker["metadata"]["uid"],
        "worker_generation": FAR,
        "baseline": own,
        "correlation": "tenant",
        "epoch": FAR,
        "sequence": FAR,
        "revision": FAR,
        "granted": dict.fromkeys(own, 0),
    }
    return {api_names.REQUESTED_ANNOTATION: msgspec.json.encode(record).decode()}


def ended(worker: Manifest, own: Mapping[str, int]) -> dict[str, str]:
    """The same, where all its pods have ended for good."""
    [(name, text)] = shrunk(worker, own).items()
    return {name: msgspec.json.encode(msgspec.json.decode(text) | {"finished": dict.fromkeys(own, 9)}).decode()}


def withdrawn(worker: Manifest, own: Mapping[str, int]) -> dict[str, str]:
    """Its worker has reported that it holds nothing."""
    record = {"version": FAR, "hash": api_names.ABSENT, "cluster": "east"}
    return {
        api_names.DISPATCHED_ANNOTATION: msgspec.json.encode(record).decode(),
        api_names.APPLIED_ANNOTATION: str(FAR),
    }


def elsewhere(worker: Manifest, own: Mapping[str, int]) -> dict[str, str]:
    """Another cluster has it, and both clusters have copies that count as removed."""
    record = {"version": FAR, "hash": "x", "cluster": "nowhere", "behind": {"east": FAR, "west": FAR}}
    return {
        api_names.DISPATCHED_ANNOTATION: msgspec.json.encode(record).decode(),
        api_names.APPLIED_ANNOTATION: str(FAR),
    }


ATTACKS = (shrunk, ended, withdrawn, elsewhere)
Attack = Callable[[Manifest, Mapping[str, int]], dict[str, str]]


@pytest.mark.parametrize("kind", [pytest.param("Job", marks=pytest.mark.real), "RayCluster", "RayJob"])
async def test_it_frees_no_quota_while_its_pods_run(world: World, kind: str, tenant: Impersonation | None) -> None:
    """Beside it another job waits for the quota, until the first one gives some up as everybody does."""
    await set_quota(world, 20)
    greedy = Scenario(world, kind, "greedy")
    await greedy.submit()
    await greedy.expect_pods(running=1)
    await greedy.scale(4)
    await greedy.expect_pods(running=4)
    used, runs = await fill(world, greedy), await greedy.running()
    job = await world.manager.get(greedy.resource, "greedy", NAMESPACE)
    written = await written_by_tenant(world, greedy, tenant, own=KINDS[kind].counts(job, job))
    other = Scenario(world, "Job", "other")
    await other.submit()
    await expect_waits(world, other)
    await expect_used(world, used)
    assert await greedy.running() == runs
    assert written <= (await world.manager.get(greedy.resource, "greedy", NAMESPACE))["metadata"]["annotations"].items()

    await greedy.scale(3)
    await greedy.expect_pods(running=3)
    await other.expect_pods(running=1)


async def fill(world: World, scenario: Scenario) -> str:
    """Leave no core beside those that a job has; how many cores these are."""
    [slice] = await scenario.expect_unfinished(4)
    cores, rest = divmod(sum(amount for (_, resource), amount in slice.usage.items() if resource == "cpu"), 1000)
    await set_quota(world, cores + bool(rest))
    used = f"{1000 * cores + rest}m" if rest else str(cores)
    await expect_used(world, used)
    return used


async def written_by_tenant(
    world: World, scenario: Scenario, tenant: Impersonation | None, *, own: Mapping[str, int]
) -> set[tuple[str, str]]:
    """Write each attack onto the job, one after the other; what the last ones have left there.

    With each goes an edit whose copy on the slice shows that the manager has decided about the job since.
    """
    worker, left = await scenario.worker_job(), {}
    for number, attack in enumerate((*ATTACKS, *ATTACKS)):
        selector = f"slicebus.test/round notin ({number})"
        written = attack(worker, own) | {api_names.CLUSTER_SELECTOR_ANNOTATION: selector}
        body = MergePatch({"metadata": {"annotations": written}})
        await world.manager.patch(scenario.resource, scenario.name, NAMESPACE, body, impersonate=tenant)
        left |= written

        async def is_seen(selector: str = selector) -> bool:
            [workload] = await unfinished(world, scenario)
            return workload["metadata"]["annotations"].get(api_names.CLUSTER_SELECTOR_ANNOTATION) == selector

        await eventually(is_seen, f"the slice has the selector of round {number}")
    return set(left.items())


async def unfinished(world: World, scenario: Scenario) -> list[Manifest]:
    """The Workloads of the slices that have not finished."""
    names = [slice.name for slice in await scenario.chain() if not slice.finished]
    return [await world.manager.get(WORKLOADS, name, NAMESPACE) for name in names]


async def expect_waits(world: World, scenario: Scenario) -> None:
    async def look() -> bool:
        stated = [
            (entry["type"], entry["status"])
            for workload in await unfinished(world, scenario)
            for entry in conditions_of(workload)
        ]
        return (Condition.QUOTA_RESERVED, "False") in stated

    await eventually(look, f"{scenario.name} waits for quota")


@pytest.mark.real
async def test_it_writes_no_workload(world: World, parts: str, tenant: Impersonation | None) -> None:
    if parts == "embedded":
        pytest.skip("an embedded API server knows no users")
    await set_quota(world, 20)
    job = Scenario(world, "Job", "train")
    await job.submit()
    await job.expect_pods(running=1)
    [slice] = await job.chain()
    body = MergePatch({"metadata": {"annotations": {api_names.REQUESTED_ANNOTATION: "{}"}}})
    with pytest.raises(ForbiddenError):
        await world.manager.patch(WORKLOADS, slice.name, NAMESPACE, body, impersonate=tenant)
