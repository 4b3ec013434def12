"""Counts the devices that the pods of a job claim, by its DeviceClasses' resources.

What was counted for a slice stays: a ResourceClaimTemplate may go while its claims are in use.
"""

from collections.abc import Iterable, Iterator

from slicebus.manager.state.annotations import annotation, as_copied
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.workload import device_claims
from slicebus.slices.workload.device_claims import UnchargedClaimError


def problems(view: JobView, job: Manifest) -> Iterator[Problem]:
    """The claims of the job's pods that nobody would be charged for."""
    for pod_set in KINDS[job["kind"]].pod_sets(as_copied(job)):
        if not (claims := device_claims.claims_of(_spec(pod_set))):
            continue
        try:
            _counted(view, pod_set)
        except UnchargedClaimError as error:
            why = f"claims devices: {error}" if view.device_resources else device_claims.why_not_charged(claims)
            yield Problem(device_claims.REASON, f"pod set {pod_set['name']} {why}")


def note(view: JobView, pod_sets: Iterable[Manifest]) -> str | None:
    """The annotation of a slice with these pod sets, as far as their claims can be counted; None for no claims. Pods
    that a worker keeps are counted as they were."""
    newest = view.workload(view.unfinished[-1]) if view.unfinished else None
    kept = device_claims.from_annotation(annotation(newest, api_names.DEVICES_ANNOTATION) if newest else None)
    templates = {one["name"]: one["template"] for one in newest["spec"]["podSets"]} if newest else {}
    devices: device_claims.Devices = {}
    for pod_set in pod_sets:
        name = pod_set["name"]
        if name in kept and templates[name] == pod_set["template"]:
            devices[name] = kept[name]
        elif device_claims.claims_of(_spec(pod_set)):
            try:
                devices[name] = _counted(view, pod_set)
            except UnchargedClaimError:
                continue  # The admission says that it waits for this.
    return device_claims.to_annotation(devices) if devices else None


def _counted(view: JobView, pod_set: Manifest) -> dict[str, int]:
    def template_of(name: str) -> Manifest | None:
        return view.claim_templates.get((view.ref.namespace, name))

    return device_claims.devices_of(_spec(pod_set), view.device_resources, template_of)


def _spec(pod_set: Manifest) -> Manifest:
    spec: Manifest = pod_set["template"].get("spec") or {}
    return spec
