"""The files that `slicebus diff` reads: whatever is in them, a mistake is one line."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from slicebus.cli.difference.command import _effects
from slicebus.cli.difference.edits import edits_of, exported, merged, named
from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, LOCALQUEUES, WORKLOADPRIORITYCLASSES, WORKLOADS, Resource
from slicebus.proto.errors import ConfigurationError, SlicebusError

Manifest = dict[str, Any]
FIELDS = (
    "resourceGroups",
    "coveredResources",
    "flavors",
    "name",
    "resources",
    "nominalQuota",
    "cohortName",
    "preemption",
    "podSets",
    "template",
    "spec",
    "queueName",
    "priorityClassRef",
    "parentName",
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab1Gim", max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=8,
)


def an_object(resource: Resource, name: str, **fields: Any) -> Manifest:
    metadata = {"name": name, **({"namespace": "team"} if resource.namespaced else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}


def a_queue(name: str = "cq", cores: str = "5") -> Manifest:
    quota = {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": cores}]}
    groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
    return an_object(CLUSTERQUEUES, name, spec={"namespaceSelector": {}, "resourceGroups": groups})


def file_of(folder: Path, *manifests: Any) -> str:
    path = folder / "objects.yaml"
    path.write_text(yaml.safe_dump_all(manifests))
    return str(path)


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        (an_object(WORKLOADPRIORITYCLASSES, "high"), "WorkloadPriorityClass high has no value that is a number"),
        (an_object(WORKLOADPRIORITYCLASSES, "high", value="9"), "WorkloadPriorityClass high has no value that is"),
        ({**a_queue(), "metadata": {"name": 3}}, "ClusterQueue 3: metadata.name is 3, which is no text"),
    ],
)
def test_an_edit_that_makes_no_sense(tmp_path: Path, manifest: Manifest, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        edits_of([file_of(tmp_path, manifest)], namespace="team")


def test_the_last_of_a_name_counts(tmp_path: Path) -> None:
    [(resource, queue)] = edits_of([file_of(tmp_path, a_queue(cores="5"), a_queue(cores="9"))], namespace="team")
    assert (resource, queue) == (CLUSTERQUEUES, a_queue(cores="9"))


def test_an_object_without_a_namespace_in_an_export(tmp_path: Path) -> None:
    workload = {**an_object(WORKLOADS, "w"), "metadata": {"name": "w"}}
    with pytest.raises(ConfigurationError, match="there is a Workload without a namespace"):
        exported([file_of(tmp_path, a_queue(), workload)])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ClusterQueue/other", "there is no such ClusterQueue"),
        ("ClusterQueue/team/cq", "name one as ClusterQueue/NAME, Cohort/NAME, LocalQueue/NAMESPACE/NAME"),
        ("LocalQueue/main", "name one as"),
        ("Workload/team/w", "name one as"),
        ("cq", "name one as"),
        ("ClusterQueue/cq", "the files have it"),
    ],
)
def test_an_object_that_cannot_go(tmp_path: Path, name: str, told: str) -> None:
    store = exported([file := file_of(tmp_path, a_queue())])
    with pytest.raises(ConfigurationError, match=f"--without {name}: {told}"):
        named(store, [name], edits_of([file], namespace="team"))


def test_objects_that_go(tmp_path: Path) -> None:
    queue = an_object(LOCALQUEUES, "main", spec={"clusterQueue": "cq"})
    store = exported([file_of(tmp_path, a_queue(), queue)])
    found = named(store, ["ClusterQueue/cq", "LocalQueue/team/main"])
    assert [(resource, manifest["metadata"]["name"]) for resource, manifest in found] == [
        (CLUSTERQUEUES, "cq"),
        (LOCALQUEUES, "main"),
    ]


@pytest.mark.decisions_fail  # A reading that raises is logged, and its object counts as missing.
@settings(max_examples=40)
@given(specs=st.lists(ANYTHING, min_size=3, max_size=3))
def test_whatever_a_spec_is_a_mistake_is_one_line(specs: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    others = zip((COHORTS, WORKLOADS), specs[1:], strict=True)
    objects = [a_queue(), *(an_object(resource, "some", spec=spec) for resource, spec in others)]
    told = ""
    try:
        store = exported([file_of(folder, *objects)])
        edits = edits_of([file_of(folder, an_object(CLUSTERQUEUES, "cq", spec=specs[0]))], namespace="team")
        _effects(store, merged(store, edits))
    except SlicebusError as error:
        told = str(error)
    raised = r"an object has a shape that no API server stores: the decision diff raised \w+, traceback \w+"
    assert re.fullmatch(f"|ClusterQueue cq cannot be read|{raised}", told)
