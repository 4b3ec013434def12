"""The devices that pods claim are counted by the resource of their DeviceClasses."""

import copy
from collections.abc import Mapping
from typing import Any

from msgspec import structs

from slicebus.decisions.commands import Create, Emit, Patch
from slicebus.manager.decide.admission.builtin import reconcile
from slicebus.manager.state.views import JobView
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import NOW, a_job, a_view

Manifest = dict[str, Any]
GPU = "example.com/gpu"
TEMPLATE = {"spec": {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "gpu", "count": 2}}]}}}}


def claiming(name: str = "pair") -> Manifest:
    job = a_job()
    pod = copy.deepcopy(job["spec"]["template"]["spec"])
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": name}]
    job["spec"]["template"] = {"spec": pod}
    return job


def counting(job: Manifest, *workloads: Manifest, templates: Mapping[str, Manifest]) -> JobView:
    known = {("team", name): one for name, one in templates.items()}
    return structs.replace(a_view(job, *workloads), device_resources={"gpu": GPU}, claim_templates=known)


def test_the_devices_of_a_new_slice_are_counted() -> None:
    [create, _] = reconcile(counting(claiming(), templates={"pair": TEMPLATE}), NOW)
    assert isinstance(create, Create)
    slice = Slice.from_manifest(create.manifest | {"metadata": create.manifest["metadata"] | {"namespace": "team"}})
    assert [pod_set.devices for pod_set in slice.pod_sets] == [{GPU: 2}]
    assert slice.pod_sets[0].charged[GPU] == 2


def test_a_claim_that_cannot_be_counted_is_refused_with_its_reason() -> None:
    [_, told] = reconcile(counting(claiming(), templates={}), NOW)
    assert isinstance(told, Emit)
    assert told.note == "pod set main claims devices: there is no ResourceClaimTemplate pair for claim gpu"


def test_a_waiting_slice_takes_other_claims_over() -> None:
    first = claiming()
    [create, _] = reconcile(counting(first, templates={"pair": TEMPLATE}), NOW)
    assert isinstance(create, Create)
    waiting = copy.deepcopy(create.manifest)
    waiting["metadata"] |= {"namespace": "team", "uid": "w", "resourceVersion": "1", "creationTimestamp": NOW}
    four = copy.deepcopy(TEMPLATE)
    four["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 4
    [patch] = reconcile(counting(claiming("four"), waiting, templates={"pair": TEMPLATE, "four": four}), NOW)
    assert isinstance(patch, Patch)
    after = Slice.from_manifest(merge_patch(waiting, patch.body))
    assert [pod_set.devices for pod_set in after.pod_sets] == [{GPU: 4}]
    # Its template has gone, and what was counted stays.
    assert reconcile(counting(first, waiting, templates={}), NOW) == reconcile(
        counting(first, waiting, templates={"pair": TEMPLATE}), NOW
    )
