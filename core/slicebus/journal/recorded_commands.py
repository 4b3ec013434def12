"""The recorded form of commands: the decider writes it as a decision's outcome, and `steps` reads it.

A command names its target and leaves the object out: `Kind namespace/name UID@resourceVersion`. The field `do` is its
type. Most decisions return a list of commands, `[command, …]`. A decision that also says where the role goes on returns
a pair, `[next, [command, …]]`.
"""

import msgspec
from msgspec import Raw

from slicebus.proto.messages import JobRef, Manifest


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """One command; its type is the field `do`."""


class Created(_Command, frozen=True, kw_only=True, tag="create"):
    """Create an object."""

    of: str
    """The resource: `pods`, `jobs.batch`."""
    manifest: Manifest


class Patched(_Command, frozen=True, kw_only=True, tag="patch"):
    """Patch an object."""

    of: str
    target: str
    subresource: str
    body: Manifest | list[Manifest]
    """A merge patch or a JSON patch."""


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


class Requeued(_Command, frozen=True, kw_only=True, tag="requeue"):
    """Reconcile a job again after a delay."""

    job: JobRef
    delay_s: float


RecordedCommand = Created | Patched | Removed | Emitted | Published | Requeued

_outcomes = msgspec.json.Decoder(list[RecordedCommand | list[RecordedCommand] | str | int | None])


def commands_of(outcome: bytes) -> list[RecordedCommand]:
    """The commands of a recorded outcome; none where it has another form."""
    try:
        entries = _outcomes.decode(outcome)
    except msgspec.DecodeError:
        return []
    if len(entries) == 2 and isinstance(entries[1], list):
        return entries[1]
    return [entry for entry in entries if isinstance(entry, _Command)]
