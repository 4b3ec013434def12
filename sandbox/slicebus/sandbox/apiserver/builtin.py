"""The defaults and refusals of the built-in kinds."""

from collections.abc import Iterator
from typing import Any

from slicebus.kube.resources import (
    CONFIGMAPS,
    CRDS,
    EVENTS,
    JOBS,
    LEASES,
    LIMITRANGES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCECLAIMTEMPLATES,
    RUNTIMECLASSES,
    SECRETS,
)
from slicebus.kube.times import now_text
from slicebus.sandbox.apiserver import job_spec, job_status
from slicebus.sandbox.apiserver.kinds import Served
from slicebus.sandbox.apiserver.pod_admission import complete_limit_range

Manifest = dict[str, Any]

_IMMUTABLE = "Invalid value: field is immutable"
_LABEL_MOST = 63
_SCHEDULING = ("nodeSelector", "affinity", "tolerations", "schedulingGates", "resources")
"""The fields of a suspended Job's template that may change, besides its labels and annotations."""
_POD_CHANGEABLE = ("schedulingGates", "nodeName", "activeDeadlineSeconds", "tolerations")


def _complete_job(job: Manifest) -> Manifest:
    """A Job with its defaults, and with the selector and labels of its pods."""
    spec, uid, name = job.get("spec") or {}, job["metadata"]["uid"], job["metadata"]["name"]
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
    template = spec.get("template") or {}
    metadata = template.get("metadata") or {}
    template = template | {"metadata": metadata | {"labels": (metadata.get("labels") or {}) | own}}
    selector = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    return job | {"spec": defaults | spec | {"template": template, "selector": selector}}


def _job_rule(old: Manifest | None, new: Manifest) -> Iterator[str]:
    spec, template = new["spec"], new["spec"]["template"].get("spec") or {}
    if spec["parallelism"] < 0:
        yield f"spec.parallelism: Invalid value: {spec['parallelism']}: must be greater than or equal to 0"
    if not template.get("containers"):
        yield "spec.template.spec.containers: Required value"
    if template.get("restartPolicy") not in ("OnFailure", "Never"):
        yield 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    name = new["metadata"]["name"]
    if len(name) > _LABEL_MOST:
        yield f'spec.template.labels: Invalid value: "{name}": must be no more than {_LABEL_MOST} bytes'
    if old is not None:
        yield from _job_change_problems(old["spec"], spec)
        yield from job_status.problems(spec, old.get("status") or {}, new.get("status") or {})
    elif spec["completionMode"] == "Indexed" and "completions" not in spec:
        yield "spec.completions: Required value: when completion mode is Indexed"
    yield from job_spec.problems(spec)


def _job_change_problems(old: Manifest, new: Manifest) -> Iterator[str]:
    for field in ("managedBy", "completionMode", "selector"):
        if old.get(field) != new.get(field):
            yield f"spec.{field}: {_IMMUTABLE}"
    indexed = new["completionMode"] == "Indexed" and new.get("completions") == new["parallelism"]
    if old.get("completions") != new.get("completions") and not indexed:
        yield f"spec.completions: {_IMMUTABLE}"
    if old["template"] == new["template"]:
        return
    if not old["suspend"]:
        yield f"spec.template: {_IMMUTABLE}"
    elif _settled(old["template"]) != _settled(new["template"]):
        yield f"spec.template.spec: {_IMMUTABLE}"


def _settled(template: Manifest) -> Manifest:
    """The part of a pod template that a suspended Job may not change."""
    return {name: value for name, value in template["spec"].items() if name not in _SCHEDULING}


def _complete_pod(pod: Manifest) -> Manifest:
    return pod | {"spec": pod.get("spec") or {}, "status": {"phase": "Pending"} | (pod.get("status") or {})}


def _pod_rule(old: Manifest | None, new: Manifest) -> Iterator[str]:
    if not new["spec"].get("containers"):
        yield "spec.containers: Required value"
    if old is None:
        return
    before, after = ([gate["name"] for gate in pod["spec"].get("schedulingGates") or ()] for pod in (old, new))
    if not set(after) <= set(before):
        yield "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gates"
    if _fixed(old["spec"], gated=bool(before)) != _fixed(new["spec"], gated=bool(before)):
        yield "spec: Forbidden: pod updates may not change fields other than the allowed ones"


def _fixed(spec: Manifest, *, gated: bool) -> Manifest:
    """The part of a pod's spec that may not change."""
    changeable = (*_POD_CHANGEABLE, *(("nodeSelector", "affinity") if gated else ()))
    fixed = {name: value for name, value in spec.items() if name not in changeable}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [_without_image(container) for container in fixed[field]]
    return fixed


def _without_image(container: Manifest) -> Manifest:
    return {name: value for name, value in container.items() if name != "image"}


def _complete_secret(secret: Manifest) -> Manifest:
    return {"type": "Opaque"} | secret


def _complete_namespace(namespace: Manifest) -> Manifest:
    return namespace | {"status": {"phase": "Active"} | (namespace.get("status") or {})}


def _complete_definition(definition: Manifest) -> Manifest:
    """A CustomResourceDefinition is established at once."""
    spec = definition["spec"]
    names = spec["names"]
    kind = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List"} | names
    conditions = [
        {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": now_text()}
        for type, reason in (("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted"))
    ]
    stored = [version["name"] for version in spec["versions"] if version["storage"]]
    status = {"conditions": conditions, "acceptedNames": kind, "storedVersions": stored}
    return definition | {"spec": spec | {"names": kind}, "status": status | (definition.get("status") or {})}


def _definition_rule(old: Manifest | None, new: Manifest) -> Iterator[str]:
    spec, names, name = new["spec"], new["spec"]["names"], new["metadata"]["name"]
    if name != f"{names['plural']}.{spec['group']}":
        yield f'metadata.name: Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
    if old is None:
        return
    if old["spec"]["scope"] != spec["scope"]:
        yield f"spec.scope: {_IMMUTABLE}"
    if old["spec"]["names"]["kind"] != names["kind"]:
        yield f"spec.names.kind: {_IMMUTABLE}"


_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_POD_FIELDS = ("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase")

BUILTIN: tuple[Served, ...] = (
    Served(
        NAMESPACES,
        has_status=True,
        complete=_complete_namespace,
        label_name=True,
        fields=("status.phase",),
        short_names=("ns",),
    ),
    Served(NODES, has_status=True, keeps_status=True, fields=("spec.unschedulable",), short_names=("no",)),
    Served(
        PODS,
        has_status=True,
        has_generation=True,
        complete=_complete_pod,
        rule=_pod_rule,
        fields=_POD_FIELDS,
        short_names=("po",),
    ),
    Served(EVENTS, fields=_EVENT_FIELDS, short_names=("ev",)),
    Served(CONFIGMAPS, short_names=("cm",)),
    Served(SECRETS, complete=_complete_secret, fields=("type",)),
    Served(LEASES, unconditional=False),
    Served(LIMITRANGES, complete=complete_limit_range, short_names=("limits",)),
    Served(RUNTIMECLASSES),
    Served(RESOURCECLAIMTEMPLATES),
    Served(
        JOBS,
        has_status=True,
        has_generation=True,
        complete=_complete_job,
        rule=_job_rule,
        fields=("status.successful",),
    ),
    Served(
        CRDS,
        has_status=True,
        has_generation=True,
        unconditional=False,
        complete=_complete_definition,
        rule=_definition_rule,
        short_names=("crd", "crds"),
    ),
)
