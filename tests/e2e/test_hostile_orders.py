"""Whoever has the manager's credentials orders what he likes: the cluster makes only what its own policy allows."""

from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from slicebus.agent.act.identity import cluster_uid
from slicebus.ambient.clock import now, random_bytes
from slicebus.bus.factory import connect
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.cli.journal.redrive import select
from slicebus.cli.journal.source import STREAM, Span
from slicebus.journal.entry import Entry, matching
from slicebus.kube.resources import JOBS, RAYCLUSTERS, WORKLOADS
from slicebus.proto.codec import encode
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, JobRef, Refused, WorkloadSpec
from slicebus.proto.topology import AGENT_DEAD, DOWN
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import DISPATCHED_CONDITION
from slicebus.slices.jobs import KINDS
from support import roles
from support.scenario import NAMESPACE, Scenario, elastic, set_quota
from support.waiting import eventually

EAST = ClusterName("east")
SYSTEM = objects.SYSTEM_NAMESPACE
Manifest = dict[str, Any]
UID = "0190ffff-0000-7000-8000-00000000000a"
POLICY = """
serviceAccounts: [default]
runtimeClasses: []
namespaceSelector:
  matchExpressions:
    - {key: jobs, operator: NotIn, values: [none]}
"""


def order(manifest: Manifest, *, of: Manifest | None = None, kind: str = "Job") -> WorkloadSpec:
    """The order that brings a manifest; its reference names `of`."""
    named = (of or manifest)["metadata"]
    job = JobRef(KINDS[kind].resource.api_version, kind, named["namespace"], named["name"], UID)
    genuine = elastic(kind, "forged")
    workload = {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {"name": f"w-{named['name']}", "namespace": named["namespace"]},
        "spec": {"active": True, "podSets": KINDS[kind].pod_sets(genuine)},
    }
    granted = KINDS[kind].counts(genuine, genuine)
    return WorkloadSpec(job=job, spec_version=1, workload=workload, manifest=manifest, granted=granted)


def a_job(namespace: str = NAMESPACE, **pod: Any) -> Manifest:
    job = elastic("Job", "forged")
    job["metadata"]["namespace"] = namespace
    job["spec"]["template"]["spec"] |= pod
    return job


def a_cluster(**head: Any) -> Manifest:
    cluster = elastic("RayCluster", "forged")
    cluster["spec"]["headGroupSpec"] |= head
    return cluster


def a_service(**fields: Any) -> Manifest:
    service = elastic("RayService", "forged")
    service["spec"] |= fields
    return service


def binding() -> Manifest:
    """What would make an agent's account the cluster's administrator."""
    job = a_job()
    return job | {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}


HOST = [{"name": "node", "hostPath": {"path": "/"}}]
GENUINE = a_job()
REFUSED: dict[str, tuple[WorkloadSpec, str]] = {
    "a job of another namespace": (order(a_job("kube-system"), of=GENUINE), "OtherObject"),
    "another kind": (order(binding(), of=GENUINE), "OtherObject"),
    "the cluster's own namespace": (order(a_job("kube-system")), "NamespaceNotAllowed"),
    "the agent's own namespace": (order(a_job(SYSTEM)), "NamespaceNotAllowed"),
    "a namespace that is not there": (order(a_job("nowhere")), "NamespaceNotAllowed"),
    "the node's files": (order(a_job(volumes=HOST)), "PodSecurity"),
    "the node's network": (order(a_job(hostNetwork=True)), "PodSecurity"),
    "another service account": (order(a_job(serviceAccountName="admin")), "ServiceAccountNotAllowed"),
    "a public Service": (order(a_cluster(serviceType="LoadBalancer"), kind="RayCluster"), "ServiceTypeNotAllowed"),
    "an Ingress": (order(a_cluster(enableIngress=True), kind="RayCluster"), "IngressNotAllowed"),
    "a Gateway": (
        order(a_service(upgradeStrategy={"type": "NewClusterWithIncrementalUpgrade"}), kind="RayService"),
        "IngressNotAllowed",
    ),
    "another's Service": (
        order(a_service(serveService={"metadata": {"name": "postgres"}}), kind="RayService"),
        "ServiceNameNotAllowed",
    ),
    "a class of the cluster": (order(a_job(priorityClassName="system-node-critical")), "PriorityClassNotAllowed"),
    "every node": (order(a_job(tolerations=[{"operator": "Exists"}])), "TolerationNotAllowed"),
    "another scheduler": (order(a_job(schedulerName="mine")), "SchedulerNotAllowed"),
    "a runtime": (order(a_job(runtimeClassName="unconfined")), "RuntimeClassNotAllowed"),
    "a driver": (order(a_job(volumes=[{"name": "v", "csi": {"driver": "mine"}}])), "VolumeNotAllowed"),
    "an account with rights": (
        order(a_cluster() | {"spec": a_cluster()["spec"] | {"enableInTreeAutoscaling": True}}, kind="RayCluster"),
        "ServiceAccountNotAllowed",
    ),
}


@pytest.fixture
async def world(bare_east: World, urls: dict[str, str], tmp_path: Path) -> AsyncIterator[World]:
    """A manager, and an agent with a policy that has carried out an order."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    async with roles.manager(bare_east, urls), roles.agent(bare_east, urls, EAST, policy_file=str(policy)):
        await set_quota(bare_east, 4)
        ordinary = Scenario(bare_east, "Job", "ordinary")
        await ordinary.submit()
        await ordinary.expect_pods(running=1)
        await bare_east.manager.delete(JOBS, ordinary.name, NAMESPACE)
        await ordinary.expect_nothing_left()
        yield bare_east


async def ours(world: World) -> list[str]:
    """Everything that the agent has made, in any namespace."""
    label = f"{api_names.ORIGIN_LABEL}={api_names.ORIGIN}"
    found = [(await world.workers[EAST].list(each, labels=label)).items for each in (JOBS, RAYCLUSTERS, WORKLOADS)]
    made = [each["metadata"] | {"kind": each["kind"]} for items in found for each in items]
    return [f"{each['kind']} {each['namespace']}/{each['name']}" for each in made]


async def test_a_stolen_manager_makes_nothing_past_the_clusters_policy(world: World, urls: dict[str, str]) -> None:
    thief = await connect(urls["manager"], name="thief")
    issuer = Issuer(epoch=1, user=thief.user, now=now, random=random_bytes)
    uid = await cluster_uid(world.workers[EAST])

    async def answered(count: int) -> list[Entry] | None:
        found, _ = await select(STREAM, Span(), matching(type=Refused.type), amqp_url=urls["manager"])
        return found if len(found) >= count else None

    async def publish(message: WorkloadSpec) -> None:
        await thief.publish(DOWN, encode(issuer.envelope(message, EAST, uid), message))

    try:
        for number, (name, (message, reason)) in enumerate(REFUSED.items(), start=1):
            await publish(message)
            answers = await eventually(lambda count=number: answered(count), f"{name} is refused")
            received = answers[-1].received
            assert received is not None
            assert isinstance(received.message, Refused)
            assert (received.message.reason, received.message.job) == (reason, message.job), name
            assert await ours(world) == []
        malformed = deepcopy(order(GENUINE))
        malformed.manifest["spec"]["template"] = ["no template"]
        await publish(malformed)

        async def dead() -> bool:
            return (await thief.depth(AGENT_DEAD)).ready == 1

        await eventually(dead, "what cannot be read is a dead letter")
        assert await ours(world) == []
    finally:
        await thief.aclose()


async def test_the_refusal_names_the_rule_where_the_user_looks(world: World) -> None:
    scenario = Scenario(world, "Job", "greedy")
    job = elastic("Job", "greedy")
    job["spec"]["template"]["spec"]["volumes"] = HOST
    await world.manager.create(JOBS, job)
    told = await scenario.expect_event("PodSecurity", on=world.manager)
    assert "hostPathVolumes" in told
    assert "podSecurity: baseline" in told

    async def shown() -> bool:
        workloads = (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items
        conditions = [entry for each in workloads for entry in each.get("status", {}).get("conditions", ())]
        found = {entry["type"]: entry for entry in conditions}.get(DISPATCHED_CONDITION, {})
        return (found.get("status"), found.get("reason")) == ("False", "PodSecurity")

    await eventually(shown, "the Workload says that it is refused")
    assert await ours(world) == []
