"""The notice that runs for a worker's job: what it loses when it is over, and since when that is known.

It stands in an annotation of the job, so that neither a restart of the agent nor an order that comes twice begins it
anew. The pods that go have the same, without what only the agent needs. Where a later word of the manager takes more
pods, the notice of those that were told before runs on beside the new one.
"""

import math
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from slicebus.kube.times import time_text
from slicebus.proto.messages import Counts, Manifest, Notice, Time, Version
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json

_MOST_EARLIER = 16
"""Of further notices the oldest run on: for their pods somebody has waited longest."""


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
    earlier: tuple["PendingReclaim", ...] = ()
    """The notices of earlier words that leave more pods, and are over before: of each the next takes what is left."""

    @property
    def ends(self) -> datetime:
        """The deadline."""
        return datetime.fromisoformat(self.deadline)

    @property
    def notices(self) -> tuple["PendingReclaim", ...]:
        """Each notice that runs, by its deadline."""
        return (*self.earlier, replace(self, earlier=()))

    def begins_as(self, last: "PendingReclaim | None") -> "PendingReclaim":
        """This notice after the last one.

        Where no other pods go, that one runs on. Where more go, those that were told before keep their deadline, and
        the others go no earlier. All pods of a job that is suspended go together: the manager frees no part of its
        quota.
        """
        running = last.notices if last is not None else ()
        same = next((one for one in running if self._takes_no_others(one)), None)
        begun = replace(self, id=same.id, before=same.before, deadline=same.deadline) if same is not None else self
        larger = [one for one in running if _leaves_more(one.to, self.to)]
        latest = max((*larger, begun), key=lambda one: one.ends)
        kept = tuple(one for one in larger if one.ends < latest.ends)[:_MOST_EARLIER] if self.suspends is None else ()
        before = kept[-1].to if kept else begun.before
        return replace(begun, before=before, deadline=latest.deadline, earlier=kept)

    def _takes_no_others(self, one: "PendingReclaim") -> bool:
        """Whether all pods that go by this notice are told by another one. A size that counts what has ended grows as
        more ends."""
        is_of_its_kind = (one.suspends is None) == (self.suspends is None)
        return is_of_its_kind and (self.to == one.to or _leaves_more(self.to, one.to))

    def without(self, done: "PendingReclaim") -> "PendingReclaim | None":
        """What runs on when one of the notices is carried out; None where that was the last."""
        left = self.notices[self.notices.index(done) + 1 :]
        return replace(left[-1], earlier=left[:-1]) if left else None

    def to_annotation(self) -> str:
        """The job's annotation, as JSON."""
        return msgspec.json.encode(self).decode()

    def to_told(self) -> str:
        """The annotation of the pods that go and of the job's cluster, as JSON."""
        return self._as_told().to_annotation()

    def _as_told(self) -> "PendingReclaim":
        earlier = tuple(one._as_told() for one in self.earlier)
        return replace(self, version=0, word="", waits_for={}, suspends=None, earlier=earlier)

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
        """The notice that runs for a job, or that a pod is told; None where there is none, or it is unreadable."""
        read = read_json((job["metadata"].get("annotations") or {}).get(api_names.RECLAIM_ANNOTATION), _RECLAIM)
        return read if read is not None and all(_is_time(one.deadline) for one in read.notices) else None


def _leaves_more(size: Counts, than: Counts) -> bool:
    return size != than and size.keys() == than.keys() and all(count >= than[name] for name, count in size.items())


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_RECLAIM = msgspec.json.Decoder(PendingReclaim)
