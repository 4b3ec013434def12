"""Makes the Workload that an order brings, by which the agent compares pods with what their slice is charged for."""

from slicebus.manager.decide.manifests import counts_patch, without_server_fields
from slicebus.manager.state.annotations import as_copied
from slicebus.manager.state.reclaims import kept
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.workload import Slice


def sent_workload(view: JobView, slice: Slice) -> Manifest:
    """The Workload of a slice, with the size that the worker shall have. A Kueue does not know the autoscaler that only
    the worker's copy has: its container is added, so that the head may start with it, and with no larger one."""
    workload = view.workload(slice)
    sized = workload | counts_patch(workload, kept(view.desired, slice).counts)
    if view.job is None or (copied := as_copied(view.job)) is view.job:
        return without_server_fields(sized)
    templates = KINDS[view.ref.kind].templates(copied, copied)
    pod_sets = [_with_containers(one, templates.get(one["name"], {})) for one in sized["spec"]["podSets"]]
    return without_server_fields(sized | {"spec": sized["spec"] | {"podSets": pod_sets}})


def _with_containers(pod_set: Manifest, template: Manifest) -> Manifest:
    """A pod set with the containers of a template that it has not."""
    spec = pod_set["template"]["spec"]
    known = {container["name"] for container in spec["containers"]}
    added = [one for one in template.get("spec", {}).get("containers", ()) if one["name"] not in known]
    with_added = {"template": pod_set["template"] | {"spec": spec | {"containers": [*spec["containers"], *added]}}}
    return pod_set | with_added if added else pod_set
