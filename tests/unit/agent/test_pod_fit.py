"""Pods that are not those of their slice stay gated, and the job says why."""

from copy import deepcopy
from typing import Any

import pytest

from slicebus.agent.decide import pod_fit, reconcile, waiting
from slicebus.agent.state.annotations import job_metadata
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.cli.demo import objects
from slicebus.decisions.commands import Emit, PatchEach
from slicebus.proto.messages import Counts, JobRef, Waits
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS, Placement
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import PODS_PAST_SLICE, Waiting

Manifest = dict[str, Any]
NOW = "2026-01-31T12:00:00Z"
MAKE = {"Job": objects.job, "RayCluster": objects.ray_cluster, "RayJob": objects.ray_job}
SET = {"Job": "main", "RayCluster": "small-group", "RayJob": "small-group"}
PER_KIND = pytest.mark.parametrize("kind", MAKE)


class Made:
    """A job as an agent has made it, with what KubeRay made of it, and its slice."""

    def __init__(self, kind: str, granted: int = 2) -> None:
        job, self.kind, self.name = MAKE[kind]("train"), KINDS[kind], SET[kind]
        pod_sets = self.kind.pod_sets(job)
        placements = {one["name"]: Placement(labels={api_names.MANAGER_UID_LABEL: "m"}) for one in pod_sets}
        grant: Counts = {one["name"]: granted for one in pod_sets}
        ref = JobRef(job["apiVersion"], kind, job["metadata"]["namespace"], "train", "m")
        at = job_metadata(ref, workload="w1", version=1, grant=grant)
        copy = self.kind.worker_copy(job, placements)
        server = {"uid": "u", "resourceVersion": "1", "generation": 1}
        self.job: Manifest = deepcopy(copy | {"metadata": copy["metadata"] | at | server})
        self.target = self.job
        if kind == "RayJob":
            metadata = {"name": "train-x", "namespace": job["metadata"]["namespace"], "uid": "c", "generation": 1}
            self.target = {
                "kind": "RayCluster",
                "metadata": metadata,
                "spec": deepcopy(self.job["spec"]["rayClusterSpec"]),
            }
        self.slice = {"metadata": {"name": "w1", "annotations": {}}, "spec": {"podSets": pod_sets}}

    def template(self, name: str | None = None) -> Manifest:
        """That of a pod set, to be edited."""
        return self.kind.templates(self.job, self.target)[name or self.name]

    def pod(self, name: str, pod_set: str | None = None, *, gated: bool = True) -> Manifest:
        """A pod of the present template."""
        template = deepcopy(self.template(pod_set))
        labels, group = template["metadata"]["labels"], pod_set or self.name
        if "workerGroupSpecs" in self.target["spec"]:
            head = group == "head"
            labels |= {"ray.io/node-type": "head" if head else "worker", "ray.io/group": "headgroup" if head else group}
        spec = template["spec"] if gated else template["spec"] | {"schedulingGates": []}
        metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1", "labels": labels}
        return {"metadata": metadata, "spec": spec, "status": {}}

    def view(self, *pods: Manifest, copies: bool = True) -> WorkerView:
        job = self.job
        return WorkerView(
            key=JobKey(job["kind"], job["metadata"]["namespace"], "train"),
            job=job,
            reading=WorkerJobReading.from_manifest(job),
            scale_target=self.target,
            copies=(self.slice,) if copies else (),
            pods=tuple(map(Pod.from_manifest, pods)),
        )


def let_go(view: WorkerView) -> list[str]:
    return [
        patch.target["metadata"]["name"]
        for command in reconcile.ungate(view)
        if isinstance(command, PatchEach)
        for patch in command.patches
    ]


def enlarge(template: Manifest, cpu: str = "30") -> None:
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu


@PER_KIND
def test_those_of_the_slice_start(kind: str) -> None:
    made = Made(kind)
    view = made.view(made.pod("a"), made.pod("b"), made.pod("c"))
    assert let_go(view) == ["a", "b"]
    assert pod_fit.problem(view) is None


@PER_KIND
def test_larger_ones_stay_gated_and_smaller_ones_start_in_their_place(kind: str) -> None:
    """Also where the edit was taken back since."""
    made = Made(kind)
    fits = made.pod("z")
    enlarge(made.template())
    large = made.pod("a"), made.pod("b")
    assert let_go(made.view(*large, fits)) == [], "its controller makes large ones now"
    enlarge(made.template(), "1")
    view = made.view(*large, fits)
    assert let_go(view) == ["z"]
    problem = pod_fit.problem(view)
    assert problem is not None
    assert problem.reason == PODS_PAST_SLICE
    assert problem.message.endswith(f"2 pods of {made.name}: cpu 30 in place of 1")


@PER_KIND
def test_the_job_says_it_with_one_event(kind: str) -> None:
    made = Made(kind)
    enlarge(made.template())
    view = made.view(made.pod("a"))
    commands = waiting.reconcile(view, now=NOW)
    assert {each.reason for each in commands if isinstance(each, Emit)} == {PODS_PAST_SLICE}
    shown = [each.body for each in commands if not isinstance(each, Emit)]
    assert len(shown) == len({id(target) for target in (view.job, made.target)})
    for manifest in (made.job, made.target):
        manifest["metadata"].setdefault("annotations", {}).update(shown[0]["metadata"]["annotations"])
    view = made.view(made.pod("a"))
    assert waiting.reconcile(view, now=NOW) == []
    assert view.reading is not None
    told = waiting.reported(view, view.reading)
    assert isinstance(told, Waits)
    assert told.reason == PODS_PAST_SLICE
    assert Waiting.from_manifest(view.reading.manifest) is not None


def test_pods_with_the_label_of_another_set_stay_gated() -> None:
    """The head's grant is for the head, however little the others request."""
    made = Made("RayCluster")
    made.template()["metadata"]["labels"][kueue.POD_SET_LABEL] = "head"
    pod = made.pod("a")
    assert Pod.from_manifest(pod).pod_set == "head"
    view = made.view(pod)
    assert let_go(view) == []
    problem = pod_fit.problem(view)
    assert problem is not None
    assert "1 pod of head: made for pod set 'small-group', and labelled as of 'head'" in problem.message
    made.template()["metadata"]["labels"][kueue.POD_SET_LABEL] = "small-group"
    assert let_go(made.view(pod)) == [], "its own labels tell"


def test_so_do_those_with_both_labels_of_another_set() -> None:
    """KubeRay takes its label over from a template."""
    made = Made("RayCluster")
    labels = {kueue.POD_SET_LABEL: "head", "ray.io/node-type": "head"}
    made.template()["metadata"]["labels"] |= labels
    pod = made.pod("a")
    pod["metadata"]["labels"] |= labels
    assert let_go(made.view(pod)) == []


@PER_KIND
def test_an_earlier_slice_tells_until_the_copy_of_the_newest_is_there(kind: str) -> None:
    made = Made(kind)
    made.slice["metadata"]["name"] = "w0"
    enlarge(made.template())
    assert let_go(made.view(made.pod("a"))) == []
    assert let_go(made.view(made.pod("a"), copies=False)) == ["a"]


def test_pods_that_are_not_granted_are_not_told() -> None:
    made = Made("Job", granted=0)
    enlarge(made.template())
    assert pod_fit.problem(made.view(made.pod("a"))) is None
