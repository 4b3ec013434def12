"""Defines the recorded form of commands: the decider writes it as a decision's outcome, and `steps` reads it.

A command names its target and leaves the object out: `Kind namespace/name UID@resourceVersion`. The field `do` is its
type. Most decisions return a list of commands, `[command, …]`. A decision that also says where the role goes on returns
a pair, `[next, [command, …]]`.

A command that sets an entry of a table is written in full, so that a replay compares it. Another record says that it
was carried out, and when: a replay sets its tables by those.
"""

import msgspec
from msgspec import Raw

from slicebus.kube.impersonation import Impersonation
from slicebus.proto.messages import JobRef, Manifest


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """One command; its type is the field `do`."""


class Remembered(_Command, frozen=True, kw_only=True, tag="remember"):
    """Set an entry of a table."""

    table: str
    key: Raw
    value: Raw


class Forgotten(_Command, frozen=True, kw_only=True, tag="forget"):
    """Remove an entry of a table."""

    table: str
    key: Raw


class Created(_Command, frozen=True, kw_only=True, tag="create"):
    """Create an object."""

    of: str
    """The resource: `pods`, `jobs.batch`."""
    manifest: Manifest
    impersonate: Impersonation | msgspec.UnsetType = msgspec.UNSET
    """The user as whom it is made. Unset: the role itself."""


class Patched(_Command, frozen=True, kw_only=True, tag="patch"):
    """Patch an object."""

    of: str
    target: str
    subresource: str
    body: Manifest | list[Manifest]
    """A merge patch or a JSON patch."""
    impersonate: Impersonation | msgspec.UnsetType = msgspec.UNSET
    """The user as whom it is made. Unset: the role itself."""
    unless_answered: str | msgspec.UnsetType = msgspec.UNSET
    """The table that gets an entry when the API server gives no answer."""


class PatchedEach(_Command, frozen=True, kw_only=True, tag="patch each"):
    """Patch independent objects."""

    patches: list[Patched]
    lets_start: bool


class Removed(_Command, frozen=True, kw_only=True, tag="remove"):
    """Delete an object."""

    of: str
    target: str


class Emitted(_Command, frozen=True, kw_only=True, tag="emit"):
    """Record a Kubernetes Event."""

    regarding: str
    reason: str
    note: str
    warning: bool


class Published(_Command, frozen=True, kw_only=True, tag="publish"):
    """Publish a message."""

    to: str
    """The cluster."""
    type: str
    message: Raw
    correlation: str | msgspec.UnsetType = msgspec.UNSET
    """The chain that the message belongs to. Unset: it begins one, or continues that of the message being handled."""
    unless_confirmed: str | msgspec.UnsetType = msgspec.UNSET
    """The table that loses an entry when the broker does not confirm the message."""


class Requeued(_Command, frozen=True, kw_only=True, tag="requeue"):
    """Reconcile a job again after a delay."""

    job: JobRef
    delay_s: float


RecordedCommand = Remembered | Forgotten | Created | Patched | PatchedEach | Removed | Emitted | Published | Requeued

_outcomes = msgspec.json.Decoder(list[RecordedCommand | list[RecordedCommand] | str | int | None])


def commands_of(outcome: bytes) -> list[RecordedCommand]:
    """The commands of a recorded outcome, each patch by itself; none where it has another form."""
    try:
        entries = _outcomes.decode(outcome)
    except msgspec.DecodeError:
        return []
    if len(entries) == 2 and isinstance(entries[1], list):
        entries = [*entries[1]]
    commands = [entry for entry in entries if isinstance(entry, _Command)]
    return [
        single for command in commands for single in (command.patches if type(command) is PatchedEach else [command])
    ]
