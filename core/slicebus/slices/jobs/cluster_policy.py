"""What the policy of a worker's cluster lets jobs make there, whoever orders them.

The agent refuses what it does not allow. The manager knows the rules by the agent's heartbeats, and only tells of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple

import msgspec

from slicebus.proto.messages import Manifest
from slicebus.slices.api.selectors import LabelSelector
from slicebus.slices.jobs.registry import KINDS
from slicebus.slices.workload.pod_security import Level, violations

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

ServiceType = Annotated[str, msgspec.Meta(pattern="^(ClusterIP|NodePort|LoadBalancer|ExternalName)$")]

ServiceAccountName = Annotated[
    str,
    msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253),
]
"""A DNS subdomain."""


class PolicyRules(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What may be made on a cluster. None allows everything."""

    namespace_selector: LabelSelector | None = None
    """The namespaces of jobs. Never `kube-*`, nor the agent's own, whatever it selects."""
    pod_security: Level = Level.BASELINE
    """The Pod Security level that every pod template meets."""
    service_accounts: tuple[str, ...] | None = None
    """The names that pods may use. Pods that name none use `default`."""
    label_prefixes: tuple[str, ...] | None = None
    """How the keys of labels begin, on jobs, their pods and Services. Those that slicebus itself sets are always
    allowed."""
    annotation_prefixes: tuple[str, ...] | None = None
    """How the keys of annotations begin, in the same way."""
    service_types: tuple[ServiceType, ...] = ("ClusterIP",)
    """The types of Services that a job's controller makes."""
    service_names: tuple[str, ...] | None = ()
    """The names that a job may give its Services, beside those that its controller gives them: another's Service may
    have such a name."""
    ingress: bool = False
    """Whether a job's controller may make an Ingress, or a Gateway."""
    autoscaler_accounts: bool | None = None
    """Whether KubeRay may make a service account for Ray's autoscaler, or give the head's its rights: to change pods
    and RayClusters of the namespace. None: where `service_accounts` allows every account."""
    priority_classes: tuple[str, ...] | None = None
    """The PriorityClasses that pods may name. None allows all but those of the cluster itself, `system-*`."""
    toleration_keys: tuple[str, ...] | None = None
    """The keys of the taints that pods may tolerate; an empty one stands for every taint at once. None allows all
    but every taint at once and those of the control plane."""
    runtime_classes: tuple[str, ...] | None = None
    """The RuntimeClasses that pods may name."""
    scheduler_names: tuple[str, ...] | None = ()
    """The schedulers that pods may name, beside the default one and those of the agent's own backends."""
    csi_drivers: tuple[str, ...] | None = ()
    """The drivers of CSI and Flex volumes that pods define themselves."""
    create_as: ServiceAccountName | None = None
    """The service account of a job's namespace as which the agent creates the job; None: as itself."""


class ToldPolicy(PolicyRules, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The rules as a heartbeat has them: what is the default is left out."""


class Objection(NamedTuple):
    """What a policy does not allow."""

    reason: str
    rule: str
    """The field of the policy, with its value."""
    subject: str


def told_policy(told: Manifest) -> ToldPolicy | None:
    """The rules that an agent tells of; None where they cannot be read, as those of a newer one may be."""
    try:
        return msgspec.convert(told, ToldPolicy)
    except msgspec.ValidationError:
        return None


def objections(policy: PolicyRules, copy: Manifest) -> Iterator[Objection]:
    """What a policy does not allow of a job, as it would be created there; its namespace aside."""
    yield from _pods(policy, copy)
    yield from _keys(policy, copy)
    yield from _exposure(policy, copy)


def objections_text(objections: Sequence[Objection], cluster: str = "this cluster") -> str:
    """The first ones, in words."""
    named = [f"{objection.subject} (policy {objection.rule})" for objection in objections[:_MOST_NAMED]]
    left = [f"and {len(objections) - len(named)} more"] if len(objections) > len(named) else []
    return f"{cluster} does not allow {'; '.join([*named, *left])}"


def _pods(policy: PolicyRules, copy: Manifest) -> Iterator[Objection]:
    for pod_set in KINDS[copy["kind"]].pod_sets(copy):
        name, template = pod_set["name"], pod_set["template"]
        for violation in violations(template, policy.pod_security):
            yield Objection("PodSecurity", f"podSecurity: {policy.pod_security}", f"in pod set {name} {violation}")
        yield from _classes(policy, template["spec"], name)
        account = template["spec"].get("serviceAccountName") or template["spec"].get("serviceAccount")
        used = account or _DEFAULT_ACCOUNT
        if policy.service_accounts is not None and used not in policy.service_accounts:
            subject = f"the service account {used} in pod set {name}"
            yield Objection("ServiceAccountNotAllowed", "serviceAccounts", subject)


def _classes(policy: PolicyRules, spec: Manifest, name: str) -> Iterator[Objection]:
    """What a pod names that belongs to the cluster: its classes, its scheduler, taints of its nodes, drivers."""
    priority, runtime = spec.get("priorityClassName") or "", spec.get("runtimeClassName") or ""
    scheduler, named = spec.get("schedulerName") or "", policy.priority_classes
    if priority and (priority.startswith(_SYSTEM_CLASS) if named is None else priority not in named):
        subject = f"the PriorityClass {priority} in pod set {name}"
        yield Objection("PriorityClassNotAllowed", "priorityClasses", subject)
    if runtime and policy.runtime_classes is not None and runtime not in policy.runtime_classes:
        subject = f"the RuntimeClass {runtime} in pod set {name}"
        yield Objection("RuntimeClassNotAllowed", "runtimeClasses", subject)
    if policy.scheduler_names is not None and scheduler not in ("", _SCHEDULER, *policy.scheduler_names):
        subject = f"the scheduler {scheduler} in pod set {name}"
        yield Objection("SchedulerNotAllowed", "schedulerNames", subject)
    for toleration in spec.get("tolerations") or ():
        key = toleration.get("key") or ""
        if _tolerates(policy, key):
            continue
        subject = f"a toleration of {f'the taint {key}' if key else 'every taint'} in pod set {name}"
        yield Objection("TolerationNotAllowed", "tolerationKeys", subject)
    for volume in spec.get("volumes") or ():
        for kind in _DRIVEN if policy.csi_drivers is not None else ():
            driver = (volume.get(kind) or {}).get("driver") or ""
            if volume.get(kind) and driver not in (policy.csi_drivers or ()):
                subject = f"a volume of the driver {driver} in pod set {name}"
                yield Objection("VolumeNotAllowed", "csiDrivers", subject)


def _tolerates(policy: PolicyRules, key: str) -> bool:
    if policy.toleration_keys is not None:
        return key in policy.toleration_keys
    return bool(key) and not key.startswith(_CONTROL_PLANE)


def _keys(policy: PolicyRules, copy: Manifest) -> Iterator[Objection]:
    exposure = KINDS[copy["kind"]].exposure(copy)
    templates = [pod_set["template"] for pod_set in KINDS[copy["kind"]].pod_sets(copy)]
    metadata = [copy["metadata"], *(template.get("metadata") or {} for template in templates)]
    labels = {key for part in metadata for key in part.get("labels") or {}} | exposure.labels.keys()
    annotations = {key for part in metadata for key in part.get("annotations") or {}} | exposure.annotations.keys()
    for key in _beyond(policy.label_prefixes, labels):
        yield Objection("LabelNotAllowed", "labelPrefixes", f"the label {key}")
    for key in _beyond(policy.annotation_prefixes, annotations):
        yield Objection("AnnotationNotAllowed", "annotationPrefixes", f"the annotation {key}")


def _beyond(prefixes: tuple[str, ...] | None, keys: Iterable[str]) -> list[str]:
    """The keys that begin with no prefix, in order."""
    return [] if prefixes is None else sorted(key for key in keys if not key.startswith((*prefixes, *_SLICEBUS)))


def _exposure(policy: PolicyRules, copy: Manifest) -> Iterator[Objection]:
    exposure = KINDS[copy["kind"]].exposure(copy)
    for service_type in sorted(exposure.service_types - {*policy.service_types}):
        yield Objection("ServiceTypeNotAllowed", "serviceTypes", f"a Service of type {service_type}")
    if exposure.external_ips:
        yield Objection("ServiceTypeNotAllowed", "serviceTypes", "a Service with externalIPs")
    if exposure.ingress and not policy.ingress:
        yield Objection("IngressNotAllowed", "ingress: false", "an Ingress")
    if exposure.gateway and not policy.ingress:
        yield Objection("IngressNotAllowed", "ingress: false", "a Gateway")
    for name in sorted(exposure.service_names.difference(policy.service_names or ())):
        if policy.service_names is not None:
            yield Objection("ServiceNameNotAllowed", "serviceNames", f"a Service named {name}")
    allows = policy.service_accounts is None if policy.autoscaler_accounts is None else policy.autoscaler_accounts
    if exposure.makes_account and not allows:
        subject = "the service account that KubeRay makes for Ray's autoscaler"
        yield Objection("ServiceAccountNotAllowed", "autoscalerAccounts", subject)
