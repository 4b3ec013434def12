"""How declarations are read: every slip names its entry and its field, and stops no other kind."""

import copy
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from slicebus.slices.jobs import JobKind
from slicebus.slices.jobs.declaration import Declaration, DeclarationError, DeclaredPodSet, ManagedBy, Sign
from slicebus.slices.jobs.paths import add_operation, path_of, text_of, value_at, with_value, without_value
from slicebus.slices.jobs.registry import ENTRY_POINTS, load
from unit.slices.jobs.declared import ENTRIES, KINDS_FILE
from unit.slices.jobs.test_plug import OWN

Manifest = dict[str, Any]


def changed(kind: str, value: Any, *path: str | int) -> Manifest:
    """An entry with another value somewhere; None takes the field away."""
    entry = copy.deepcopy(ENTRIES[kind])
    found: Any = entry
    for step in path[:-1]:
        found = found[step]
    if value is None:
        del found[path[-1]]
    else:
        found[path[-1]] = value
    return entry


_SET = ("podSets", 0)
SLIPS: dict[str, tuple[object, str]] = {
    "no object": ("JobSet", "Expected `object`, got `str`"),
    "no kind": (changed("JobSet", None, "kind"), "Object missing required field `kind`"),
    "no pod sets": (changed("JobSet", None, "podSets"), "Object missing required field `podSets`"),
    "none of them": (changed("JobSet", [], "podSets"), "podSets: Expected `array` of length >= 1"),
    "a slip in a field": (
        changed("JobSet", "spec.suspend", "suspendedPath"),
        "Object contains unknown field `suspendedPath`",
    ),
    "a slip in a pod set": (
        changed("JobSet", "replicas", *_SET, "countsPath"),
        "podSets[0]: Object contains unknown field `countsPath`",
    ),
    "an API version": (
        changed("JobSet", "jobset.x-k8s.io", "apiVersion"),
        "apiVersion: 'jobset.x-k8s.io' is not a group and version, as batch/v1",
    ),
    "a kind": (changed("JobSet", "jobsets", "kind"), "kind: 'jobsets' is not a kind, as Deployment"),
    "a plural": (changed("JobSet", "JobSets", "plural"), "plural: 'JobSets' is not a plural, as deployments"),
    "a path with a slash": (
        changed("JobSet", "/spec/replicas", *_SET, "countPath"),
        "podSets[0].countPath: '/spec/replicas' is not a path, as replicas or template.spec",
    ),
    "a path with two dots": (
        changed("JobSet", "spec..suspend", "suspendPath"),
        "suspendPath: 'spec..suspend' is not a path that begins with spec, as spec.suspend",
    ),
    "a path elsewhere": (
        changed("JobSet", "status.suspend", "suspendPath"),
        "suspendPath: 'status.suspend' is not a path that begins with spec, as spec.suspend",
    ),
    "a number": (changed("JobSet", 3, "suspendPath"), "suspendPath: Expected `str | null`, got `int`"),
    "a count that is in no list": (
        changed("Deployment", "replicas", *_SET, "countPath"),
        "podSets[0]: countPath 'replicas' has to begin with spec, as the pod set is in no list",
    ),
    "a pod set without a name": (
        changed("Deployment", None, *_SET, "name"),
        "podSets[0]: a pod set needs a name, or listPath and namePath",
    ),
    "a list without names": (
        changed("JobSet", None, *_SET, "namePath"),
        "podSets[0]: pod sets of a listPath have a namePath in place of a name",
    ),
    "more counts without a count": (
        changed("JobSet", None, *_SET, "countPath"),
        "podSets[0]: countAlsoPaths needs a countPath",
    ),
    "a limit without a count": (
        changed("LeaderWorkerSet", {"name": "w", "templatePath": "spec.t", "countLimitPath": "spec.n"}, *_SET),
        "podSets[0]: countLimitPath needs a countPath",
    ),
    "names without a list": (
        changed("Deployment", "name", *_SET, "namePath"),
        "podSets[0]: namePath is only for pod sets of a listPath",
    ),
    "a pod set's name": (
        changed("Deployment", "Main", *_SET, "name"),
        "podSets[0].name: 'Main' is not a name of lower-case letters, digits and hyphens",
    ),
    "two pod sets of one name": (
        changed("LeaderWorkerSet", "worker", *_SET, "name"),
        "podSets: two have the same name",
    ),
    "two pod sets of one template": (
        changed("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate", *_SET, "templatePath"),
        "podSets: two have the same template, whose pods are of one pod set only",
    ),
    "a copy without the gates of its pods": (
        changed("TrainJob", "spec.template.spec.schedulingGates", "droppedPaths", 0),
        "droppedPaths[0]: a worker's copy is without spec.template.spec.schedulingGates, and slicebus writes "
        "spec.template.spec.schedulingGates there",
    ),
    "a copy without its pods": (
        changed("JobSet", ["spec.replicatedJobs"], "droppedPaths"),
        "droppedPaths[0]: a worker's copy is without spec.replicatedJobs, and slicebus writes "
        "spec.replicatedJobs.template.spec.template.spec.schedulingGates there",
    ),
    "a copy without its size": (
        changed("TrainJob", "spec.scaling", "managedBy", "path"),
        "managedBy.path: a worker's copy is without spec.scaling, and slicebus writes spec.scaling.replicas there",
    ),
    "a copy that nobody suspends": (
        changed("TrainJob", "spec.runPolicy.suspend", "droppedPaths", 0),
        "droppedPaths[0]: a worker's copy is without spec.runPolicy.suspend, and slicebus writes "
        "spec.runPolicy.suspend there",
    ),
    "a leader that is none": (
        changed("LeaderWorkerSet", "head", "podSets", 1, "replicaSizeIncludes"),
        "podSets: replicaSizeIncludes names 'head', which is no other pod set",
    ),
    "a sign of nothing": (changed("JobSet", {}, "succeeded"), "succeeded: it needs either a condition or a path"),
    "a sign of two": (
        changed("JobSet", {"condition": "Completed", "path": "status.phase"}, "failed"),
        "failed: it needs either a condition or a path",
    ),
    "a sign in the spec": (
        changed("TrainJob", "spec.phase", "succeeded", "path"),
        "succeeded.path: 'spec.phase' is not a path that begins with status, as status.phase",
    ),
    "a mark without a value": (
        changed("Deployment", None, "managedBy", "value"),
        "managedBy: Object missing required field `value`",
    ),
    "a label": (
        changed("JobSet", "Jobset.io/a b", "podLabel"),
        "podLabel: 'Jobset.io/a b' is not a label's key, as example.dev/name",
    ),
    "an end that is not mirrored": (
        changed("TrainJob", ["active"], "mirroredStatus"),
        "mirroredStatus lacks phase, by which succeeded is known",
    ),
    "a number that the worker's status would replace": (
        changed("Deployment", ["replicas"], "mirroredStatus"),
        "managedBy.zeroPath is of the manager's own status: mirroredStatus has to lack replicas",
    ),
    "a field of the status": (
        changed("TrainJob", "status.phase", "mirroredStatus", 0),
        "mirroredStatus[0]: 'status.phase' is not a field of the status, as phase",
    ),
}


VALUES: list[tuple[str | int | bool, object, bool]] = [
    (True, True, True),
    (True, 1, False),
    (1, True, False),
    (1, 1, True),
    (False, 0, False),
    (0, False, False),
    ("1", 1, False),
    ("done", "done", True),
    (True, None, False),
]


@pytest.mark.parametrize(("declared", "present", "is_it"), VALUES, ids=str)
def test_a_yes_is_no_number(declared: str | int | bool, present: object, is_it: bool) -> None:
    job = {"spec": {"by": present}, "status": {"done": present}}
    assert (Sign(path="status.done", value=declared).message(job) is not None) is is_it
    assert (ManagedBy(path="spec.by", value=declared).lacks(job) == "") is is_it


@pytest.mark.parametrize(("entry", "told"), SLIPS.values(), ids=SLIPS.keys())
def test_a_slip_is_named_with_its_field(entry: object, told: str) -> None:
    with pytest.raises(DeclarationError) as raised:
        Declaration.read(entry)
    assert str(raised.value) == told


def written(folder: Path, content: object) -> str:
    path = folder / "kinds.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def test_declared_kinds_come_after_those_of_packages() -> None:
    train = EntryPoint("train", "unit.slices.jobs.test_plug:Train", ENTRY_POINTS)
    kinds, left_out = load([train], str(KINDS_FILE))
    assert list(kinds) == [*OWN, "TrainJob", "JobSet", "LeaderWorkerSet", "Deployment"]
    assert left_out == {}
    assert kinds["JobSet"].resource.path("team") == "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"
    assert kinds["JobSet"].resource.is_custom
    assert not kinds["Deployment"].resource.is_custom


BROKEN: dict[str, tuple[object, str]] = {
    "a wrong path": (
        changed("JobSet", "spec..suspend", "suspendPath"),
        "the job kind JobSet, entry 1 of FILE, cannot be used: suspendPath: 'spec..suspend' is not a path that begins "
        "with spec, as spec.suspend",
    ),
    "no entry": (7, "the entry 1 of FILE cannot be used: Expected `object`, got `int`"),
    "a name that is taken": (
        changed("JobSet", "Job", "kind"),
        "the job kind Job, entry 1 of FILE, has the name Job, as batch/v1 has it",
    ),
    "the same again": (
        ENTRIES["Deployment"],
        "the job kind Deployment, entry 1 of FILE, has the name Deployment, as apps/v1 has it",
    ),
}


@pytest.mark.parametrize(("entry", "told"), BROKEN.values(), ids=BROKEN.keys())
def test_a_wrong_declaration_leaves_only_its_kind_out(tmp_path: Path, entry: object, told: str) -> None:
    file = written(tmp_path, [ENTRIES["Deployment"], entry, ENTRIES["LeaderWorkerSet"]])
    kinds, left_out = load([], file)
    assert list(kinds) == [*OWN, "Deployment", "LeaderWorkerSet"]
    assert left_out == {f"{file}[1]": told.replace("FILE", file)}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("kind: [", "cannot be read: while parsing a flow"),
        ({"kinds": []}, "are no list"),
        ("", "are no list"),
    ],
    ids=["no YAML", "no list", "empty"],
)
def test_a_file_that_cannot_be_read_leaves_out_its_kinds(tmp_path: Path, content: object, told: str) -> None:
    file = written(tmp_path, content)
    kinds, left_out = load([], file)
    assert list(kinds) == OWN
    assert left_out[file].startswith(f"the job kinds in {file} {told}")


def test_a_file_that_is_missing_leaves_out_its_kinds(tmp_path: Path) -> None:
    file = str(tmp_path / "nowhere.yaml")
    kinds, left_out = load([], file)
    assert list(kinds) == OWN
    assert left_out[file].startswith(f"the job kinds in {file} cannot be read: [Errno 2] No such file")


def test_every_path_is_known_by_the_field_that_names_it() -> None:
    assert Declaration.read(ENTRIES["TrainJob"]).paths() == [
        ("podSets[0].templatePath", None, ("spec", "driver", "template"), "object"),
        ("podSets[1].templatePath", None, ("spec", "template"), "object"),
        ("podSets[1].countPath", None, ("spec", "scaling", "replicas"), "integer"),
        ("suspendPath", None, ("spec", "runPolicy", "suspend"), "boolean"),
        ("managedBy.path", None, ("spec", "runPolicy", "managedBy"), ""),
        ("droppedPaths[0]", None, ("spec", "runPolicy", "ttlSecondsAfterFinished"), ""),
        ("droppedPaths[1]", None, ("spec", "nowhere", "at", "all"), ""),
        ("succeeded.path", None, ("status", "phase"), ""),
        ("failed.path", None, ("status", "phase"), ""),
        ("mirroredStatus[0]", None, ("status", "phase"), ""),
        ("mirroredStatus[1]", None, ("status", "active"), ""),
    ]
    found = Declaration.read(ENTRIES["JobSet"]).paths()
    at = ("spec", "replicatedJobs")
    assert ("podSets[0].multiplierPath", at, ("replicas",), "integer") in found
    assert ("podSets[0].countAlsoPaths[0]", at, ("template", "spec", "completions"), "integer") in found
    assert ("podSets[0].countLimitPath", at, ("template", "spec", "completions"), "integer") in found
    assert ("succeeded.condition", None, ("status", "conditions"), "array") in found


def test_values_by_paths() -> None:
    manifest: Manifest = {"spec": {"groups": [{"n": 1}, {"n": 2}], "a": {"b": 1, "c": 2}}}
    path = ("spec", "groups", 1, "n")
    assert text_of(path) == "spec.groups[1].n"
    assert value_at(manifest, path) == 2
    assert value_at(manifest, ("spec", "groups", 5, "n")) is None
    assert with_value(manifest, path, 9)["spec"]["groups"] == [{"n": 1}, {"n": 9}]
    assert without_value(manifest, path_of("spec.a.b"))["spec"]["a"] == {"c": 2}
    assert without_value(manifest, path_of("spec.x.y")) is manifest
    assert manifest["spec"]["groups"][1] == {"n": 2}
    assert add_operation(manifest, path_of("spec.a.x"), 1) == {"op": "add", "path": "/spec/a/x", "value": 1}
    made = add_operation(manifest, path_of("spec.x.y.z"), 1)
    assert made == {"op": "add", "path": "/spec/x", "value": {"y": {"z": 1}}}


PAGE = (Path(__file__).parents[4] / "docs" / "job-kinds.md").read_text()


def test_the_page_declares_what_the_tests_run() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    declared = [entry for block in blocks for entry in yaml.safe_load(block)["declaredJobKinds"]]
    in_tests = yaml.safe_load(KINDS_FILE.read_text())
    assert {entry["kind"]: entry for entry in declared} == {entry["kind"]: entry for entry in in_tests}


@pytest.mark.parametrize("declaration", [Declaration, DeclaredPodSet])
def test_the_page_has_every_field(declaration: type) -> None:
    fields = [field.encode_name for field in msgspec.structs.fields(declaration)]
    assert not [name for name in fields if f"`{name}`" not in PAGE]


def test_the_page_has_everything_that_a_class_says() -> None:
    members = [*JobKind.__annotations__, *(name for name in vars(JobKind) if not name.startswith("_"))]
    assert not [name for name in members if f"`{name}`" not in PAGE]
