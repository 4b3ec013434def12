"""Makes the Workload that an order brings, by which the agent compares pods with what their slice is charged for."""

from slicebus.manager.decide.manifests import counts_patch, without_server_fields
from slicebus.manager.state.annotations import as_copied
from slicebus.manager.state.reclaims import kept
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.copies import with_containers
from slicebus.slices.workload.workload import Slice


def sent_workload(view: JobView, slice: Slice) -> Manifest:
    """The Workload of a slice, with the size that the worker shall have. A Kueue does not know the autoscaler that only
    the worker's copy has: its container is added, so that the head may start with it, and with no larger one."""
    workload = view.workload(slice)
    sized = counts_patch(workload, kept(view.desired, slice).counts)["spec"]["podSets"]
    added = _of_copy_alone(view.job) if view.job is not None and view.beside_kueue else {}
    pod_sets = [one | {"template": with_containers(one["template"], added.get(one["name"], []))} for one in sized]
    return without_server_fields(workload | {"spec": {"podSets": pod_sets}})


def _of_copy_alone(job: Manifest) -> dict[str, list[Manifest]]:
    """The containers, by pod set, that the pods of a job have on its worker alone."""
    kind, copied = KINDS[job["kind"]], as_copied(job)
    if copied is job:
        return {}
    own = {name: template["spec"]["containers"] for name, template in kind.templates(job, job).items()}
    there = kind.templates(copied, copied)
    return {
        name: [one for one in there[name]["spec"]["containers"] if one not in containers]
        for name, containers in own.items()
    }
