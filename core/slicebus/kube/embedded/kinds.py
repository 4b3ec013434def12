"""What the server knows of each resource: how it is served, completed and validated."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from slicebus.kube.embedded import schema
from slicebus.kube.resources import (
    CONFIGMAPS,
    CRDS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Resource,
)

Manifest = dict[str, Any]
Rule = Callable[[Manifest | None, Manifest], Iterator[str]]
"""Problems of a new object, given the old one."""


class Served(msgspec.Struct, frozen=True):
    """A resource as it is served."""

    resource: Resource
    has_status: bool = False
    schema: Manifest | None = None
    """Of a custom resource."""
    complete: Callable[[Manifest], Manifest] = lambda manifest: manifest
    """Fills in what the server gives a new object."""
    rule: Rule = lambda old, new: iter(())
    short_names: tuple[str, ...] = ()
    columns: tuple[Manifest, ...] = ()
    """`additionalPrinterColumns`."""


def with_defaults(served: Served, manifest: Manifest) -> Manifest:
    """A manifest as it is stored: defaults in, unknown fields of custom resources out."""
    if served.schema is not None:
        completed: Manifest = schema.completed(manifest, served.schema)
        return completed
    return served.complete(manifest)


def problems_of(served: Served, old: Manifest | None, new: Manifest) -> list[str]:
    """Why an object cannot be stored."""
    found = list(schema.problems(new, served.schema)) if served.schema is not None else []
    return found + list(served.rule(old, new))


def _complete_job(job: Manifest) -> Manifest:
    """Defaults of a Job, and the selector and labels that tie its pods to it."""
    spec, uid, name = job["spec"], job["metadata"]["uid"], job["metadata"]["name"]
    defaults: Manifest = {"backoffLimit": 6, "suspend": False, "completionMode": "NonIndexed"}
    if "parallelism" not in spec and "completions" not in spec:
        defaults["completions"] = 1
    defaults["parallelism"] = 1
    if spec.get("manualSelector"):
        return job | {"spec": defaults | spec}
    own = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    template = copy.deepcopy(spec["template"])
    metadata = template.setdefault("metadata", {}) or {}
    template["metadata"] = metadata | {"labels": (metadata.get("labels") or {}) | own}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    return job | {"spec": defaults | spec | {"template": template, "selector": selector}}


def _job_rule(old: Manifest | None, new: Manifest) -> Iterator[str]:
    if new["spec"].get("parallelism", 1) < 0:
        yield "spec.parallelism: Invalid value: must be greater than or equal to 0"
    if not new["spec"]["template"].get("spec", {}).get("containers"):
        yield "spec.template.spec.containers: Required value"
    if old is None:
        return
    for field in ("managedBy", "completionMode", "selector"):
        if old["spec"].get(field) != new["spec"].get(field):
            yield f"spec.{field}: Invalid value: field is immutable"
    if old["spec"]["template"] != new["spec"]["template"] and not old["spec"].get("suspend"):
        yield "spec.template: Invalid value: field is immutable"


def _complete_pod(pod: Manifest) -> Manifest:
    return pod | {"status": {"phase": "Pending"} | pod.get("status", {})}


def _pod_rule(old: Manifest | None, new: Manifest) -> Iterator[str]:
    if not new["spec"].get("containers"):
        yield "spec.containers: Required value"
    if old is None:
        return
    before, after = ([gate["name"] for gate in pod["spec"].get("schedulingGates") or ()] for pod in (old, new))
    if not set(after) <= set(before):
        yield "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gates"
    changeable = ("schedulingGates", "nodeName", "activeDeadlineSeconds", "tolerations")
    if any(old["spec"].get(k) != new["spec"].get(k) for k in {**old["spec"], **new["spec"]} if k not in changeable):
        yield "spec: Forbidden: pod updates may not change fields other than the allowed ones"


BUILTIN: tuple[Served, ...] = (
    Served(NAMESPACES, has_status=True, short_names=("ns",)),
    Served(NODES, has_status=True, short_names=("no",)),
    Served(PODS, has_status=True, complete=_complete_pod, rule=_pod_rule, short_names=("po",)),
    Served(EVENTS, short_names=("ev",)),
    Served(CONFIGMAPS, short_names=("cm",)),
    Served(SECRETS),
    Served(LEASES),
    Served(JOBS, has_status=True, complete=_complete_job, rule=_job_rule),
    Served(CRDS, has_status=True, short_names=("crd",)),
)


def served_by(crd: Manifest) -> list[Served]:
    """The resources that a CustomResourceDefinition brings, one for each served version."""
    spec = crd["spec"]
    names = spec["names"]
    return [
        Served(
            Resource(
                spec["group"], version["name"], names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced"
            ),
            has_status="status" in version.get("subresources", {}),
            schema=version["schema"]["openAPIV3Schema"],
            short_names=tuple(names.get("shortNames", ())),
            columns=tuple(version.get("additionalPrinterColumns", ())),
        )
        for version in spec["versions"]
        if version["served"]
    ]
