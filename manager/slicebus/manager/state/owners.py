"""Finds the job of a slice by what the manager has cached."""

from slicebus.manager.state.store import ManagerStore, owner_ref
from slicebus.proto.messages import JobRef
from slicebus.slices.workload.workload import SliceKey


def job_of(store: ManagerStore, key: SliceKey) -> JobRef | None:
    """The job of a slice; None where its Workload is gone, or names none."""
    namespace, _, name = key.partition("/")
    workload = store.workloads.get(namespace, name)
    return owner_ref(workload) if workload is not None else None
