"""Checks whether the policy of the agent's own cluster allows what an order would make.

It is checked when a job would be created, and when a RayService would take over what was edited at the manager.
Otherwise an existing job runs on when the policy becomes stricter: an order changes only its size and whether it is
suspended.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state.policy import Policy
from slicebus.kube.impersonation import Impersonation
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.selectors import selects
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.pod_security import violations

NAMESPACE = "NamespaceNotAllowed"
NOT_FOUND = "NotFound"
TERMINATING = "Terminating"
"""The phase of a namespace that is being deleted."""
_SYSTEM = "kube-"
_SLICEBUS = ("slicebus.dev/", "kueue.x-k8s.io/")
"""Keys that an agent sets itself, or drops where only an agent may set them."""
_DEFAULT_ACCOUNT = "default"
_SCHEDULER = "default-scheduler"
_SYSTEM_CLASS = "system-"
_CONTROL_PLANE = "node-role.kubernetes.io/"
"""How the taints of nodes begin that are for the cluster itself."""
_DRIVEN = ("csi", "flexVolume")
"""The volumes that a driver of the node mounts, which the pod names."""
_MOST_NAMED = 3


class _Objection(NamedTuple):
    """What a policy does not allow."""

    reason: str
    rule: str
    """The field of the policy, with its value."""
    subject: str


def ensure_namespace(policy: Policy, namespace: str) -> None:
    """Raises RefusedOrder for a namespace that no policy allows."""
    if namespace.startswith(_SYSTEM) or namespace == policy.own_namespace:
        text = f"no job may be in the namespace {namespace}: it belongs to the cluster or to its agent"
        raise RefusedOrder(NAMESPACE, text)


def why_lacking(policy: Policy, namespace: str, manifest: Manifest | None) -> str | None:
    """Why no job may come from a namespace, in the words of a heartbeat; None where jobs may. `manifest` is the
    namespace on this cluster."""
    try:
        ensure_namespace(policy, namespace)
    except RefusedOrder:
        return NAMESPACE
    if manifest is None:
        return NOT_FOUND
    if manifest.get("status", {}).get("phase") == TERMINATING:
        return TERMINATING
    selector = policy.namespace_selector
    labels = manifest["metadata"].get("labels") or {}
    return None if selector is None or selects(selector.to_manifest(), labels) else NAMESPACE


def ensure_allowed(policy: Policy, copy: Manifest, *, namespace_labels: Mapping[str, str] | None) -> None:
    """Raises RefusedOrder, which names the rules, for a job that the policy does not allow to be created.

    `copy` is the job as it would be created. `namespace_labels` are those of its namespace; None where there is no such
    namespace, or nobody had to read them.
    """
    _ensure_none([*_namespace(policy, copy, namespace_labels), *_contents(policy, copy)])


def ensure_edit_allowed(policy: Policy, copy: Manifest) -> None:
    """Raises RefusedOrder, which names the rules, for a job that the policy does not allow to become what `copy` is.
    Its namespace was checked when it was created."""
    _ensure_none([*_contents(policy, copy)])


def _contents(policy: Policy, copy: Manifest) -> Iterator[_Objection]:
    yield from _pods(policy, copy)
    yield from _keys(policy, copy)
    yield from _exposure(policy, copy)


def _ensure_none(objections: list[_Objection]) -> None:
    if objections:
        named = [f"{objection.subject} (policy {objection.rule})" for objection in objections[:_MOST_NAMED]]
        left = [f"and {len(objections) - len(named)} more"] if len(objections) > len(named) else []
        raise RefusedOrder(objections[0].reason, f"this cluster does not allow {'; '.join([*named, *left])}")


def creator(policy: Policy, namespace: str) -> Impersonation | None:
    """The service account as which a job is created in a namespace, where the policy names one; None for the agent
    itself. The extra tells the cluster's admission which agent stands behind it."""
    if policy.create_as is None:
        return None
    extra = {api_names.AGENT_EXTRA: policy.own_namespace}
    return Impersonation.of_service_account(namespace, policy.create_as, extra=extra)


def _namespace(policy: Policy, copy: Manifest, labels: Mapping[str, str] | None) -> Iterator[_Objection]:
    selector = policy.namespace_selector
    if selector is not None and (labels is None or not selects(selector.to_manifest(), labels)):
        name = copy["metadata"]["namespace"]
        yield _Objection(NAMESPACE, "namespaceSelector", f"jobs in the namespace {name}")


def _pods(policy: Policy, copy: Manifest) -> Iterator[_Objection]:
    for pod_set in KINDS[copy["kind"]].pod_sets(copy):
        name, template = pod_set["name"], pod_set["template"]
        for violation in violations(template, policy.pod_security):
            yield _Objection("PodSecurity", f"podSecurity: {policy.pod_security}", f"in pod set {name} {violation}")
        yield from _classes(policy, template["spec"], name)
        account = template["spec"].get("serviceAccountName") or template["spec"].get("serviceAccount")
        used = account or _DEFAULT_ACCOUNT
        if policy.service_accounts is not None and used not in policy.service_accounts:
            subject = f"the service account {used} in pod set {name}"
            yield _Objection("ServiceAccountNotAllowed", "serviceAccounts", subject)


def _classes(policy: Policy, spec: Manifest, name: str) -> Iterator[_Objection]:
    """What a pod names that belongs to the cluster: its classes, its scheduler, taints of its nodes, drivers."""
    priority, runtime = spec.get("priorityClassName") or "", spec.get("runtimeClassName") or ""
    scheduler, named = spec.get("schedulerName") or "", policy.priority_classes
    if priority and (priority.startswith(_SYSTEM_CLASS) if named is None else priority not in named):
        subject = f"the PriorityClass {priority} in pod set {name}"
        yield _Objection("PriorityClassNotAllowed", "priorityClasses", subject)
    if runtime and policy.runtime_classes is not None and runtime not in policy.runtime_classes:
        subject = f"the RuntimeClass {runtime} in pod set {name}"
        yield _Objection("RuntimeClassNotAllowed", "runtimeClasses", subject)
    if policy.scheduler_names is not None and scheduler not in ("", _SCHEDULER, *policy.scheduler_names):
        subject = f"the scheduler {scheduler} in pod set {name}"
        yield _Objection("SchedulerNotAllowed", "schedulerNames", subject)
    for toleration in spec.get("tolerations") or ():
        key = toleration.get("key") or ""
        if _tolerates(policy, key):
            continue
        subject = f"a toleration of {f'the taint {key}' if key else 'every taint'} in pod set {name}"
        yield _Objection("TolerationNotAllowed", "tolerationKeys", subject)
    for volume in spec.get("volumes") or ():
        for kind in _DRIVEN if policy.csi_drivers is not None else ():
            driver = (volume.get(kind) or {}).get("driver") or ""
            if volume.get(kind) and driver not in (policy.csi_drivers or ()):
                subject = f"a volume of the driver {driver} in pod set {name}"
                yield _Objection("VolumeNotAllowed", "csiDrivers", subject)


def _tolerates(policy: Policy, key: str) -> bool:
    if policy.toleration_keys is not None:
        return key in policy.toleration_keys
    return bool(key) and not key.startswith(_CONTROL_PLANE)


def _keys(policy: Policy, copy: Manifest) -> Iterator[_Objection]:
    exposure = KINDS[copy["kind"]].exposure(copy)
    templates = [pod_set["template"] for pod_set in KINDS[copy["kind"]].pod_sets(copy)]
    metadata = [copy["metadata"], *(template.get("metadata") or {} for template in templates)]
    labels = {key for part in metadata for key in part.get("labels") or {}} | exposure.labels.keys()
    annotations = {key for part in metadata for key in part.get("annotations") or {}} | exposure.annotations.keys()
    for key in _beyond(policy.label_prefixes, labels):
        yield _Objection("LabelNotAllowed", "labelPrefixes", f"the label {key}")
    for key in _beyond(policy.annotation_prefixes, annotations):
        yield _Objection("AnnotationNotAllowed", "annotationPrefixes", f"the annotation {key}")


def _beyond(prefixes: tuple[str, ...] | None, keys: Iterable[str]) -> list[str]:
    """The keys that begin with no prefix, in order."""
    return [] if prefixes is None else sorted(key for key in keys if not key.startswith((*prefixes, *_SLICEBUS)))


def _exposure(policy: Policy, copy: Manifest) -> Iterator[_Objection]:
    exposure = KINDS[copy["kind"]].exposure(copy)
    for service_type in sorted(exposure.service_types - {*policy.service_types}):
        yield _Objection("ServiceTypeNotAllowed", "serviceTypes", f"a Service of type {service_type}")
    if exposure.external_ips:
        yield _Objection("ServiceTypeNotAllowed", "serviceTypes", "a Service with externalIPs")
    if exposure.ingress and not policy.ingress:
        yield _Objection("IngressNotAllowed", "ingress: false", "an Ingress")
    if exposure.gateway and not policy.ingress:
        yield _Objection("IngressNotAllowed", "ingress: false", "a Gateway")
    for name in sorted(exposure.service_names.difference(policy.service_names or ())):
        if policy.service_names is not None:
            yield _Objection("ServiceNameNotAllowed", "serviceNames", f"a Service named {name}")
    allows = policy.service_accounts is None if policy.autoscaler_accounts is None else policy.autoscaler_accounts
    if exposure.makes_account and not allows:
        subject = "the service account that KubeRay makes for Ray's autoscaler"
        yield _Objection("ServiceAccountNotAllowed", "autoscalerAccounts", subject)
