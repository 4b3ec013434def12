"""What a decision asks the shell to do, in either role.

Commands of one decision are carried out in order; the first that fails ends it. Every command is safe to repeat:
patches carry the resourceVersion that was decided on, a create finds its own name taken, a message has its version.
"""

from typing import Literal

import msgspec

from slicebus.kube.resources import Resource
from slicebus.proto.envelope import MessageId
from slicebus.proto.messages import ClusterName, JobRef, Manifest, Message


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create an object."""

    resource: Resource
    manifest: Manifest


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Patch an object as it was when decided: another resourceVersion is a conflict, decided again.

    A mapping is a merge patch, a list a JSON patch.
    """

    resource: Resource
    target: Manifest
    body: Manifest | list[Manifest]
    subresource: Literal["", "status"] = ""


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the object with the target's UID, in the background."""

    resource: Resource
    target: Manifest


class Emit(msgspec.Struct, frozen=True, kw_only=True):
    """Record a Kubernetes Event on an object."""

    regarding: Manifest
    reason: str
    note: str
    warning: bool = False


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    """Publish a message, and go on when the broker has confirmed it."""

    cluster: ClusterName
    message: Message
    correlation: MessageId | None = None
    """The chain of messages it belongs to; None begins one, or continues that of the message being handled."""


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """Look at the job again after a while, although nothing may have changed."""

    job: JobRef
    delay_s: float


Command = Create | Patch | Remove | Emit | Publish | Requeue
