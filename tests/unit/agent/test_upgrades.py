"""A RayService that is edited at the manager: what reaches the copy that runs, and what does not."""

from typing import Any

import jsonpatch
import pytest
from msgspec import structs

from slicebus.agent.decide.order import orders
from slicebus.agent.decide.order.policy import creator
from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state import annotations
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Create, Patch
from slicebus.proto.messages import MOST_COUNT, JobRef, PodSetFlavor, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import kueue
from slicebus.slices.jobs import KINDS
from unit.agent.objects import EAST, a_spec
from unit.slices.jobs.manifests import a_cluster_spec, a_group, a_rayservice

Manifest = dict[str, Any]
REF = JobRef("ray.io/v1", "RayService", "team", "chat", "manager-uid")
NOTHING = WorkerView(key=JobKey("RayService", "team", "chat"), job=None)
SERVICE = KINDS["RayService"]
HUGE = {"replicas": MOST_COUNT, "minReplicas": 0, "maxReplicas": MOST_COUNT}
CONTAINER = "/spec/rayClusterConfig/workerGroupSpecs/0/template/spec/containers"
IMAGE = {"path": f"{CONTAINER}/0/image", "value": "ray:next"}
APPLICATIONS = {"path": "/spec/serveConfigV2", "value": "applications: [next]"}
PATIENCE = {"path": "/spec/rayClusterDeletionDelaySeconds", "value": 5}


def managers(*edits: Manifest, autoscales: bool = True) -> Manifest:
    cluster = a_cluster_spec(a_group("small", replicas=1), enableInTreeAutoscaling=autoscales)
    service = a_rayservice(cluster=cluster)
    service["metadata"] |= {"name": "chat", "namespace": "team", "uid": REF.uid}
    edited: Manifest = jsonpatch.apply_patch(service, [{"op": "add"} | edit for edit in edits])
    return edited


def an_order(version: int, *edits: Manifest, **how: Any) -> WorkloadSpec:
    """The manager's order for a service that was edited after it got its quota."""
    order = a_spec(version, job=REF, manifest=managers(*edits, **how), granted=1)
    pod_sets = SERVICE.pod_sets(managers(**how))
    workload = order.workload | {"spec": order.workload["spec"] | {"podSets": pod_sets}}
    return structs.replace(order, workload=workload, granted={"head": 1, "small": 1}, flavors={})


def carried_out(view: WorkerView, order: WorkloadSpec) -> tuple[WorkerView, list[Patch]]:
    """The view after the order, and the patches of the service's spec."""
    number: int | None = 0
    patches = []
    while number is not None:
        step = orders.next_step(orders.workload_spec(order, EAST), number, view)
        for command in step.commands:
            match command:
                case Create(manifest={"kind": "RayService"} as made):
                    view = seen(view, made | {"metadata": made["metadata"] | {"uid": "w", "resourceVersion": "1"}})
                case Patch(target={"kind": "RayService"}, body=list() as body):
                    patches.append(command)
                    view = seen(view, jsonpatch.apply_patch(view.job, body))
                case Patch(target={"kind": "RayService"}, body=dict() as body):
                    assert view.job is not None
                    view = seen(view, merge_patch(view.job, body))
        number = step.then
    return view, patches


def seen(view: WorkerView, job: Manifest) -> WorkerView:
    return structs.replace(view, job=job, reading=WorkerJobReading.from_manifest(job))


def made(*edits: Manifest, **how: Any) -> WorkerView:
    return carried_out(NOTHING, an_order(1, *edits, **how))[0]


def edited_here(view: WorkerView, *edits: Manifest) -> WorkerView:
    return seen(view, jsonpatch.apply_patch(view.job, [{"op": "add"} | edit for edit in edits]))


def spec_of(view: WorkerView) -> Manifest:
    assert view.job is not None
    spec: Manifest = view.job["spec"]
    return spec


def group_of(view: WorkerView) -> Manifest:
    group: Manifest = spec_of(view)["rayClusterConfig"]["workerGroupSpecs"][0]
    return group


@pytest.mark.parametrize(
    "edits",
    [[APPLICATIONS], [IMAGE], [IMAGE, APPLICATIONS], [PATIENCE]],
    ids=["its applications", "its image", "both", "another field"],
)
def test_an_edit_reaches_the_copy_once(edits: list[Manifest]) -> None:
    view, [patch] = carried_out(made(), an_order(2, *edits))
    assert isinstance(patch.body, list)
    assert {change["path"] for change in patch.body} == {"/".join(edit["path"].split("/")[:3]) for edit in edits}, (
        "a field that was not edited is left alone: KubeRay prepares a cluster for any change of a cluster's spec"
    )
    assert spec_of(view) == SERVICE.worker_copy(managers(*edits), labelled())["spec"]
    assert annotations.bounds(view.job or {}) == SERVICE.bounds(managers(*edits))
    assert carried_out(view, an_order(3, *edits))[1] == []


def labelled() -> Any:
    """The placements of an order without flavors."""
    return orders.places(an_order(1))


def test_what_somebody_edits_here_stays_until_the_same_field_is_edited_at_the_manager() -> None:
    here = edited_here(made(), {"path": "/spec/serveConfigV2", "value": "here"}, {"path": PATIENCE["path"], "value": 9})
    view, _ = carried_out(here, an_order(2, IMAGE))
    assert (spec_of(view)["serveConfigV2"], spec_of(view)["rayClusterDeletionDelaySeconds"]) == ("here", 9)
    view, _ = carried_out(view, an_order(3, IMAGE, APPLICATIONS))
    assert (spec_of(view)["serveConfigV2"], spec_of(view)["rayClusterDeletionDelaySeconds"]) == (
        APPLICATIONS["value"],
        9,
    )


def test_sizes_of_the_worker_stay_and_new_nodes_come_with_the_edit() -> None:
    here = edited_here(made(), {"path": "/spec/rayClusterConfig/workerGroupSpecs/0/replicas", "value": 4})
    flavor = PodSetFlavor(node_labels={"pool": "a"}, tolerations=[])
    placed = structs.replace(an_order(2), flavors={"small": flavor})
    view, patches = carried_out(here, placed)
    assert patches == [], "other nodes alone prepare no cluster"
    view, _ = carried_out(view, structs.replace(an_order(3, IMAGE), flavors={"small": flavor}))
    assert (group_of(view)["replicas"], group_of(view)["template"]["spec"]["nodeSelector"]) == (4, {"pool": "a"})
    assert group_of(view)["template"]["spec"]["schedulingGates"] == [{"name": kueue.ELASTIC_GATE}]


def test_its_pods_request_what_the_slice_is_charged_for() -> None:
    more = {"path": f"{CONTAINER}/0/resources", "value": {"requests": {"cpu": "64"}}}
    view = made()
    assert carried_out(view, an_order(2, more))[1] == [], "nothing else was edited"
    before = group_of(view)["template"]["spec"]["containers"][0]["resources"]
    view, _ = carried_out(view, an_order(3, more, IMAGE))
    [container] = group_of(view)["template"]["spec"]["containers"]
    assert (container["resources"], container["image"]) == (before, "ray:next")


SIDECAR = {"path": f"{CONTAINER}/1", "value": {"name": "sidecar", "resources": {"requests": {"cpu": "1"}}}}


@pytest.mark.parametrize(
    "edit",
    [
        SIDECAR,
        {"path": "/spec/rayClusterConfig/enableInTreeAutoscaling", "value": False},
        {"path": "/spec/rayClusterConfig/workerGroupSpecs/0/groupName", "value": "large"},
        {"path": "/spec/rayClusterConfig/workerGroupSpecs/0/numOfHosts", "value": 2},
        {"path": "/spec/rayClusterConfig/workerGroupSpecs/0/minReplicas", "value": 99},
        {"path": f"{CONTAINER}/0/resources", "value": {"requests": {"cpu": "no number"}}},
        {"path": "/spec/upgradeStrategy", "value": {"type": "Surprise"}},
    ],
    ids=[
        "a container more",
        "no autoscaler",
        "another group",
        "larger replicas",
        "bounds that KubeRay refuses",
        "no quantity",
        "an upgrade that is none",
    ],
)
def test_what_cannot_be_had_is_taken_over_in_no_part(edit: Manifest) -> None:
    view = made()
    after, patches = carried_out(view, an_order(2, edit, APPLICATIONS))
    assert [p for p in patches if "serveConfigV2" in str(p.body)] == []
    assert spec_of(after)["serveConfigV2"] == spec_of(view)["serveConfigV2"]
    assert carried_out(after, an_order(2, edit, APPLICATIONS)) == (after, [])
    after, _ = carried_out(after, an_order(3, APPLICATIONS))
    assert spec_of(after)["serveConfigV2"] == APPLICATIONS["value"], "as soon as the other edit is undone"


def test_the_policy_of_the_cluster_judges_it_and_the_account_of_the_namespace_writes_it() -> None:
    policy = Policy(create_as="jobs", pod_security="baseline", own_namespace="slicebus")
    view = structs.replace(made(), policy=policy)
    _, [patch] = carried_out(view, an_order(2, IMAGE))
    assert patch.impersonate == creator(policy, "team")
    host = {"path": "/spec/rayClusterConfig/headGroupSpec/template/spec/hostNetwork", "value": True}
    with pytest.raises(RefusedOrder, match="podSecurity"):
        carried_out(view, an_order(2, host))
    assert carried_out(view, an_order(2))[1] == []


def test_a_copy_of_an_older_agent_keeps_what_it_has() -> None:
    view = made()
    assert view.job is not None
    bounds = {name: value for name, value in (annotations.bounds(view.job) or {}).items() if name != "fields"}
    older = merge_patch(view.job, {"metadata": {"annotations": {"slicebus.dev/bounds": str(bounds).replace("'", '"')}}})
    view, patches = carried_out(seen(view, older), an_order(2, IMAGE))
    assert patches == []
    assert carried_out(view, an_order(3, APPLICATIONS, IMAGE))[1] != []


def test_a_size_of_the_manager_is_also_that_of_the_next_cluster() -> None:
    more = {"path": "/spec/rayClusterConfig/workerGroupSpecs/0/replicas", "value": 3}
    view, _ = carried_out(made(autoscales=False), an_order(2, more, autoscales=False))
    assert group_of(view)["replicas"] == 3


def test_the_pods_of_two_huge_clusters_are_a_count_that_a_request_takes() -> None:
    job = managers() | {"status": {}}
    huge = {"kind": "RayCluster", "metadata": {"uid": "c"}, "spec": a_cluster_spec(a_group("small", **HUGE))}
    reading = WorkerJobReading(job, REF, "w1", 1, {"head": 1, "small": 1}, None, False, False, SERVICE.outcome(job))
    view = structs.replace(NOTHING, job=job, reading=reading, scale_target=huge, beside=(huge,))
    assert view.counts == {"head": 2, "small": MOST_COUNT}
