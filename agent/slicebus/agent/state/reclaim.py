"""The notice that runs for a worker's job: what it loses when it is over, and since when that is known.

It stands in an annotation of the job, so that neither a restart of the agent nor an order that comes twice begins it
anew. The pods that go have the same, without what only the agent needs.
"""

import math
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from slicebus.kube.times import time_text
from slicebus.proto.messages import Counts, Manifest, Notice, Time, Version
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json


class Suspension(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is left of an order that suspends the job, until it is carried out."""

    workload: str
    reason: str = ""
    message: str = ""


class PendingReclaim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods that a job is about to lose."""

    id: str
    """What an acknowledgement names. The same until other pods are to go."""
    before: Counts = msgspec.field(name="from")
    to: Counts
    deadline: Time
    """By the worker's clock. Before it none of these pods is ended."""
    why: str = ""
    beneficiaries: list[str] = msgspec.field(name="for", default_factory=list)
    """`namespace/name` of the slices that get their quota."""
    version: Version = 0
    """Of the order that said so."""
    word: str = ""
    """The manager's word that the smaller size will follow; empty for a suspension."""
    waits_for: Counts = {}
    """The size that the job then waits to have again."""
    suspends: Suspension | None = None
    """Set where the job is suspended when the notice is over."""

    def begins_as(self, last: "PendingReclaim | None") -> "PendingReclaim":
        """This notice after an earlier one: where the same pods go, that one runs on."""
        if last is None or (last.to, last.suspends is None) != (self.to, self.suspends is None):
            return self
        return replace(self, id=last.id, before=last.before, deadline=last.deadline)

    def to_annotation(self) -> str:
        """The job's annotation, as JSON."""
        return msgspec.json.encode(self).decode()

    def to_told(self) -> str:
        """The annotation of the pods that go and of the job's cluster, as JSON."""
        return replace(self, version=0, word="", waits_for={}, suspends=None).to_annotation()

    @classmethod
    def of(
        cls, notice: Notice, *, before: Counts, to: Counts, now: str, version: Version, **deed: object
    ) -> "PendingReclaim":
        """A notice that begins now. `deed` are `word` and `waits_for`, or `suspends`.

        `now` has whole seconds, so the deadline is after the next one.
        """
        ends = datetime.fromisoformat(now) + timedelta(seconds=math.ceil(notice.notice_s) + 1)
        return cls(
            id=notice.id,
            before=before,
            to=to,
            deadline=time_text(ends),
            why=notice.why,
            beneficiaries=notice.beneficiaries,
            version=version,
            **deed,  # type: ignore[arg-type]
        )

    @staticmethod
    def from_job(job: Manifest) -> "PendingReclaim | None":
        """The notice that runs for a job; None where none does, or it is unreadable."""
        read = read_json((job["metadata"].get("annotations") or {}).get(api_names.RECLAIM_ANNOTATION), _RECLAIM)
        return read if read is not None and _is_time(read.deadline) else None


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_RECLAIM = msgspec.json.Decoder(PendingReclaim)
