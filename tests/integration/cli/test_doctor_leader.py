"""What `slicebus doctor` says of a role that does not work: that, by name, and nothing of the clusters."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slicebus.ambient.clock import now
from slicebus.bus.factory import connect
from slicebus.cli.cluster.options import ClusterAccess
from slicebus.cli.demo import objects
from slicebus.cli.doctor.check import Check
from slicebus.cli.doctor.checks import checks, needs_of
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, JOB_RESOURCES, LEASES, NAMESPACES, WORKERCLUSTERS
from slicebus.kube.times import micro_time_text
from slicebus.proto.messages import Manifest
from slicebus.proto.topology import DEAD, JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES, journal_queues, manager_topology
from slicebus.runtime.leadership import annotations
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.controllers import crds as ray_crds
from slicebus.slices.jobs import KINDS, LEFT_OUT
from slicebus.slices.jobs.declaration import Declaration
from slicebus.slices.jobs.declared import DeclaredKind
from support.declared.cluster import definitions
from support.kubeconfig import write_kubeconfig
from unit.bus.letters import dead
from unit.slices.jobs.test_declaration import changed


class Doctor:
    """The manager's cluster as somebody looks at it."""

    def __init__(self, client: KubeClient, kubeconfig: Path, broker: str) -> None:
        self.client = client
        self._kubeconfig = kubeconfig
        self._broker = broker

    async def lease(self, not_ready: str = "", left_out: tuple[str, ...] = (), holder: str = "manager-1") -> None:
        written = annotations(not_ready=not_ready, left_out=left_out)
        metadata = {"name": "slicebus-manager", "namespace": objects.SYSTEM_NAMESPACE}
        spec = {"holderIdentity": holder, "renewTime": micro_time_text(now())}
        manifest: Manifest = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": metadata | {"annotations": {name: text for name, text in written.items() if text}},
            "spec": spec | {"leaseDurationSeconds": 12, "leaseTransitions": 7},
        }
        await self.client.create(LEASES, manifest)

    @property
    def broker_url(self) -> str:
        return f"memory://manager@{self._broker}"

    async def findings(self) -> dict[str, Check]:
        journal = journal_queues(max_age=JOURNAL_MAX_AGE, max_bytes=JOURNAL_MAX_BYTES)
        needs = needs_of(None, objects.SYSTEM_NAMESPACE, journal)
        access = ClusterAccess(kubeconfig=str(self._kubeconfig))
        found = checks(needs, cluster=None, amqp_url=self.broker_url, access=access)
        return {check.subject: check async for check in found}


@pytest.fixture
async def doctor(tmp_path: Path, broker_name: str) -> AsyncIterator[Doctor]:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        for definition in custom_resource_definitions():
            await client.create(CRDS, definition)
        await client.create(NAMESPACES, objects.namespace(objects.SYSTEM_NAMESPACE))
        await client.create(WORKERCLUSTERS, objects.worker_cluster("east"))
        yield Doctor(client, write_kubeconfig(tmp_path / "kubeconfig", server.url), broker_name)


async def test_a_manager_that_never_led_has_to_be_started_and_no_cluster_is_blamed(doctor: Doctor) -> None:
    found = await doctor.findings()
    assert found["leader"].found == "nobody has ever led: there is no Lease slicebus-system/slicebus-manager"
    assert found["leader"].advice
    assert found["cluster east"].ok
    assert "unknown until the check of the leader passes" in found["cluster east"].found


async def test_a_manager_that_waits_is_named_with_what_it_waits_for(doctor: Doctor) -> None:
    await doctor.lease("waits: the definition workloads.kueue.x-k8s.io is missing")
    found = await doctor.findings()
    assert "manager-1 leads and does not work: waits: the definition workloads" in found["leader"].found
    assert not found["leader"].ok
    assert found["cluster east"].ok


async def test_a_manager_that_gave_its_lease_back_does_not_lead(doctor: Doctor) -> None:
    await doctor.lease(holder="")
    found = await doctor.findings()
    told = r"nobody leads since \S+Z, says the Lease slicebus-system/slicebus-manager"
    assert re.fullmatch(told, found["leader"].found)
    assert next(iter(found)) == "leader", "before everything else"


async def test_a_working_manager_names_what_it_leaves_out_and_a_silent_cluster_is_shown(doctor: Doctor) -> None:
    await doctor.lease(left_out=("RayJob: the definition rayjobs.ray.io is missing",))
    found = await doctor.findings()
    assert found["leader"].ok
    assert "manager-1 leads and works, epoch 7; it leaves out RayJob: the definition" in found["leader"].found
    assert not found["cluster east"].ok
    assert found["cluster east"].found == "not connected"


async def test_a_fleet_without_a_cluster_is_told_how_one_joins(doctor: Doctor) -> None:
    await doctor.lease()
    await doctor.client.delete(WORKERCLUSTERS, "east")
    fleet = (await doctor.findings())["fleet"]
    assert (fleet.found, fleet.advice) == ("no WorkerCluster", "let each worker cluster join: slicebus fleet join NAME")


async def test_a_revoked_cluster_is_told_how_it_joins_again(doctor: Doctor) -> None:
    await doctor.lease()
    await doctor.client.patch(WORKERCLUSTERS, "east", None, MergePatch({"spec": {"accepted": False}}))
    east = (await doctor.findings())["cluster east"]
    assert east.found == "not accepted"
    assert east.advice.startswith("let it join: slicebus fleet join east; ")


async def test_a_dead_letter_is_a_finding(doctor: Doctor) -> None:
    bus = await connect(doctor.broker_url, name="test")
    try:
        await bus.declare(manager_topology())
        assert (await doctor.findings())["dead letters"].found == "none"
        await bus.publish(DEAD, dead())
        found = (await doctor.findings())["dead letters"]
        assert (found.ok, found.found) == (
            False,
            "1 message: 1 scale-request of east in the lane control: unknown-cluster",
        )
        assert (await bus.depth(DEAD)).ready == 1, "it stays there"
    finally:
        await bus.aclose()


async def test_job_kinds_that_are_not_served_are_named_and_no_fault(doctor: Doctor) -> None:
    await doctor.lease()
    kinds = (await doctor.findings())["job kinds"]
    assert kinds.ok
    assert kinds.found.startswith(
        "the API server serves Job; without rayclusters.ray.io, rayjobs.ray.io, rayservices.ray.io"
    )
    for definition in custom_resource_definitions(ray_crds.__name__):
        await doctor.client.create(CRDS, definition)
    assert (await doctor.findings())["job kinds"].found == "the API server serves Job, RayCluster, RayJob, RayService"


async def test_a_package_that_does_not_bring_its_job_kind_is_a_fault(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await doctor.lease()
    monkeypatch.setitem(LEFT_OUT, "train", "train_job:TrainJob is no job kind: it has no counts")
    kinds = (await doctor.findings())["job kinds"]
    assert kinds.found.endswith("; left out: train_job:TrainJob is no job kind: it has no counts")
    assert kinds.advice == "repair or remove the package or the declaration of the kind; every other kind is run"


async def test_a_declaration_with_a_wrong_path_is_a_fault(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    await doctor.lease()
    entry = changed("JobSet", "spec.suspended", "suspendPath")
    monkeypatch.setitem(KINDS, "JobSet", DeclaredKind(Declaration.read(entry)))
    monkeypatch.setitem(JOB_RESOURCES, "JobSet", KINDS["JobSet"].resource)
    await doctor.client.create(CRDS, definitions()[0])
    kinds = (await doctor.findings())["job kinds"]
    wrong = "the declaration of JobSet does not fit: suspendPath: the schema has no spec.suspended"
    assert kinds.found.endswith(f"; left out: {wrong}")
    assert kinds.advice
