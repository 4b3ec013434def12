"""Whether a kind's schema has the paths of its declaration."""

import copy
from typing import Any

import pytest

from slicebus.slices.jobs.declaration import Declaration
from slicebus.slices.jobs.schema_paths import misfits
from unit.slices.jobs.declared import ENTRIES
from unit.slices.jobs.test_declaration import changed

Schema = dict[str, Any]


def an_object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


OPEN: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NUMBER: Schema = {"type": "integer"}
TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}


def a_jobset(pod_spec: Schema, metadata: Schema = OPEN) -> Schema:
    pods = an_object(metadata=metadata, spec=pod_spec)
    template = an_object(spec=an_object(parallelism=NUMBER, completions=NUMBER, template=pods))
    jobs = {"type": "array", "items": an_object(name=TEXT, replicas=NUMBER, template=template)}
    return an_object(
        spec=an_object(suspend=FLAG, managedBy=TEXT, network=an_object(subdomain=TEXT), replicatedJobs=jobs),
        status=an_object(conditions={"type": "array", "items": OPEN}),
    )


JOBSET = a_jobset(OPEN)
FIELDS = ("namePath", "templatePath", "countPath", "countLimitPath", "multiplierPath", "countAlsoPaths[0]")
REFERRING = {
    "schemas.Deployment": an_object(
        spec={"allOf": [{"$ref": "#/components/schemas/schemas.Spec"}], "default": {}},
        status=an_object(replicas=NUMBER),
    ),
    "schemas.Spec": an_object(paused=FLAG, replicas=NUMBER, template={"$ref": "#/components/schemas/schemas.Template"}),
    "schemas.Template": an_object(metadata=OPEN, spec=an_object(schedulingGates={"type": "array", "items": OPEN})),
}


def without(schema: Schema, *path: str) -> Schema:
    made = copy.deepcopy(schema)
    found = made
    for name in path[:-1]:
        found = found[name]
    del found[path[-1]]
    return made


_ENTRY = ("properties", "spec", "properties", "replicatedJobs")
CASES: dict[str, tuple[Any, Schema, list[str]]] = {
    "it fits": (ENTRIES["JobSet"], JOBSET, []),
    "a field of a list's entry": (
        changed("JobSet", "replicaz", "podSets", 0, "countPath"),
        JOBSET,
        ["podSets[0].countPath: the schema has no spec.replicatedJobs[].replicaz"],
    ),
    "a list that is missing": (
        changed("JobSet", "spec.jobs", "podSets", 0, "listPath"),
        JOBSET,
        [f"podSets[0].{field} is in a list that the schema has not: spec.jobs" for field in FIELDS],
    ),
    "no list": (
        changed("JobSet", "spec.network.subdomain", "podSets", 0, "listPath"),
        JOBSET,
        [f"podSets[0].{field} is in no list: spec.network.subdomain is string" for field in FIELDS],
    ),
    "a list of anything": (ENTRIES["JobSet"], without(JOBSET, *_ENTRY, "items", "properties"), []),
    "another type": (
        changed("JobSet", "name", "podSets", 0, "countPath"),
        JOBSET,
        ["podSets[0].countPath: spec.replicatedJobs[].name is string, and not integer"],
    ),
    "below a value": (
        changed("JobSet", "spec.suspend.now", "suspendPath"),
        JOBSET,
        ["suspendPath: the schema has no spec.suspend.now"],
    ),
    "below what is open": (changed("JobSet", "template.spec.template.spec.x", "podSets", 0, "countPath"), JOBSET, []),
    "no conditions": (
        ENTRIES["JobSet"],
        without(JOBSET, "properties", "status", "properties", "conditions") | {},
        [
            "succeeded.condition: the schema has no status.conditions",
            "failed.condition: the schema has no status.conditions",
        ],
    ),
    "a schema that says nothing": (ENTRIES["JobSet"], {"type": "object"}, []),
    "references": (ENTRIES["Deployment"], REFERRING["schemas.Deployment"], []),
    "a template without gates": (
        ENTRIES["JobSet"],
        a_jobset(an_object(containers={"type": "array", "items": OPEN})),
        [
            "podSets[0].templatePath: the schema has no "
            "spec.replicatedJobs[].template.spec.template.spec.schedulingGates"
        ],
    ),
    "a template without labels": (
        ENTRIES["JobSet"],
        a_jobset(OPEN, metadata={"type": "object"}),
        ["podSets[0].templatePath: the schema has no spec.replicatedJobs[].template.spec.template.metadata.labels"],
    ),
    "a wrong path by references": (
        changed("Deployment", "spec.template.count", "podSets", 0, "countPath"),
        REFERRING["schemas.Deployment"],
        ["podSets[0].countPath: the schema has no spec.template.count"],
    ),
}


@pytest.mark.parametrize(("entry", "schema", "wrong"), CASES.values(), ids=CASES.keys())
def test_paths_that_lead_nowhere_are_named(entry: Any, schema: Schema, wrong: list[str]) -> None:
    assert misfits(Declaration.read(entry), schema, REFERRING) == wrong
