"""What all messages share: base types, common fields, directions and lanes."""

import re
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, NewType

import msgspec
from msgspec import Meta

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
CLUSTER_NAME = DNS_LABEL
"""The pattern of a cluster's name: a DNS label has no dot, so the dot of a routing key separates."""
CLUSTER_NAME_RULE = "use 1 to 63 of a-z, 0-9 and -, with no - at either end"
"""The same for people."""
CLUSTER_UID = r"^[-0-9A-Za-z]{1,64}$"

_END = r"(?!\n)$"
"""The end of a text. In Python `$` alone matches before a last line break, too."""
_LABEL = DNS_LABEL.removesuffix("$") + _END
_QUANTITY = rf"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?{_END}"
_DATE = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"^{_DATE}T{_CLOCK}:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+-]{_CLOCK}){_END}"
_REASON = r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_LABEL_VALUE = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

ClusterName = NewType("ClusterName", str)
ClusterUid = NewType("ClusterUid", str)
"""The UID of a cluster's namespace kube-system. A cluster made anew under an old name has another."""
MOST_COUNT = 2**31 - 1
"""Kubernetes' own limit of a count, and what a larger product of a manifest's numbers is cut to."""
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
"""Pods or jobs: a number of 32 bits, as in Kubernetes."""
MOST_VERSION = 2**53 - 1
"""No job reaches it, and every reader of JSON has it exactly."""
Version = Annotated[int, Meta(ge=0, le=MOST_VERSION)]
"""A version, a generation, or another number that only grows."""
Seconds = Annotated[float, Meta(ge=0, le=1e10)]
"""A duration, or a time since 1970. So long after now there still is a date."""
PodSetName = Annotated[str, Meta(pattern=_LABEL)]
PodSetLabel = Annotated[str, Meta(pattern=rf"^({_LABEL_VALUE})?{_END}", max_length=63)]
"""The pod set of a pod as its label says it: whoever may edit the pod may have written another one."""
Counts = dict[PodSetName, Count]
Quantity = Annotated[str, Meta(pattern=_QUANTITY, max_length=64)]
Reason = Annotated[str, Meta(pattern=rf"^{_REASON}{_END}", max_length=1024)]
"""A word in CamelCase that conditions take as their reason."""
OptionalReason = Annotated[str, Meta(pattern=rf"^({_REASON})?{_END}", max_length=1024)]
Time = Annotated[str, Meta(pattern=_TIME)]
"""RFC 3339."""
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


JobKindName = Annotated[str, Meta(pattern=rf"^[A-Za-z][A-Za-z0-9]{{0,62}}{_END}")]
Namespace = Annotated[str, Meta(pattern=_LABEL)]
_JOB_NAME: Final = rf"^[a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?{_END}"
JobName = Annotated[str, Meta(pattern=_JOB_NAME)]


def is_job_name(text: str) -> bool:
    """Whether a text is the name of a job, as messages have it."""
    return re.match(_JOB_NAME, text) is not None


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
    most_bytes: ClassVar[int] = 0
    """The limit of one, with its headers; 0 for the limit of all messages."""
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
