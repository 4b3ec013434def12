"""No field of the definitions is forgotten: each is honored, told, or says that nothing depends on it."""

import ast
import copy
from pathlib import Path
from typing import Any

import pytest

from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.slices.api import api_names
from slicebus.slices.api.fields import FIELDS, JOB_KEYS, UNKNOWN, FieldUse
from slicebus.slices.api.honored import finding, text, unhonored, unhonored_of_job
from slicebus.slices.quota.quota import ClusterQueue, Cohort, LocalQueue, ResourceFlavor
from slicebus.slices.workload.workload import Slice
from support import field_page

Manifest = dict[str, Any]
UNIT = Path(__file__).parents[2]
KINDS = field_page.definitions()
TOLD = [(kind, path) for kind, fields in FIELDS.items() for path, field in fields.items() if field.use is FieldUse.TOLD]
HONORED = [
    (kind, path) for kind, fields in FIELDS.items() for path, field in fields.items() if field.use is FieldUse.HONORED
]
READ = {
    "ClusterQueue": ClusterQueue.from_manifest,
    "Cohort": Cohort.from_manifest,
    "LocalQueue": LocalQueue.from_manifest,
    "ResourceFlavor": ResourceFlavor.from_manifest,
    "WorkerCluster": WorkerCluster.from_manifest,
    "Workload": Slice.from_manifest,
}
RESOURCE = {"name": "cpu", "nominalQuota": "4"}
GROUPS = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [RESOURCE]}]}]}
BASE: dict[str, Manifest] = {
    "ClusterQueue": GROUPS,
    "Cohort": GROUPS,
    "LocalQueue": {},
    "ResourceFlavor": {"nodeTaints": [{"key": "a"}], "tolerations": [{"key": "a"}]},
    "WorkerCluster": {},
    "Workload": {"podSets": [{"name": "main", "template": {"spec": {"containers": []}}}]},
}
"""A spec of each kind, on which a field is changed."""
POD = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
VALUES: dict[str, Any] = {
    "stopPolicy": "HoldAndDrain",
    "queueingStrategy": "StrictFIFO",
    "namespaceSelector": {"matchLabels": {"team": "a"}},
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "Any",
    "policy": "LowerPriority",
    "maxPriorityThreshold": 7,
    "whenCanBorrow": "TryNextFlavor",
    "whenCanPreempt": "MayStopSearch",
    "preference": "PreemptionOverBorrowing",
    "weight": 7,
    "nominalQuota": "7",
    "borrowingLimit": "7",
    "lendingLimit": "7",
    "nodeLabels": {"disk": "ssd"},
    "admissionMode": "UsageBasedAdmissionFairSharing",
    "tolerationSeconds": 7,
    "active": False,
    "priority": 7,
    "count": 7,
    "template": POD,
    "accepted": True,
    "cordoned": True,
    "drain": True,
    "labels": {"region": "eu"},
    "capacity": "Unlimited",
    "flavorCapacity": {"a": "Unlimited"},
    "maxRoom": {"cpu": "7"},
}
"""A value that no field has by default, by the last part of its path; else the text `other`."""
BY_THE_CLOCK = ("Workload", "spec.maximumExecutionTimeSeconds")
"""No admission depends on it: the manager reads it of what has quota."""
READ_PATHS = [each for each in HONORED if each[1].startswith("spec.") and each != BY_THE_CLOCK]


def test_every_field_of_the_definitions_is_in_the_table() -> None:
    assert {kind: set(paths) for kind, paths in KINDS.items()} == {kind: set(table) for kind, table in FIELDS.items()}


def test_every_honored_field_names_its_test() -> None:
    for kind, path in HONORED:
        assert field_page.HELD_BY[kind].get(path), f"{kind} {path}: which test fails where it is not honored?"
    listed = {(kind, path) for kind, held in field_page.HELD_BY.items() for path in held}
    assert listed == set(HONORED)


def test_every_told_field_says_what_happens_instead() -> None:
    fields = [*JOB_KEYS.items(), *(item for table in FIELDS.values() for item in table.items())]
    assert not [name for name, field in fields if (field.use is FieldUse.TOLD) != bool(field.instead)]


def names_in(file: str) -> set[str]:
    """The names of the tests in a file below tests/unit, with the name of their class."""
    names = set()
    for node in ast.parse((UNIT / file).read_text()).body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


def test_every_test_that_is_named_exists() -> None:
    named = {
        field_page.test_for(kind, path, field) for kind, table in FIELDS.items() for path, field in table.items()
    } - {""}
    missing = [test for test in named if test.partition("::")[2] not in names_in(test.partition("::")[0])]
    assert not missing


def test_the_page_is_up_to_date() -> None:
    assert field_page.PAGE.read_text() == field_page.page(), "make fields"


def changed(spec: Any, path: list[str]) -> Any:
    """The spec with another value at a path, in the first entry of every list."""
    name, *rest = path
    key, is_list = name.removesuffix("[]"), name.endswith("[]")
    before = spec.get(key)
    value: Any
    if rest:
        inner = (before or [{}])[0] if is_list else before or {}
        value = changed(inner, rest)
        value = [value, *(before or [])[1:]] if is_list else value
    else:
        value = VALUES.get(key, "other")
        value = [value] if is_list else value
    return spec | {key: value}


@pytest.mark.parametrize(("kind", "path"), READ_PATHS)
def test_an_honored_field_is_read(kind: str, path: str) -> None:
    """What decisions get of the object differs with it."""

    def read(spec: Manifest) -> Any:
        metadata = {"name": "a", "namespace": "team", "uid": "u"}
        return READ[kind]({"metadata": metadata, "spec": spec})

    base = copy.deepcopy(BASE[kind])
    assert read(changed(base, path.split(".")[1:])) != read(base)


@pytest.mark.parametrize(("kind", "path"), TOLD)
def test_a_told_field_is_found_on_an_object(kind: str, path: str) -> None:
    manifest = changed({}, path.split("."))
    assert unhonored(kind, manifest) == {path: FIELDS[kind][path].instead}


@pytest.mark.parametrize(("kind", "path"), HONORED)
def test_an_honored_field_is_known(kind: str, path: str) -> None:
    assert UNKNOWN not in unhonored(kind, changed({}, path.split("."))).values()


def group(covered: list[str], **flavors: list[str]) -> Manifest:
    """A resource group with a quota of 1 of each resource that a flavor names."""
    quotas = {flavor: [{"name": name, "nominalQuota": 1} for name in names] for flavor, names in flavors.items()}
    named = [{"name": flavor, "resources": resources} for flavor, resources in quotas.items()]
    return {"coveredResources": covered, "flavors": named}


SET: dict[str, tuple[str, Manifest, dict[str, str]]] = {
    "nothing": ("ClusterQueue", {}, {}),
    "what is empty": ("ClusterQueue", {"spec": {"admissionScope": {}, "admissionChecksStrategy": {"checks": []}}}, {}),
    "no value": ("Workload", {"spec": {"podSets": [{"minCount": None}]}}, {}),
    "one entry of a list": (
        "Workload",
        {"spec": {"podSets": [{"count": 1}, {"count": 2, "minCount": 1}]}},
        {"spec.podSets[].minCount": "it is admitted with all its pods, or waits"},
    ),
    "what only Kueue's definitions have": (
        "ClusterQueue",
        {"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "x"}}, "cohortName": "a"}},
        {"spec.concurrentAdmissionPolicy": UNKNOWN},
    ),
    "the same below a known field": (
        "ClusterQueue",
        {"spec": {"preemption": {"withinClusterQueue": "Never", "next": "x"}}},
        {"spec.preemption.next": UNKNOWN},
    ),
    "the same in a list": (
        "ResourceFlavor",
        {"spec": {"nodeTaints": [{"key": "a", "why": "b"}]}},
        {"spec.nodeTaints[].why": UNKNOWN},
    ),
    "the same beside the spec": (
        "WorkloadPriorityClass",
        {"value": 1, "globalDefault": True},
        {"globalDefault": UNKNOWN},
    ),
    "a status": ("Workload", {"status": {"requeueState": {"count": 1}, "new": 1}}, {}),
    "a selector, whatever it has": ("ClusterQueue", {"spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}, {}),
    "what is no selector": (
        "ClusterQueue",
        {"spec": {"namespaceSelector": {"matchLabel": {"a": "b"}}}},
        {
            "spec.namespaceSelector": "it selects no namespace, as it is no label selector: "
            "Object contains unknown field `matchLabel`"
        },
    ),
    "the same of a cluster": (
        "WorkerCluster",
        {"spec": {"namespaceSelector": {"matchExpressions": [{"key": "a"}]}}},
        {
            "spec.namespaceSelector": "it selects no namespace, as it is no label selector: "
            "Object missing required field `operator` - at `$.matchExpressions[0]`"
        },
    ),
    "values of newer definitions": (
        "ClusterQueue",
        {"spec": {"preemption": {"borrowWithinCohort": {"policy": "Any"}}, "queueingStrategy": "LIFO"}},
        {
            "spec.preemption.borrowWithinCohort.policy": "it may be 'Never' or 'LowerPriority', and is 'Any'",
            "spec.queueingStrategy": "it may be 'BestEffortFIFO' or 'StrictFIFO', and is 'LIFO'",
        },
    ),
    "the same of a tenant's queue": (
        "LocalQueue",
        {"spec": {"stopPolicy": "Pause"}},
        {"spec.stopPolicy": "it may be 'None' or 'Hold' or 'HoldAndDrain', and is 'Pause'"},
    ),
    "quota that nobody gets": (
        "ClusterQueue",
        {"spec": {"resourceGroups": [group(["cpu"], a=["cpu", "gpu"], b=["cpu"]), group(["cpu"], a=["cpu"])]}},
        {
            "spec.resourceGroups[].flavors[].resources": "nobody gets gpu of flavor a, as coveredResources does not "
            "name it, cpu of flavor a is there twice, and the last one counts"
        },
    ),
    "the same of a cohort": (
        "Cohort",
        {"spec": {"resourceGroups": [group(["cpu"], a=["gpu"])]}},
        {
            "spec.resourceGroups[].flavors[].resources": "nobody gets gpu of flavor a, as coveredResources does not "
            "name it, nobody gets cpu of flavor a, which has no quota of it"
        },
    ),
    "a covered resource that a flavor has no quota of": (
        "ClusterQueue",
        {"spec": {"resourceGroups": [group(["cpu", "memory"], a=["cpu"])]}},
        {"spec.resourceGroups[].flavors[].resources": "nobody gets memory of flavor a, which has no quota of it"},
    ),
    "a shape that no definition allows": ("ClusterQueue", {"spec": ["a"]}, {"spec[]": UNKNOWN}),
}


@pytest.mark.parametrize(("kind", "manifest", "found"), SET.values(), ids=SET.keys())
def test_what_is_set_and_not_honored(kind: str, manifest: Manifest, found: dict[str, str]) -> None:
    assert unhonored(kind, {"metadata": {"name": "a", "anything": 1}} | manifest) == found


def test_what_jobs_ask_for_in_vain() -> None:
    job = {
        "metadata": {
            "labels": {"kueue.x-k8s.io/queue-name": "a", "kueue.x-k8s.io/next": "b", "team": "c"},
            "annotations": {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "1", "kueue.x-k8s.io/elastic-job": "true"},
        }
    }
    topology = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    pods = [{"metadata": {"annotations": topology}}, {"spec": {"priorityClassName": "high"}}, {}]
    found = unhonored_of_job(job, pods)
    assert list(found) == [
        "metadata.annotations[provreq.kueue.x-k8s.io/maxRunDurationSeconds]",
        "metadata.labels[kueue.x-k8s.io/next]",
        "template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]",
        "template.spec.priorityClassName",
    ]
    job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    assert "template.spec.priorityClassName" not in unhonored_of_job(job, pods)
    assert unhonored_of_job({}, []) == {}


def test_a_condition_is_told_once_and_taken_back_once() -> None:
    manifest: Manifest = {"metadata": {}, "status": {}}
    found = {"spec.a": "nothing happens", "spec.b": "it waits"}
    assert finding(manifest, {}) is None, "an object on which everything is honored needs no condition"
    told = finding(manifest, found)
    assert told is not None
    assert (told.type, told.status, told.message) == (
        api_names.HONORED_CONDITION,
        False,
        "spec.a is not honored: nothing happens; spec.b is not honored: it waits",
    )
    assert told.message == text(found)
    shown = {"type": told.type, "status": "False", "reason": told.reason, "message": told.message}
    manifest["status"] = {"conditions": [shown]}
    assert finding(manifest, found) is None
    back = finding(manifest, {})
    assert back is not None
    assert back.status
    manifest["status"] = {"conditions": [shown | {"status": "True", "reason": back.reason, "message": back.message}]}
    assert finding(manifest, {}) is None


@pytest.mark.parametrize("value", ["", "Pods", "jobs", "true", "x" * 5000])
def test_an_annotation_of_ours_with_a_value_that_it_cannot_have(value: str) -> None:
    [(path, instead)] = unhonored("ClusterQueue", _spare(value)).items()
    assert path == "metadata.annotations[slicebus.dev/spare]"
    assert instead == f"it may be 'pods', and is {value[:63]!r}"


def test_an_annotation_of_ours_with_a_value_that_it_can_have() -> None:
    assert unhonored("ClusterQueue", _spare("pods")) == {}
    assert unhonored("LocalQueue", _spare("jobs")) == {}, "it says something on a ClusterQueue only"


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("pods-before-jobs", "no", "it may be 'true' or 'false', and is 'no'"),
        ("opportunistic", "never", "it may be 'true' or 'false', and is 'never'"),
        ("notice", "soon", "'soon' is no duration such as 90s"),
        ("pods-before-jobs", "true", None),
        ("notice", "0", None),
        ("notice", "1h30m", None),
    ],
)
def test_a_word_of_a_queue_that_nobody_can_read_is_told(name: str, value: str, instead: str | None) -> None:
    queue = {"metadata": {"name": "a", "annotations": {f"slicebus.dev/{name}": value}}}
    told = {f"metadata.annotations[slicebus.dev/{name}]": instead} if instead is not None else {}
    assert unhonored("ClusterQueue", queue) == told


def _spare(value: str) -> Manifest:
    return {"metadata": {"name": "a", "annotations": {"slicebus.dev/spare": value}}}


def test_a_budget_of_what_a_queue_does_not_cover_is_told() -> None:
    """Nothing would ever be spent of it: a name with a mistake would hold nobody."""
    said = {api_names.BUDGET_ANNOTATION: '{"cpu": "5h/1d", "nvidia.com/gpus": "5h/1d"}'}
    queue = {
        "metadata": {"name": "a", "annotations": said},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu"]}]},
    }
    [(path, instead)] = unhonored("ClusterQueue", queue).items()
    assert path == "metadata.annotations[slicebus.dev/budget]"
    assert instead == "nothing is ever spent of nvidia.com/gpus, as the queue covers only cpu"
    assert unhonored("Cohort", queue | {"spec": {}}) == {}, "its queues say what there is"
