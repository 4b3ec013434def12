"""Makes the Workload of a slice for a worker's cluster."""

import msgspec

from slicebus.agent.decide.job.reconcile import link_to
from slicebus.agent.decide.order.order_contents import charged_of, flavors_of
from slicebus.agent.decide.pods.pod_placement import nodes_note, placements_note
from slicebus.agent.state.views import WorkerJobReading, WorkerView
from slicebus.proto.messages import Manifest, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs.copies import without

_MANAGERS_OWN = (
    api_names.DISPATCHED_ANNOTATION,
    api_names.APPLIED_ANNOTATION,
    api_names.AVOIDED_CLUSTERS_ANNOTATION,
    api_names.SUSPENDED_ANNOTATION,
    api_names.RECLAIMED_ANNOTATION,
    api_names.QUEUED_SINCE_ANNOTATION,
    api_names.GROWN_AT_ANNOTATION,
)


def manifest(view: WorkerView, order: WorkloadSpec, job: WorkerJobReading | None) -> Manifest:
    """The copy, linked to its job if there is one: without queue name and owner, so that a Kueue leaves it alone."""
    metadata, spec = order.workload["metadata"], order.workload["spec"]
    annotations = without(metadata.get("annotations", {}), (*api_names.AGENTS_OWN, *_MANAGERS_OWN)) | {
        api_names.MANAGER_UID_ANNOTATION: order.job.uid,
        api_names.SPEC_VERSION_ANNOTATION: str(order.spec_version),
        api_names.JOB_ANNOTATION: f"{view.key.kind}/{view.key.name}",
    }
    if flavors := flavors_of(order):
        annotations[api_names.FLAVORS_ANNOTATION] = msgspec.json.encode(flavors, order="sorted").decode()
        annotations[api_names.CHARGED_ANNOTATION] = msgspec.json.encode(charged_of(order), order="sorted").decode()
    if job is not None:
        annotations |= link_to(view, job) | placements_note(job.manifest, order) | nodes_note(view, job.manifest, order)
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {api_names.ORIGIN_LABEL: api_names.ORIGIN},
            "annotations": annotations,
        },
        "spec": {name: value for name, value in spec.items() if name != "queueName"},
    }
