"""Places the pods of a job: writes what a flavor says of nodes into the pod templates or onto each pod.

A pod set that has no pods when its job is made has no flavor yet. Templates cannot be changed later: a Job's are fixed,
and KubeRay makes the pods before they are granted. So such pods are labelled, and get their nodes when they may start.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from slicebus.agent.state.annotations import annotation, spec_version
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Manifest, PodSetFlavor, WorkloadSpec
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.jobs import KINDS, Placement
from slicebus.slices.workload.pod_requests import container_resources

_PLACEMENTS = msgspec.json.Decoder(dict[str, PodSetFlavor])
_NODES = msgspec.json.Decoder(dict[str, list[dict[str, str]]])
_MOST_NODES = 8
"""Of the labels that a flavor has had, so many are kept."""
_UNPLACED = {api_names.UNPLACED_LABEL: "true"}


def places(order: WorkloadSpec) -> dict[str, Placement]:
    """What the pod templates of a new job say of nodes, by pod set."""
    by_pod_set = {}
    for pod_set in order.workload["spec"]["podSets"]:
        flavor = order.flavors.get(pod_set["name"])
        by_pod_set[pod_set["name"]] = Placement(
            node_selector=flavor.node_labels if flavor else {},
            tolerations=tuple(flavor.tolerations) if flavor else (),
            labels={api_names.MANAGER_UID_LABEL: order.job.uid} | ({} if flavor else _UNPLACED),
            resources=container_resources(pod_set["template"]["spec"]),
        )
    return by_pod_set


def placements_note(job: Manifest, order: WorkloadSpec) -> dict[str, str]:
    """The annotation of a Workload copy that says where the unplaced pods of its job run; empty where it has none."""
    unplaced = {
        pod_set["name"]: order.flavors[pod_set["name"]]
        for pod_set in KINDS[job["kind"]].pod_sets(job)
        if pod_set["name"] in order.flavors and is_unplaced(pod_set["template"])
    }
    if not unplaced:
        return {}
    return {api_names.PLACEMENTS_ANNOTATION: msgspec.json.encode(unplaced, order="sorted").decode()}


def nodes_note(view: WorkerView, job: Manifest, order: WorkloadSpec) -> dict[str, str]:
    """The annotation of a Workload copy that says which node labels the placed pods of its job have; empty where none.

    A template keeps those that its flavor had when it was made: what earlier copies say stays, and so does it that they
    say none.
    """
    known: Mapping[str, list[dict[str, str]]] = {}
    for copy in sorted(view.own_copies, key=spec_version):
        known = {**known, **nodes_of(copy)}
    found: dict[str, list[dict[str, str]]] = {}
    for pod_set in KINDS[job["kind"]].pod_sets(job):
        name, flavor = pod_set["name"], order.flavors.get(pod_set["name"])
        if view.own_copies and name not in known:
            continue
        wanted = [flavor.node_labels] if flavor is not None and not is_unplaced(pod_set["template"]) else []
        labels = [*(entry for entry in known.get(name, ()) if entry not in wanted), *wanted]
        if any(labels):
            found[name] = labels[-_MOST_NODES:]
    return {api_names.NODES_ANNOTATION: msgspec.json.encode(found, order="sorted").decode()} if found else {}


def nodes_of(copy: Manifest) -> Mapping[str, list[dict[str, str]]]:
    """What the note of a Workload copy says, by pod set."""
    return read_json(annotation(copy, api_names.NODES_ANNOTATION), _NODES) or {}


def misplaced(pod: Manifest, nodes: Sequence[Mapping[str, str]]) -> str:
    """On which other nodes a pod would run than on those of its flavor, in words; empty where on none."""
    selector = pod["spec"].get("nodeSelector") or {}
    if not nodes or is_unplaced(pod) or any(labels.items() <= selector.items() for labels in nodes):
        return ""
    wanted = nodes[-1]
    there = {name: selector[name] for name in wanted if name in selector}
    return f"nodes with {_text(there) or 'any labels'} in place of {_text(wanted)}"


def _text(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


def placements(view: WorkerView) -> Mapping[str, PodSetFlavor]:
    """Where the unplaced pods of a job run, by pod set, as far as its present slice has come."""
    copy = view.copy_of(view.reading.slice) if view.reading else None
    return (read_json(annotation(copy, api_names.PLACEMENTS_ANNOTATION), _PLACEMENTS) if copy else None) or {}


def is_unplaced(pod: Manifest) -> bool:
    """Whether a pod or a template is labelled as without a flavor."""
    return api_names.UNPLACED_LABEL in ((pod.get("metadata") or {}).get("labels") or {})


def placed(pod: Manifest, flavor: PodSetFlavor) -> list[dict[str, Any]]:
    """The JSON patch that lets a gated pod run only where its flavor says."""
    spec: Manifest = pod["spec"]
    selector, own = spec.get("nodeSelector") or {}, spec.get("tolerations") or []
    wanted = selector | flavor.node_labels
    tolerations = [*own, *(toleration for toleration in flavor.tolerations if toleration not in own)]
    patch = []
    if wanted != selector:
        patch.append({"op": "add", "path": "/spec/nodeSelector", "value": wanted})
    if tolerations != own:
        patch.append({"op": "add", "path": "/spec/tolerations", "value": tolerations})
    return patch
