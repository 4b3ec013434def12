"""Pods and owners that tenants make, so that they look like those of a job."""

from typing import Any

import pytest

from slicebus.agent.decide.cluster.capacity import within_grant
from slicebus.agent.decide.job import reconcile
from slicebus.agent.state import annotations
from slicebus.agent.state.owners import keys_of_job
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.agent.state.watched import keys_of_copy
from slicebus.cli.demo import objects
from slicebus.decisions.commands import Publish
from slicebus.kube.resources import PODS
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS
from unit.agent.objects import EAST, a_copy, a_job, a_pod, a_view

Manifest = dict[str, Any]
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "name": "notes", "uid": "uid-notes", "controller": True}
OWN = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "worker-uid", "controller": True}
FORMER = OWN | {"uid": "former-uid"}


def unlabelled(name: str, owner: Manifest | None) -> Manifest:
    """A pod without the label that only an agent writes."""
    pod = a_pod(name, of=None)
    pod["spec"] = pod["spec"] | {"nodeName": "n1"}
    if owner is not None:
        pod["metadata"]["ownerReferences"] = [owner]
    return pod


def seen(pod: Manifest, *, suspended: bool = False) -> WorkerView:
    job, copy = a_job(2, granted=2, suspended=suspended), a_copy(linked="worker-uid")
    copy["metadata"]["annotations"][api_names.FLAVORS_ANNOTATION] = '{"main":{"cpu":"default"}}'
    if suspended:
        job["metadata"]["annotations"][api_names.GRANTED_ANNOTATION] = "{}"
    return a_view(job, copy, pods=(pod,))


@pytest.mark.parametrize(
    ("owner", "counts"), [(None, False), (CONFIG_MAP, False), (OWN, True)], ids=["nobody", "a ConfigMap", "the job"]
)
def test_a_pod_counts_where_the_job_owns_it(owner: Manifest | None, counts: bool) -> None:
    view = seen(unlabelled("p", owner))
    assert bool(view.pod_sets) is bool(view.own_pod_sets) is counts
    assert bool([*within_grant(view)]) is counts, "else its room is a stranger's"


@pytest.mark.parametrize("owner", [None, CONFIG_MAP, FORMER], ids=["nobody", "a ConfigMap", "a job that has gone"])
def test_a_strangers_pod_keeps_no_eviction_from_its_end(owner: Manifest | None) -> None:
    view = seen(unlabelled("p", owner), suspended=True)
    assert any(isinstance(command, Publish) for command in reconcile.confirm_suspended(view, EAST, reported=None))


OTHER_KIND = OWN | {"kind": "Cat", "uid": "cat-uid"}


@pytest.mark.parametrize(
    ("owner", "is_left"), [(FORMER, True), (None, True), (OTHER_KIND, False)], ids=["its job", "nobody", "another kind"]
)
def test_pods_of_a_job_of_another_kind_are_not_those_of_an_earlier_one(owner: Manifest | None, is_left: bool) -> None:
    """A user may write the label that names the job into the template of that one: no eviction would end."""
    pod = unlabelled("p", owner)
    pod["metadata"]["labels"][api_names.MANAGER_UID_LABEL] = "another"
    view = seen(pod, suspended=True)
    assert bool(view.pod_sets) is is_left
    ended = any(isinstance(command, Publish) for command in reconcile.confirm_suspended(view, EAST, reported=None))
    assert ended is not is_left


def test_a_controller_that_a_tenant_names_takes_no_job_away() -> None:
    job, copy = a_job(), a_copy()
    for manifest in (job, copy):
        manifest["metadata"]["ownerReferences"] = [CONFIG_MAP]
        assert annotations.is_ours(manifest)
    made = job | {"kind": "RayCluster", "metadata": job["metadata"] | {"ownerReferences": [OWN | {"kind": "RayJob"}]}}
    assert not annotations.is_ours(made)


def test_a_parent_that_a_user_of_the_manager_names_takes_no_job_away() -> None:
    """Its changes, and those of its pods, would be those of a RayJob that is not there."""
    job = objects.ray_cluster("grid")
    job["metadata"]["labels"] |= {"ray.io/originated-from-cr-name": "other", "ray.io/originated-from-crd": "RayJob"}
    copy = KINDS["RayCluster"].worker_copy(job, {})
    copy["metadata"]["labels"] |= {api_names.ORIGIN_LABEL: api_names.ORIGIN}
    assert [*keys_of_job(copy)] == [JobKey("RayCluster", copy["metadata"]["namespace"], "grid")]


def test_a_pod_that_cannot_be_read_stops_nothing_of_its_job() -> None:
    store, pod = AgentStore(), a_pod("p")
    pod["spec"] = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1"}}}]}
    store.cache_of(PODS).put(pod)
    assert store.view(JobKey("Job", "team", "train")).pods == ()


@pytest.mark.parametrize("text", ["Job/", "Job", "Job/a/b", "Job/Train", "Cat/train", ""])
def test_a_copy_is_of_no_job_that_nobody_could_have_made(text: str) -> None:
    copy = a_copy()
    copy["metadata"]["annotations"][api_names.JOB_ANNOTATION] = text
    assert [*keys_of_copy(copy)] == []
