"""Checks what an order brings: objects that can be read, and that its job reference names.

Whoever may publish orders must not use the name of one job to make another object. An order that cannot be read is
malformed, and a dead letter. One that brings another object is refused, and the manager shows why.
"""

from typing import Annotated, Any

import msgspec

from slicebus.agent.decide.order.refusals import KindNotServed, RefusedOrder
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.quantities import amounts
from slicebus.slices.jobs import KINDS, spec_shape_of
from slicebus.slices.jobs.base import Exposure, JobKind
from slicebus.slices.jobs.template_shape import INVALID_POD_TEMPLATE
from slicebus.slices.workload.names import group_of
from slicebus.slices.workload.pod_requests import container_resources, pod_requests

OTHER_OBJECT = "OtherObject"
"""The reason of an order that brings another object than it names."""
_WORKLOAD = "Workload"
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, msgspec.ValidationError)
"""What a job kind raises for a manifest that its schema does not allow."""


class _Owner(msgspec.Struct, rename="camel"):
    kind: str
    name: str
    uid: str
    controller: bool = False


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _OwnedMetadata(_Metadata, rename="camel"):
    owner_references: list[_Owner] = []


class _Object(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    metadata: _Metadata
    spec: dict[str, Any]

    @property
    def names(self) -> tuple[str, ...]:
        """What identifies the object."""
        return self.api_version, self.kind, self.metadata.namespace, self.metadata.name


class _Workload(_Object, rename="camel"):
    metadata: _OwnedMetadata


class _Template(msgspec.Struct):
    spec: dict[str, Any]


class _PodSet(msgspec.Struct):
    name: str
    template: _Template


class _WorkloadContent(msgspec.Struct, rename="camel"):
    pod_sets: list[_PodSet]


class _Assignment(msgspec.Struct, rename="camel"):
    name: str = "main"
    flavors: dict[str, str] = {}
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    resource_usage: dict[str, str | int | float] = {}


class _Admission(msgspec.Struct, rename="camel"):
    pod_set_assignments: list[_Assignment] = []


class _Status(msgspec.Struct):
    admission: _Admission | None = None


def ensure_readable(order: WorkloadSpec) -> None:
    """Raises ProtocolError for an order whose objects have not the shape of a job and its Workload. Of a kind that no
    package brings only the outer shape is known."""
    _read(order.manifest, _Object, "manifest")
    _read(order.workload, _Workload, "workload")
    _read(order.workload["spec"], _WorkloadContent, "workload.spec")
    _read(order.workload.get("status", {}), _Status, "workload.status")
    try:
        charged_of(order)
    except ValueError as error:
        raise ProtocolError(DeadReason.MALFORMED, f"workload.status: {error}") from error
    try:
        for pod_set in order.workload["spec"]["podSets"]:
            container_resources(pod_set["template"]["spec"])
            pod_requests(pod_set["template"]["spec"])
    except _UNREADABLE as error:
        raise ProtocolError(DeadReason.MALFORMED, f"workload.spec: {type(error).__name__}: {error}") from error
    kind = KINDS.get(order.job.kind)
    if kind is None:
        return
    try:
        _ensure_kind_reads(kind, order)
    except _UNREADABLE as error:
        detail = f"manifest: no {order.job.kind} that can be read: {type(error).__name__}: {error}"
        raise ProtocolError(DeadReason.MALFORMED, detail) from error
    _read(order.manifest["spec"], spec_shape_of(kind), f"manifest: no {order.job.kind} that can be read: spec")


def flavors_of(order: WorkloadSpec) -> dict[str, dict[str, str]]:
    """The flavors that its slice was given, by pod set and resource; empty without an admission."""
    admission = msgspec.convert(order.workload.get("status", {}), _Status).admission
    return {assignment.name: assignment.flavors for assignment in admission.pod_set_assignments} if admission else {}


def charged_of(order: WorkloadSpec) -> dict[str, dict[str, int]]:
    """What one pod of its slice was admitted with, by pod set and resource; empty without an admission. Raises
    ValueError for what is not a quantity."""
    admission = msgspec.convert(order.workload.get("status", {}), _Status).admission
    return {
        one.name: {resource: -(-value // one.count) for resource, value in amounts(one.resource_usage).items()}
        for one in (admission.pod_set_assignments if admission else ())
        if one.count
    }


def ensure_named(order: WorkloadSpec) -> None:
    """Raises RefusedOrder for an order that brings other objects than its job reference names."""
    job, served = order.job, KINDS[order.job.kind].resource.api_version
    if not job.uid:
        raise RefusedOrder(OTHER_OBJECT, "the order names no UID")
    if job.api_version != served:
        raise KindNotServed(job.kind, f"the order is for {job.api_version}, and its agent knows {served}")
    manifest, workload = msgspec.convert(order.manifest, _Object), msgspec.convert(order.workload, _Workload)
    _ensure_same("manifest", manifest.names, (job.api_version, job.kind, job.namespace, job.name))
    _ensure_same("manifest's UID", (manifest.metadata.uid or job.uid,), (job.uid,))
    copied = workload.metadata
    named = (group_of(workload.api_version), *workload.names[1:])
    _ensure_same("Workload", named, (kueue.GROUP, _WORKLOAD, job.namespace, copied.name))
    for owner in copied.owner_references:
        if owner.controller:
            _ensure_same("Workload's owner", (owner.kind, owner.name, owner.uid), (job.kind, job.name, job.uid))
    of = copied.annotations.get(api_names.JOB_ANNOTATION, f"{job.kind}/{job.name}")
    _ensure_same("Workload's job", (of,), (f"{job.kind}/{job.name}",))
    _ensure_same("Workload's job UID", (copied.labels.get(kueue.JOB_UID_LABEL, job.uid),), (job.uid,))


def ensure_pods_readable(order: WorkloadSpec) -> None:
    """Raises RefusedOrder for an order whose pod templates have fields of another type than Kubernetes' API. Its
    definition may let anything in. A job that is there runs on, whatever its user makes of it on the manager."""
    for problem in KINDS[order.job.kind].problems(order.manifest):
        if problem.reason == INVALID_POD_TEMPLATE:
            raise RefusedOrder(problem.reason, problem.message)


def _ensure_kind_reads(kind: JobKind, order: WorkloadSpec) -> None:
    """Reads everything that carrying out the order reads."""
    copy = kind.worker_copy(order.manifest, {})
    kind.pod_sets(copy)
    kind.problems(order.manifest)
    msgspec.convert(msgspec.to_builtins(kind.exposure(copy)), Exposure)
    msgspec.convert(kind.counts(order.manifest, order.manifest), dict[str, int])


def _read(value: object, shape: Any, part: str) -> None:
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ProtocolError(DeadReason.MALFORMED, f"{part}: {error}") from error


def _ensure_same(part: str, brought: tuple[str, ...], named: tuple[str, ...]) -> None:
    if brought != named:
        raise RefusedOrder(OTHER_OBJECT, f"its {part} is {' '.join(brought)}, and the order names {' '.join(named)}")
