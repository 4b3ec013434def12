"""Pods whose pod set was empty when their job was made get the nodes of their flavor when they are let go."""

from typing import Any

import msgspec
import pytest

from slicebus.agent.decide.job import reconcile
from slicebus.agent.decide.order import orders
from slicebus.agent.decide.pods.pod_placement import placed
from slicebus.agent.state.views import WorkerView
from slicebus.decisions.commands import Create, Patch, PatchEach
from slicebus.proto.messages import PodSetFlavor
from slicebus.slices.api import api_names
from unit.agent.objects import COPY_STEP, EAST, JOB_STEP, a_copy, a_job, a_pod, a_spec, a_view

Manifest = dict[str, Any]
SPOT = PodSetFlavor({"pool": "spot"}, [{"key": "spot", "operator": "Exists"}])
NODES = [
    {"op": "add", "path": "/spec/nodeSelector", "value": {"pool": "spot"}},
    {"op": "add", "path": "/spec/tolerations", "value": SPOT.tolerations},
]
NOTE = {api_names.PLACEMENTS_ANNOTATION: msgspec.json.encode({"main": SPOT}).decode()}


def made(view: WorkerView, **order: Any) -> list[Manifest]:
    """The objects that an order makes in this view: the job, and the copy of its slice."""
    steps = orders.workload_spec(a_spec(2, "w2", **order), EAST)
    decided = [command for number in (JOB_STEP, COPY_STEP) for command in steps[number].decide(view)]
    return [command.manifest for command in decided if isinstance(command, Create)]


def an_unplaced_job(granted: int = 2) -> Manifest:
    job = a_job(granted, workload="w2", granted=granted)
    job["spec"]["template"] = job["spec"]["template"] | {"metadata": {"labels": {api_names.UNPLACED_LABEL: "true"}}}
    return job


def unplaced(name: str) -> Manifest:
    pod = a_pod(name, gated=True)
    pod["metadata"]["labels"][api_names.UNPLACED_LABEL] = "true"
    return pod


def a_noted_copy(name: str = "w2") -> Manifest:
    copy = a_copy(name)
    copy["metadata"]["annotations"] |= NOTE
    return copy


def patches(view: WorkerView) -> dict[str, list[Manifest]]:
    found = [patch for command in reconcile.ungate(view) if isinstance(command, PatchEach) for patch in command.patches]
    bodies = {patch.target["metadata"]["name"]: patch.body for patch in found}
    return {name: [op for op in body if "schedulingGates" not in op["path"]] for name, body in bodies.items()}


@pytest.mark.parametrize(
    ("flavors", "label", "selector"), [({}, "true", None), ({"main": SPOT}, None, {"pool": "spot"})]
)
def test_a_template_is_labelled_where_its_pod_set_has_no_flavor(flavors: Any, label: Any, selector: Any) -> None:
    [job] = [each for each in made(a_view(None), flavors=flavors) if each["kind"] == "Job"]
    template = job["spec"]["template"]
    assert template["metadata"]["labels"].get(api_names.UNPLACED_LABEL) == label
    assert template["spec"].get("nodeSelector") == selector


def test_the_copy_of_a_later_slice_says_where_such_pods_run() -> None:
    [copy] = made(a_view(an_unplaced_job(0)), flavors={"main": SPOT})
    assert copy["metadata"]["annotations"].items() >= NOTE.items()


@pytest.mark.parametrize(("job", "flavors"), [(a_job(), {"main": SPOT}), (an_unplaced_job(), {})])
def test_it_says_nothing_of_pods_whose_template_does_and_of_no_pods(job: Manifest, flavors: Any) -> None:
    [copy] = made(a_view(job), flavors=flavors)
    assert api_names.PLACEMENTS_ANNOTATION not in copy["metadata"]["annotations"]


def nodes(manifests: list[Manifest]) -> Any:
    """What the one copy among these says of the nodes of placed pods."""
    [copy] = [one for one in manifests if one["kind"] == "Workload"]
    note = copy["metadata"]["annotations"].get(api_names.NODES_ANNOTATION)
    return msgspec.json.decode(note) if note is not None else None


def noting(*labels: dict[str, str]) -> Manifest:
    copy = a_copy("w1")
    copy["metadata"]["annotations"][api_names.NODES_ANNOTATION] = msgspec.json.encode({"main": labels}).decode()
    return copy


NODES_SAID: dict[str, tuple[tuple[Manifest, ...], PodSetFlavor, Any]] = {
    "the first copy": ((), SPOT, {"main": [{"pool": "spot"}]}),
    "of a flavor without labels": ((), PodSetFlavor(), None),
    "the next copy": ((noting({"pool": "spot"}),), SPOT, {"main": [{"pool": "spot"}]}),
    "of a flavor that was edited": ((noting({"pool": "old"}),), SPOT, {"main": [{"pool": "old"}, {"pool": "spot"}]}),
    "of a flavor that got its labels later, or from an older agent": ((a_copy("w1"),), SPOT, None),
    "that lost its labels": ((noting({"pool": "old"}),), PodSetFlavor(), {"main": [{"pool": "old"}, {}]}),
    "of one that is edited all the time": (
        (noting(*({"pool": str(number)} for number in range(8))),),
        SPOT,
        {"main": [*({"pool": str(number)} for number in range(1, 8)), {"pool": "spot"}]},
    ),
}


@pytest.mark.parametrize(("copies", "flavor", "said"), NODES_SAID.values(), ids=NODES_SAID.keys())
def test_a_copy_says_which_nodes_templates_have(copies: tuple[Manifest, ...], flavor: PodSetFlavor, said: Any) -> None:
    """Templates keep the labels that their flavor had when they were made."""
    assert nodes(made(a_view(a_job(), *copies), flavors={"main": flavor})) == said


def test_it_says_none_of_pods_that_are_placed_at_their_start() -> None:
    assert nodes(made(a_view(an_unplaced_job(0)), flavors={"main": SPOT})) is None


def test_a_pod_gets_its_nodes_with_the_start() -> None:
    assert patches(a_view(an_unplaced_job(1), a_noted_copy(), pods=(unplaced("a"), unplaced("b")))) == {"a": NODES}


def test_a_pod_with_a_placed_template_starts_as_it_is() -> None:
    assert patches(a_view(an_unplaced_job(), a_noted_copy(), pods=(a_pod("a", gated=True),))) == {"a": []}


@pytest.mark.parametrize("copies", [(), (a_noted_copy("w1"),), (a_copy("w2"),)], ids=["none", "older", "says nothing"])
def test_a_pod_waits_until_the_copy_of_its_slice_says_where_it_runs(copies: tuple[Manifest, ...]) -> None:
    """A relabel may come before the spec."""
    assert patches(a_view(an_unplaced_job(), *copies, pods=(unplaced("a"),))) == {}


def test_nodes_and_tolerations_are_added_to_those_that_a_pod_has() -> None:
    pod = {"spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "own"}, *SPOT.tolerations]}}
    assert placed(pod, SPOT) == [
        {"op": "add", "path": "/spec/nodeSelector", "value": {"disk": "ssd", "pool": "spot"}},
    ]
    assert placed(pod, PodSetFlavor()) == []


def test_a_patch_of_nodes_also_opens_the_gate() -> None:
    [command] = reconcile.ungate(a_view(an_unplaced_job(), a_noted_copy(), pods=(unplaced("a"),)))
    assert isinstance(command, PatchEach)
    [patch] = command.patches
    assert isinstance(patch, Patch)
    assert [op["op"] for op in patch.body] == ["test", "remove", "add", "add"]
