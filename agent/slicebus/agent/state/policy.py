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
    ingress: bool = False
    """Whether a job's controller may make an Ingress."""
    create_as: ServiceAccountName | None = None
    """The service account of a job's namespace as which the agent creates the job; None: as itself."""


class PolicyFile(_Rules, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The policy as it is written in a file."""


class Policy(_Rules, frozen=True, kw_only=True, rename="camel"):
    """The policy in force."""

    own_namespace: str = ""
    """The agent's namespace, where no job may be."""
