"""Defines the commands that decisions return and the executor carries out, in either role.

The commands of one decision are carried out in order, and the first error ends it. Every command is safe to repeat: a
patch has the resourceVersion that was decided on, a second create finds the name taken, a message has a version.

A table is written in the same order as everything else. `Remember` after a `Publish` notes that the broker has
confirmed. Where the answer may come before the confirm, and may ask for the message again, `Remember` comes first, and
the `Publish` names what to forget when it fails.
"""

from typing import Any, Literal

import msgspec

from slicebus.kube.impersonation import Impersonation
from slicebus.kube.resources import Resource
from slicebus.proto.envelope import MessageId
from slicebus.proto.messages import ClusterName, JobRef, Manifest, Message


class Remember(msgspec.Struct, frozen=True, kw_only=True):
    """Set an entry of a table."""

    table: str
    """The name that `RoleState.tables` gives it."""
    key: Any
    value: Any


class Forget(msgspec.Struct, frozen=True, kw_only=True):
    """Remove an entry of a table, where it is there."""

    table: str
    """The name that `RoleState.tables` gives it."""
    key: Any


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create an object."""

    resource: Resource
    manifest: Manifest
    impersonate: Impersonation | None = None
    """The user as whom it is made. None: the role itself."""
    if_refused: Remember | None = None
    """What to remember instead of raising, where the API server or a webhook refuses the object, or an object that the
    role does not watch has its name. Its value has a `message` that becomes the server's."""


class Patch(msgspec.Struct, frozen=True, kw_only=True):
    """Patch an object in the state that was decided on. Another resourceVersion is a conflict: the role decides again.

    A mapping is a merge patch, a list a JSON patch.
    """

    resource: Resource
    target: Manifest
    body: Manifest | list[Manifest]
    subresource: Literal["", "status"] = ""
    impersonate: Impersonation | None = None
    """The user as whom it is made. None: the role itself."""
    unless_answered: Remember | None = None
    """What to remember when the API server gives no answer: the patch may have had its effect, or have it later."""
    if_refused: Remember | None = None
    """What to remember where the API server or a webhook refuses the patch, as in `Create`."""
    only_shows: bool = False
    """Whether it only shows something: where the API server refuses it, an Event says so, the other commands go on, and
    its job is reconciled again after a while. An object whose annotations are full has no room for it, and a right, a
    policy or a webhook may be missing."""


class PatchEach(msgspec.Struct, frozen=True, kw_only=True):
    """Patch objects that are independent of each other, several at a time. A patch that fails holds up no other."""

    patches: tuple[Patch, ...]
    lets_start: bool = False
    """Whether the patches let pods start: none begins while the role's fence is closed."""


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the object with the target's UID, in the background."""

    resource: Resource
    target: Manifest
    foreground: bool = False
    """Delete what it owns before it: for an object that stays for a finalizer of somebody else."""


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
    """The chain of messages that it belongs to. None continues that of the message being handled, or begins one."""
    unless_confirmed: Forget | None = None
    """What to forget when the broker has not confirmed the message: an earlier note that it is published."""


class Requeue(msgspec.Struct, frozen=True, kw_only=True):
    """Reconcile the job again after `delay_s` seconds, changed or not."""

    job: JobRef
    delay_s: float


Command = Remember | Forget | Create | Patch | PatchEach | Remove | Emit | Publish | Requeue
