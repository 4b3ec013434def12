"""What is set and not honored is told: on queues and flavors, on the Workloads of jobs, by explain and doctor."""

from typing import Any

import pytest

from slicebus.cli.doctor.field_checks import fields_found
from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES, RESOURCEFLAVORS
from slicebus.manager.decide.admission import builtin, honoring
from slicebus.manager.decide.admission.queue_status import statuses
from slicebus.manager.decide.problems import problems
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Manifest
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.fields import FIELDS, UNKNOWN
from slicebus.slices.quota.quota import ClusterQueue
from unit.manager.objects import NOW, a_job, a_view, a_workload, shorts
from unit.slices.builders import ledger_of

QUEUE: Manifest = {
    "metadata": {"name": "cq", "generation": 1},
    "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}},
}
LOCAL: Manifest = {
    "metadata": {"name": "queue", "namespace": "team", "generation": 1},
    "spec": {"clusterQueue": "cq", "topologyName": "racks"},
}
FLAVOR: Manifest = {"metadata": {"name": "spot", "generation": 1}, "spec": {"topologyName": "racks"}}


def told(manifest: Manifest) -> tuple[str, str] | None:
    conditions = manifest.get("status", {}).get("conditions", ())
    found = (entry for entry in conditions if entry["type"] == api_names.HONORED_CONDITION)
    return next(((entry["status"], entry["message"]) for entry in found), None)


def reported(*objects: Manifest) -> list[Manifest]:
    """A ClusterQueue, a LocalQueue and a flavor as they are after what the manager writes."""
    queue, local, flavor = objects
    written = [
        *statuses({"cq": ClusterQueue.from_manifest(queue)}, (), [queue], [local], ledger_of(), now=NOW),
        *honoring.of_objects(RESOURCEFLAVORS, [flavor], now=NOW),
    ]
    after = {CLUSTERQUEUES: queue, LOCALQUEUES: local, RESOURCEFLAVORS: flavor}
    for command in written:
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        assert command.subresource == "status"
        after[command.resource] = merge_patch(after[command.resource], command.body)
    return list(after.values())


def test_an_object_says_what_is_not_honored_of_it() -> None:
    once = reported(QUEUE, LOCAL, FLAVOR)
    paths = (
        ("ClusterQueue", "spec.admissionChecksStrategy"),
        ("LocalQueue", "spec.topologyName"),
        ("ResourceFlavor", "spec.topologyName"),
    )
    assert [told(found) for found in once] == [
        ("False", f"{path} is not honored: {FIELDS[kind][path].instead if path in FIELDS[kind] else UNKNOWN}")
        for kind, path in paths
    ]
    assert reported(*once) == once, "once"

    mended = [{**found, "spec": spec} for found, spec in zip(once, ({}, {"clusterQueue": "cq"}, {}), strict=True)]
    assert [told(found) for found in reported(*mended)] == [("True", "Every field that is set is honored")] * 3


def test_an_object_whose_fields_are_honored_says_nothing() -> None:
    plain = ({**QUEUE, "spec": {}}, {**LOCAL, "spec": {"clusterQueue": "cq"}}, {**FLAVOR, "spec": {}})
    assert [told(found) for found in reported(*plain)] == [None] * 3


TOPOLOGY = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}}
ASKED = "template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]"


def asking() -> Manifest:
    job = a_job()
    job["spec"]["template"] = TOPOLOGY | job["spec"]["template"]
    return job


def a_slice(**how: Any) -> Manifest:
    return a_workload(**({"admitted": 1, "dispatched": 1, "applied": 1} | how))


def test_a_job_says_on_its_workloads_what_is_not_honored() -> None:
    workload = a_slice()
    workload["spec"]["podSets"][0]["minCount"] = 1
    view = a_view(asking(), workload)
    patch, event = honoring.of_job(view, asking(), now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    shown = merge_patch(workload, patch.body)
    status, message = told(shown) or ("", "")
    assert status == "False"
    assert all(f"{path} is not honored: " in message for path in (ASKED, "spec.podSets[].minCount"))
    assert (event.reason, event.note, event.warning) == ("NotHonored", message, True)
    assert honoring.of_job(a_view(asking(), shown), asking(), now=NOW) == []
    [back] = honoring.of_job(a_view(a_job(), merge_patch(shown, {"spec": {"podSets": []}})), a_job(), now=NOW)
    assert isinstance(back, Patch)


@pytest.mark.parametrize("pending", [False, True], ids=["that runs", "that waits"])
def test_a_reconcile_tells_of_a_job(pending: bool) -> None:
    workload = a_workload() if pending else a_slice()
    commands = builtin.reconcile(a_view(asking(), workload, published=2), NOW)
    if not pending:
        # First comes the order, which is written on the same object.
        assert not is_told(commands)
        [ordered, *_] = [command for command in commands if isinstance(command, Patch)]
        workload = merge_patch(workload, ordered.body)
        commands = builtin.reconcile(a_view(asking(), workload, published=2), NOW)
    assert is_told(commands)


def test_a_cluster_selector_that_is_edited_into_none_is_told_at_once() -> None:
    """It counts when the job starts next, which may be in a week."""
    job = a_job(annotations={api_names.CLUSTER_SELECTOR_ANNOTATION: "zone in (a"})
    [patch, event] = honoring.of_job(a_view(job, a_slice()), job, now=NOW)
    assert isinstance(patch, Patch)
    assert isinstance(event, Emit)
    assert "[slicebus.dev/cluster-selector] is not honored: no cluster takes the job when it starts next" in event.note
    job = a_job(annotations={api_names.CLUSTER_SELECTOR_ANNOTATION: "zone in (a)"})
    assert honoring.of_job(a_view(job, a_slice()), job, now=NOW) == []


def is_told(commands: list[Command]) -> bool:
    return any("Honored=False" in str(short) for short in shorts(commands))


def test_explain_names_what_is_not_honored_of_the_queues_too() -> None:
    store = ManagerStore()
    for cache, manifest in (
        (store.cluster_queues, QUEUE),
        (store.local_queues, LOCAL),
        (store.flavors, FLAVOR),
    ):
        metadata = manifest["metadata"] | {"resourceVersion": "1", "uid": manifest["metadata"]["name"]}
        cache.put(manifest | {"metadata": metadata})
    workload = a_slice()
    [shown, _] = honoring.of_job(a_view(asking(), workload), asking(), now=NOW)
    assert isinstance(shown, Patch)
    view = a_view(asking(), merge_patch(workload, shown.body))
    told = "\n".join(problems(store, view))
    for named in ("NotHonored: ", "ClusterQueue cq: ", "LocalQueue queue: ", "ResourceFlavor spot: "):
        assert named in told


def test_doctor_names_the_fields_and_some_of_their_objects() -> None:
    fine = fields_found({})
    assert (fine.ok, fine.found) == (True, "every field that is set is honored")
    check = fields_found(
        {"LocalQueue spec.fairSharing": ["d", "c", "b", "a"], "ClusterQueue spec.admissionScope": ["q"]}
    )
    assert not check.ok
    assert check.found == (
        "set and not honored: ClusterQueue spec.admissionScope of q; LocalQueue spec.fairSharing of a, b, c and 1 more"
    )
