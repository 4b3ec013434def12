"""Which jobs of its cluster the manager records: those that are managed, were, or nearly are."""

from typing import Any

import pytest

from slicebus.kube.resources import JOBS, LOCALQUEUES
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import a_job, a_workload

Manifest = dict[str, Any]


def plain(**metadata: Any) -> Manifest:
    """A Job of somebody who has nothing to do with slicebus."""
    job = a_job(managed=False)
    job["metadata"] |= {"annotations": {}, "labels": {}} | metadata
    job["spec"].pop("managedBy", None)
    return job


CASES: dict[str, tuple[Manifest, bool]] = {
    "a managed job": (a_job(), False),
    "a job that nearly is": (
        plain(labels={kueue.QUEUE_NAME_LABEL: "q"}, annotations={kueue.ELASTIC_ANNOTATION: "true"}),
        False,
    ),
    "a job of Kueue alone": (plain(labels={kueue.QUEUE_NAME_LABEL: "q"}), True),
    "a plain job": (plain(), True),
    "a job that was dispatched": (plain(annotations={api_names.DISPATCHED_ANNOTATION: "{}"}), False),
}


@pytest.mark.parametrize(("job", "foreign"), CASES.values(), ids=CASES.keys())
def test_foreign_jobs(job: Manifest, foreign: bool) -> None:
    assert ManagerStore().is_foreign(JOBS, job) is foreign


def test_a_job_with_a_workload_is_not_foreign() -> None:
    store = ManagerStore()
    store.workloads.put(a_workload())
    assert not store.is_foreign(JOBS, plain())


def test_only_jobs_are() -> None:
    assert not ManagerStore().is_foreign(LOCALQUEUES, {"metadata": {"name": "q", "namespace": "team"}})
