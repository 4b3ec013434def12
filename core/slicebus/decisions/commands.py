"""The commands that decisions return and the executor carries out, in either role.

The commands of one decision are carried out in order; the first error ends it. Every command is safe to repeat: a
patch has the resourceVersion that was decided on, a second create finds the name taken, a message has a version.
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
    """Patch an object in the state that was decided on: another resourceVersion is a conflict, and is decided again.

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
    """Publish a message, and wait until the broker has confirmed it."""

    cluster: ClusterName
    message: Message
    correlation: MessageId | None = None
    """The chain of messages it belongs to; None continues that of the message being handled, or begins one."""


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """Reconcile the job again after `delay_s` seconds, changed or not."""

    job: JobRef
    delay_s: float


Command = Create | Patch | Remove | Emit | Publish | Requeue
