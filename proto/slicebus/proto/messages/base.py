"""What all messages share: base types, common fields, directions and lanes."""

from enum import StrEnum
from typing import Annotated, Any, ClassVar, NewType

import msgspec
from msgspec import Meta

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
CLUSTER_NAME = DNS_LABEL
"""The pattern of a cluster's name: a DNS label has no dot, so the dot of a routing key separates."""
CLUSTER_UID = r"^[-0-9A-Za-z]{1,64}$"

ClusterName = NewType("ClusterName", str)
ClusterUid = NewType("ClusterUid", str)
"""The UID of a cluster's namespace kube-system. A cluster made anew under an old name has another."""
Count = Annotated[int, Meta(ge=0)]
Counts = dict[str, Count]
Manifest = dict[str, Any]


class Direction(StrEnum):
    """Which exchange a message travels on."""

    UP = "up"
    """Agent to manager."""
    DOWN = "down"
    """Manager to agent."""


class Lane(StrEnum):
    """Which queue of the receiver a message lands in, so that status traffic never delays a spec."""

    CONTROL = "control"
    STATUS = "status"


JobKindName = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9]{0,62}$")]
Namespace = Annotated[str, Meta(pattern=DNS_LABEL)]
JobName = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]


class JobRef(msgspec.Struct, frozen=True, order=True):
    """One job on the manager, and its copy of the same namespace and name on a worker. The unit of ordering."""

    api_version: str
    kind: JobKindName
    namespace: Namespace
    name: JobName
    uid: str
    """The UID of the manager's object. A job deleted and created again under its name is another job."""

    @property
    def key(self) -> str:
        """`Kind/namespace/name`, the CloudEvents subject."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message body. A subclass declares everything about its type."""

    type: ClassVar[str]
    """The last word of its routing key."""
    direction: ClassVar[Direction]
    lane: ClassVar[Lane] = Lane.CONTROL
    not_redriven: ClassVar[str] = ""
    """Why a redrive does not publish a recorded one again: it reported a state, and newer reports come by themselves.
    Empty where a redrive may publish the newest one of a job."""

    def summary(self) -> str:
        """One line for people."""
        raise NotImplementedError


class JobMessage(Message, frozen=True, kw_only=True):
    """A message about one job. The job's messages keep their order; its key is the CloudEvents subject."""

    job: JobRef


def job_of(message: Message) -> JobRef | None:
    """The job that a message is about; None for one about the whole cluster."""
    return message.job if isinstance(message, JobMessage) else None


def version_of(message: Message) -> int | None:
    """The spec version that a message is about; None where it is about none."""
    version: int | None = getattr(message, "spec_version", None)
    return version


def counts_text(counts: Counts) -> str:
    """`head=1 small-group=5`."""
    return " ".join(f"{name}={count}" for name, count in counts.items()) or "nothing"
