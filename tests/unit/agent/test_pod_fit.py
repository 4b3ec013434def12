"""Pods that are not those of their slice stay gated, and the job says why."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from slicebus.agent.decide.job import reconcile, waiting
from slicebus.agent.decide.pods import pod_fit
from slicebus.agent.state.annotations import job_metadata
from slicebus.agent.state.edited_templates import EditedTemplates, note_edit
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.cli.demo import objects
from slicebus.decisions.commands import Emit, PatchEach
from slicebus.decisions.table import Table
from slicebus.kube.cache import Change
from slicebus.proto.messages import Counts, JobRef, Waits
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS, Placement
from slicebus.slices.workload.ungate import Pod
from slicebus.slices.workload.waiting import PODS_PAST_SLICE, WORKLOAD_MISSING, Waiting

Manifest = dict[str, Any]
NOW = "2026-01-31T12:00:00Z"
MAKE = {"Job": objects.job, "RayCluster": objects.ray_cluster, "RayJob": objects.ray_job}
SET = {"Job": "main", "RayCluster": "small-group", "RayJob": "small-group"}
PER_KIND = pytest.mark.parametrize("kind", MAKE)


class Made:
    """A job as an agent has made it, with what KubeRay made of it, and its slice."""

    def __init__(self, kind: str, granted: int = 2, *, scaled: bool = True) -> None:
        job, self.kind, self.name = MAKE[kind]("train"), KINDS[kind], SET[kind]
        if not scaled:
            job["spec"].get("rayClusterSpec", job["spec"])["enableInTreeAutoscaling"] = False
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
        self.slice: Manifest = {"metadata": {"name": "w1"} | deepcopy(at), "spec": {"podSets": pod_sets}}

    def of_another(self) -> "Made":
        """The same with the copy of an earlier job that had the name."""
        self.slice["metadata"]["annotations"] |= {api_names.MANAGER_UID_ANNOTATION: "earlier"}
        return self

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

    def view(self, *pods: Manifest, copies: bool = True, edited: EditedTemplates | None = None) -> WorkerView:
        job = self.job
        return WorkerView(
            key=JobKey(job["kind"], job["metadata"]["namespace"], "train"),
            job=job,
            reading=WorkerJobReading.from_manifest(job),
            scale_target=self.target,
            copies=(self.slice,) if copies else (),
            pods=tuple(map(Pod.from_manifest, pods)),
            edited=edited or {},
        )

    def for_a_moment(self, edit: Callable[[Manifest], None]) -> tuple[Manifest, EditedTemplates]:
        """A pod that was made while the template was another, and what the agent has noted of that."""
        edited: Table[str, EditedTemplates] = Table(str, EditedTemplates)
        before = deepcopy(self.target)
        edit(self.template()["spec"])
        pod, then = self.pod("a"), deepcopy(self.target)
        note_edit(Change(before, then), edited)
        self.target["spec"].clear()
        self.target["spec"].update(deepcopy(before["spec"]))
        note_edit(Change(then, deepcopy(before)), edited)
        return pod, edited[self.target["metadata"]["uid"]]


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


@pytest.mark.parametrize("metadata", [None, {"labels": None}, {}])
def test_a_template_that_has_lost_its_labels_on_the_worker_stops_nothing(metadata: Manifest | None) -> None:
    made = Made("RayCluster")
    pod = made.pod("a")
    made.template()["metadata"] = metadata
    assert let_go(made.view(pod)) == ["a"]


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


def with_another(spec: Manifest) -> None:
    spec["containers"].append({"name": "more", "image": "x", "resources": {"requests": {"cpu": "30"}}})


def with_an_init(spec: Manifest) -> None:
    more = {"name": "more", "image": "x", "restartPolicy": "Always", "resources": {"limits": {"cpu": "30"}}}
    spec["initContainers"] = [more]


def with_a_device(spec: Manifest) -> None:
    spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "8"}


def with_a_runtime(spec: Manifest) -> None:
    spec["runtimeClassName"] = "heavy"


def with_a_claim(spec: Manifest) -> None:
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "eight"}]


MOMENTS: dict[str, tuple[Callable[[Manifest], None], str]] = {
    "larger requests": (lambda spec: enlarge({"spec": spec}), "cpu 30 in place of 1"),
    "another container": (with_another, "cpu 31 in place of 1"),
    "a sidecar": (with_an_init, "cpu 31 in place of 1"),
    "a device": (with_a_device, "nvidia.com/gpu 8 in place of 0"),
    "a RuntimeClass": (with_a_runtime, "RuntimeClass heavy in place of none"),
    "a claim of devices": (with_a_claim, "claims of devices by ResourceClaimTemplate eight"),
}


@PER_KIND
@pytest.mark.parametrize(("edit", "told"), MOMENTS.values(), ids=MOMENTS.keys())
def test_pods_of_a_template_that_was_edited_for_a_moment_stay_gated(
    kind: str, edit: Callable[[Manifest], None], told: str
) -> None:
    made = Made(kind)
    pod, edited = made.for_a_moment(edit)
    fits = made.pod("b")
    view = made.view(pod, fits, edited=edited)
    assert let_go(view) == ["b"]
    problem = pod_fit.problem(view)
    assert problem is not None
    assert told in problem.message


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
@pytest.mark.parametrize("named", MOMENTS)
def test_of_an_edit_that_no_agent_has_watched_the_larger_requests_stay_gated(kind: str, named: str) -> None:
    """So do those with claims, which are charged by nothing that runs. What else it named looks like what the cluster
    has added: that is charged when it runs (docs/security.md)."""
    made = Made(kind)
    pod, _ = made.for_a_moment(MOMENTS[named][0])
    assert let_go(made.view(pod)) == ([] if named in ("larger requests", "a claim of devices") else ["a"])


@PER_KIND
def test_what_the_cluster_adds_starts_after_an_edit_too(kind: str) -> None:
    """Sidecars, defaults and RuntimeClasses by its admission, while a template once had another container."""
    made = Made(kind)
    _, edited = made.for_a_moment(with_another)
    pod = made.pod("b")
    spec = pod["spec"]
    spec["containers"].append({"name": "mesh", "image": "x", "resources": {"requests": {"cpu": "2"}}})
    spec["containers"][0]["resources"]["requests"]["memory"] = "4Gi"
    spec |= {"runtimeClassName": "sandboxed", "overhead": {"cpu": "250m"}}
    assert let_go(made.view(pod, edited=edited)) == ["b"]


@PER_KIND
def test_another_runtime_in_the_template_keeps_its_pods_gated(kind: str) -> None:
    """Its overhead is nowhere in the template."""
    made = Made(kind)
    with_a_runtime(made.template()["spec"])
    assert let_go(made.view(made.pod("a"))) == []


@pytest.mark.parametrize("is_undone", [False, True], ids=["now", "for a moment"])
@pytest.mark.parametrize("kind", ["RayCluster", "RayJob"])
def test_a_head_with_an_autoscaler_that_its_slice_has_not_stays_gated(kind: str, is_undone: bool) -> None:
    """KubeRay makes its container of the options of the cluster, which are in no template."""
    made = Made(kind, scaled=False)
    edited: Table[str, EditedTemplates] = Table(str, EditedTemplates)
    options = {"autoscalerOptions": {"resources": {"requests": {"cpu": "30"}}}}
    before = deepcopy(made.target)
    made.target["spec"] |= {"enableInTreeAutoscaling": True} | options
    note_edit(Change(before, deepcopy(made.target)), edited)
    pod = made.pod("a", "head")
    pod["spec"]["containers"] = [
        *before["spec"]["headGroupSpec"]["template"]["spec"]["containers"],
        {"name": "autoscaler", "image": "x", "resources": {"requests": {"cpu": "30"}}},
    ]
    made.target["spec"] |= {"enableInTreeAutoscaling": not is_undone}
    view = made.view(pod, edited=edited.get(made.target["metadata"]["uid"]))
    assert let_go(view) == []
    problem = pod_fit.problem(view)
    assert problem is not None
    assert "cpu 30500m in place of 500m" in problem.message


ELSEWHERE: dict[str, tuple[Any, str]] = {
    "as it was made": ({"pool": "spot"}, ""),
    "as it was made, and fewer nodes": ({"pool": "spot", "zone": "a"}, ""),
    "as the flavor is now": ({"pool": "cheap"}, ""),
    "another flavor's": ({"pool": "large"}, "nodes with pool=large in place of pool=cheap"),
    "any": (None, "nodes with any labels in place of pool=cheap"),
}


@PER_KIND
@pytest.mark.parametrize(("selector", "told"), ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_pods_for_the_nodes_of_another_flavor_stay_gated(kind: str, selector: Any, told: str) -> None:
    """Their quota is that of the flavor that their slice was given."""
    made = Made(kind)
    note = msgspec.json.encode({made.name: [{"pool": "spot"}, {"pool": "cheap"}]}).decode()
    made.slice["metadata"]["annotations"][api_names.NODES_ANNOTATION] = note
    made.template()["spec"]["nodeSelector"] = selector
    view = made.view(made.pod("a"))
    problem = pod_fit.problem(view)
    assert (let_go(view), told in (problem.message if problem else "")) == ([] if told else ["a"], True)


def test_what_is_not_in_a_template_is_no_edit_and_a_job_that_goes_is_forgotten() -> None:
    made = Made("RayCluster")
    edited: Table[str, EditedTemplates] = Table(str, EditedTemplates)
    before, resized = deepcopy(made.target), deepcopy(made.target)
    resized["spec"]["workerGroupSpecs"][0]["replicas"] = 9
    note_edit(Change(None, before), edited)
    note_edit(Change(before, resized), edited)
    assert dict(edited.items()) == {}
    _, noted = made.for_a_moment(with_another)
    edited[made.target["metadata"]["uid"]] = noted
    note_edit(Change(before, None), edited)
    assert dict(edited.items()) == {}


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


@PER_KIND
def test_none_starts_while_nothing_says_what_it_is_charged_for(kind: str) -> None:
    """Somebody has deleted the copy of the slice. That of another job of the name says nothing."""
    made = Made(kind)
    gated = made.pod("a"), made.pod("b", gated=False)
    for view in (made.view(*gated, copies=False), made.of_another().view(*gated)):
        assert let_go(view) == []
        problem = pod_fit.problem(view)
        assert problem is not None
        assert problem.reason == WORKLOAD_MISSING
        assert problem.message.startswith("1 pod stays gated: somebody has deleted the job's Workload on this cluster")
        events = [each.reason for each in waiting.reconcile(view, now=NOW) if isinstance(each, Emit)]
        assert set(events) == {WORKLOAD_MISSING}


def test_pods_that_are_not_granted_are_not_told() -> None:
    made = Made("Job", granted=0)
    enlarge(made.template())
    assert pod_fit.problem(made.view(made.pod("a"))) is None
