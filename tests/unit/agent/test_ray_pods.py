"""Which pods of a RayCluster or of a RayJob's cluster the agent lets start."""

from typing import Any

import msgspec
import pytest

from slicebus.agent.decide.job import reconcile
from slicebus.agent.state import annotations
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import PatchEach
from slicebus.proto.messages import JobRef
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.ungate import Pod
from unit.agent.objects import REF, a_copy, a_pod

Manifest = dict[str, Any]
WORKERS = "workers"
REPLICA = "ray.io/worker-group-replica-name"
TEMPLATE = {"spec": {"containers": [{"name": "ray", "image": "i"}]}}


def a_spec(*, named: tuple[str, ...] = (), hosts: int = 1, replicas: int = 1) -> Manifest:
    """A cluster with one group, whose autoscaler has named these pods."""
    group = {"groupName": WORKERS, "replicas": replicas, "numOfHosts": hosts, "template": TEMPLATE}
    return {
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [group | {"scaleStrategy": {"workersToDelete": list(named)}}],
    }


def an_object(kind: str, name: str, spec: Manifest, **metadata: Any) -> Manifest:
    given = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "10", "generation": 1}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": given | metadata, "spec": spec}


def a_view(spec: Manifest, granted: int, *pods: Manifest, kind: str = "RayCluster") -> WorkerView:
    """A job with so many workers granted; a RayJob's cluster has the spec."""
    of = JobRef("ray.io/v1", kind, "team", "train", "manager-uid")
    at = annotations.job_metadata(of, workload="w1", version=1, grant={WORKERS: granted})
    job = an_object(kind, "train", spec if kind == "RayCluster" else {"rayClusterSpec": spec}, **at)
    child = an_object("RayCluster", "train-x7k2p", spec)
    return WorkerView(
        key=JobKey(kind, "team", "train"),
        job=job,
        reading=WorkerJobReading.from_manifest(job),
        scale_target=job if kind == "RayCluster" else child,
        copies=(a_copy(of=of, pod_sets=("head", WORKERS)),),
        pods=tuple(map(Pod.from_manifest, pods)),
    )


def a_worker(name: str, *, gated: bool = True, replica: str = "") -> Manifest:
    pod = a_pod(name, gated=gated, phase="Pending" if gated else "Running")
    pod["metadata"]["labels"] = {kueue.POD_SET_LABEL: WORKERS, api_names.MANAGER_UID_LABEL: REF.uid} | (
        {REPLICA: replica} if replica else {}
    )
    return pod


def running(name: str, **how: Any) -> Manifest:
    return a_worker(name, gated=False, **how)


def started(view: WorkerView) -> list[str]:
    commands = reconcile.ungate(view)
    patches = [patch for command in commands if isinstance(command, PatchEach) for patch in command.patches]
    return [patch.target["metadata"]["name"] for patch in patches]


# --- multi-host replicas --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("r1", "r2", "r3"), ("", "", "")], ids=["labels", "no labels"])
def test_whole_replicas_start_whatever_is_granted(names: tuple[str, ...]) -> None:
    """KubeRay labels the pods of a replica from 1.6 on."""
    pods = [a_worker(f"{index}-{host}", replica=name) for index, name in enumerate(names) for host in range(4)]
    view = a_view(a_spec(hosts=4, replicas=3), 10, *pods)
    assert started(view) == [f"{index}-{host}" for index in range(2) for host in range(4)]


@pytest.mark.parametrize("name", ["r2", ""], ids=["labels", "no labels"])
def test_a_replica_starts_when_all_its_hosts_are_there(name: str) -> None:
    here = [running(f"0-{host}", replica=name and "r1") for host in range(4)]
    hosts = [a_worker(f"1-{host}", replica=name) for host in range(4)]
    assert started(a_view(a_spec(hosts=4, replicas=2), 8, *here, *hosts[:3])) == []
    assert started(a_view(a_spec(hosts=4, replicas=2), 8, *here, *hosts)) == ["1-0", "1-1", "1-2", "1-3"]


@pytest.mark.parametrize("name", ["r2", ""], ids=["labels", "no labels"])
def test_a_replica_is_replaced_when_the_last_host_of_the_old_one_has_gone(name: str) -> None:
    going = running("0-3", replica=name and "r1")
    going["metadata"]["deletionTimestamp"] = "now"
    new = [a_worker(f"1-{host}", replica=name) for host in range(4)]
    assert started(a_view(a_spec(hosts=4), 4, going, *new)) == []
    assert started(a_view(a_spec(hosts=4), 4, *new)) == ["1-0", "1-1", "1-2", "1-3"]


# --- named for deletion ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_a_pod_that_is_named_for_deletion_leaves_its_place_to_another(kind: str) -> None:
    pods = [running("a"), a_worker("b"), a_worker("c"), a_worker("d")]
    assert started(a_view(a_spec(named=("b",)), 2, *pods, kind=kind)) == ["c"]


def test_it_waits_though_there_is_room() -> None:
    assert started(a_view(a_spec(named=("b",)), 5, running("a"), a_worker("b"))) == []


def test_a_named_pod_that_runs_keeps_its_place_until_it_has_gone() -> None:
    assert started(a_view(a_spec(named=("a",)), 1, running("a"), a_worker("b"))) == []


def test_when_the_list_is_cleared_its_pods_may_start() -> None:
    assert started(a_view(a_spec(), 2, running("a"), a_worker("b"))) == ["b"]


@pytest.mark.parametrize("strategy", [None, {}, {"workersToDelete": None}], ids=["null", "empty", "null list"])
def test_a_group_without_a_list_names_nobody(strategy: Any) -> None:
    spec = a_spec()
    spec["workerGroupSpecs"][0]["scaleStrategy"] = strategy
    assert started(a_view(spec, 1, a_worker("a"))) == ["a"]


def test_a_replica_is_deleted_whole_so_none_of_its_hosts_starts() -> None:
    pods = [a_worker(f"{replica}-{host}", replica=replica) for replica in ("r1", "r2") for host in (0, 1)]
    assert started(a_view(a_spec(named=("r1-1",), hosts=2), 4, *pods)) == ["r2-0", "r2-1"]


def test_a_host_made_again_does_not_join_a_replica_that_is_named() -> None:
    pods = [running("r1-0", replica="r1"), a_worker("r1-1", replica="r1")]
    assert started(a_view(a_spec(named=("r1-0",), hosts=2), 2, *pods)) == []


@pytest.mark.parametrize(("named", "expected"), [((), ["b"]), (("b",), [])], ids=["not named", "named"])
def test_a_start_without_an_answer_is_not_sent_again_once_its_pod_is_named(
    named: tuple[str, ...], expected: list[str]
) -> None:
    view = a_view(a_spec(named=named), 2, running("a"), a_worker("b"))
    before = view.pods[1]
    after = msgspec.structs.replace(before, is_gated=False)
    unanswered = msgspec.structs.replace(view, pods=(view.pods[0], after), unanswered=(before,))
    assert started(unanswered) == expected
