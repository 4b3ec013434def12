"""Somebody edits a RayService that runs: what is ordered, and what its user is told."""

from typing import Any

import jsonpatch
import pytest

from slicebus.decisions.commands import Emit, Patch, Publish
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.state.outbox import Outbox
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import kueue
from unit.manager.objects import NOW, a_view
from unit.manager.test_groups import admitted, first_slice
from unit.slices.jobs.manifests import a_cluster_spec, a_group, a_rayservice

Manifest = dict[str, Any]
GROUP = "/spec/rayClusterConfig/workerGroupSpecs/0"


def a_service(*edits: Manifest) -> Manifest:
    service = a_rayservice(cluster=a_cluster_spec(a_group("small"), enableInTreeAutoscaling=True))
    service["metadata"] |= {"name": "chat", "namespace": "team", "uid": "uid"}
    service["metadata"] |= {
        "resourceVersion": "17",
        "labels": {kueue.QUEUE_NAME_LABEL: "q"},
        "annotations": {kueue.ELASTIC_ANNOTATION: "true"},
    }
    edited: Manifest = jsonpatch.apply_patch(service, [{"op": "add"} | edit for edit in edits])
    return edited


def dispatched(service: Manifest) -> Manifest:
    """Its slice, after it was ordered on its worker."""
    workload = admitted(first_slice(service))
    [write] = [each for each in reconcile(a_view(service, workload), NOW) if isinstance(each, Patch)]
    assert isinstance(write.body, dict)
    return merge_patch(workload, write.body)


IMAGE = {"path": f"{GROUP}/template/spec/containers/0/image", "value": "ray:next"}


@pytest.mark.parametrize(
    ("edit", "is_ordered"),
    [
        (IMAGE, True),
        ({"path": "/spec/serveConfigV2", "value": "applications: [next]"}, True),
        ({"path": "/spec/rayClusterDeletionDelaySeconds", "value": 5}, True),
        ({"path": "/metadata/labels/a", "value": "b"}, False),
    ],
    ids=["its image", "its applications", "another field", "a label"],
)
def test_an_edit_is_ordered(edit: Manifest, is_ordered: bool) -> None:
    runs = dispatched(a_service())
    version = Outbox.from_manifest(runs)
    assert version is not None
    edited = a_service(edit)
    messages = [command.message for command in reconcile(a_view(edited, runs), NOW) if isinstance(command, Publish)]
    newer = [
        message.manifest["spec"]
        for message in messages
        if isinstance(message, WorkloadSpec) and message.spec_version > version.record.version
    ]
    assert newer == ([edited["spec"]] if is_ordered else [])


def told(view: JobView) -> list[str]:
    return [command.note for command in reconcile(view, NOW) if isinstance(command, Emit) and command.warning]


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (IMAGE, []),
        (
            {"path": f"{GROUP}/template/spec/containers/0/resources", "value": {"requests": {"cpu": "64"}}},
            ["A job that runs keeps its pods: what small requests is changed when it is made anew"],
        ),
        (
            {
                "path": f"{GROUP}/template/spec/resourceClaims",
                "value": [{"name": "gpu", "resourceClaimTemplateName": "x"}],
            },
            ["A job that runs keeps its pods: what small requests is changed when it is made anew"],
        ),
        (
            {"path": f"{GROUP}/template/spec/runtimeClassName", "value": "heavy"},
            ["A job that runs keeps its pods: what small requests is changed when it is made anew"],
        ),
        (
            {"path": f"{GROUP}/minReplicas", "value": 99},
            ["worker group small has minReplicas 99 greater than maxReplicas 8"],
        ),
    ],
    ids=["it is taken over", "other requests", "claims of devices", "a RuntimeClass", "what KubeRay refuses"],
)
def test_its_user_is_told_why_it_does_not_take_an_edit_over(edit: Manifest, why: list[str]) -> None:
    assert told(a_view(a_service(edit), dispatched(a_service()))) == why
