"""The policy of the agent's own cluster: what orders may make here, whoever gives them."""

from typing import Annotated

import msgspec

from slicebus.proto.messages import Manifest
from slicebus.slices.workload.pod_security import Level

ServiceType = Annotated[str, msgspec.Meta(pattern="^(ClusterIP|NodePort|LoadBalancer|ExternalName)$")]

ServiceAccountName = Annotated[
    str,
    msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", max_length=253),
]
"""A DNS subdomain."""


class LabelRequirement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One expression of a label selector."""

    key: str
    operator: Annotated[str, msgspec.Meta(pattern="^(In|NotIn|Exists|DoesNotExist)$")]
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A label selector as in Kubernetes; an empty one matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelRequirement, ...] = ()

    def to_manifest(self) -> Manifest:
        """The selector as `slices.selectors` reads it."""
        selector: Manifest = msgspec.to_builtins(self)
        return selector


class _Rules(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What orders may make. None allows everything."""

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


class PolicyFile(_Rules, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The policy as it is written in a file."""


class Policy(_Rules, frozen=True, kw_only=True, rename="camel"):
    """The policy in force."""

    own_namespace: str = ""
    """The agent's namespace, where no job may be."""
