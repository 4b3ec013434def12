"""The outbox of a job: what its worker shall hold, recorded on the manager's objects before it is published."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Literal, Self

import msgspec

from slicebus.manager.state.annotations import annotation
from slicebus.proto.messages import Manifest, RequestKey
from slicebus.slices import kueue
from slicebus.slices.annotations import read_json, read_number

LOST = "lost"
"""The hash of a dispatch that the worker does not hold although it reported it: it has to be dispatched anew."""

NO_REQUEST = RequestKey()


class Dispatch(msgspec.Struct, frozen=True):
    """What a worker shall hold for a job: a version that only grows, and the hash of the content."""

    version: int
    hash: str
    answers: RequestKey = NO_REQUEST
    """The newest request when it was written."""
    cluster: str = ""
    """The cluster that it is for; empty in old records, which are for the cluster of the chain."""
    place: str = ""
    """A hash of the flavors that the worker's copy was made for: its pods have their node labels."""
    suspended: bool = False
    """Whether the worker shall hold the job without pods."""
    previous_cluster: str = msgspec.field(default="", name="left")
    """The cluster of the dispatches before, where that was another. Messages from there are late."""
    since: int | msgspec.UnsetType = msgspec.UNSET
    """The first version of the present run. Reports of older versions are of an earlier run."""
    left_copies: dict[str, int] = msgspec.field(default_factory=dict, name="behind")
    """The given-up clusters that may have a copy left, with the version that removes it."""
    unknown_end: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker's copy is gone and may have ended. Set until the job has given its quota back."""
    vanished: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    """Whether the worker has reported that its copy is gone without an order. The next dispatch clears it."""

    @property
    def has_vanished(self) -> bool:
        """`vanished` as a bool."""
        return self.vanished is True

    def is_of_this_run(self, version: int) -> bool:
        """Whether a report of this version is of the present run."""
        return self.since is msgspec.UNSET or version >= self.since

    def to_annotation(self) -> str:
        """JSON."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def from_manifest(manifest: Manifest) -> "Dispatch | None":
        """The dispatch on a Workload or a job; None where there is none or it is unreadable."""
        return read_json(annotation(manifest, kueue.DISPATCHED_ANNOTATION), _DISPATCH)


class Outbox(msgspec.Struct, frozen=True):
    """The newest dispatch of a job, and the object that holds it: a Workload, or the job after its last one."""

    record: Dispatch
    recorded_on: Manifest
    is_applied: bool
    """Whether the worker has reported it as applied."""

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self | None:
        """The outbox on a Workload or a job; None where it has no dispatch."""
        record = Dispatch.from_manifest(manifest)
        return None if record is None else cls(record, manifest, is_applied=applied_version(manifest) >= record.version)

    @classmethod
    def newest(cls, outboxes: Iterable[Self | None]) -> Self | None:
        """The newest of a job's outboxes; None where nothing was ever dispatched."""
        return max(filter(None, outboxes), key=attrgetter("record.version"), default=None)


def applied_version(manifest: Manifest) -> int:
    """The version that the worker has reported, on the object that has the dispatch; 0 before the first."""
    return read_number(annotation(manifest, kueue.APPLIED_ANNOTATION))


_DISPATCH = msgspec.json.Decoder(Dispatch)
