"""What the manager's store shows of one job."""

from typing import Any

import pytest

from slicebus.kube.resources import JOBS
from slicebus.manager.store import Store
from unit.manager.objects import REF, a_job, a_workload


def put(store: Store, manifest: dict[str, Any], **metadata: Any) -> None:
    cache = store.jobs["Job"] if manifest["kind"] == JOBS.kind else store.workloads
    cache.put(manifest | {"metadata": manifest["metadata"] | metadata})


@pytest.mark.parametrize("order", [("w1", "w2", "w3"), ("w3", "w1", "w2")], ids=["as made", "as listed"])
def test_a_view_has_the_slices_of_the_job_oldest_first(order: tuple[str, ...]) -> None:
    store = Store()
    put(store, a_job())
    for name in order:
        put(store, a_workload(name))
    view = store.view(REF)
    assert [slice.name for slice in view.slices] == ["w1", "w2", "w3"]
    assert view.workloads.keys() == {"w1", "w2", "w3"}


def test_nobody_joins_a_chain_from_another_namespace() -> None:
    store = Store()
    put(store, a_job())
    put(store, a_workload("w1"))
    put(store, a_workload("w2", admitted=9, dispatched=9), namespace="elsewhere")
    view = store.view(REF)
    assert [slice.name for slice in view.slices] == ["w1"]
    assert view.workloads.keys() == {"w1"}


def test_a_workload_that_cannot_be_read_is_known_and_no_slice() -> None:
    store = Store()
    put(store, a_job())
    broken = a_workload("w1")
    broken["spec"]["podSets"][0]["template"] = {"spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}
    put(store, broken)
    view = store.view(REF)
    assert view.slices == ()
    assert view.workloads.keys() == {"w1"}
