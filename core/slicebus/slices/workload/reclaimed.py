"""Notes on a Workload that pods have been taken back from its job: from what size to what, when, and for whom.

The quota of these pods is held until their worker has none of them left. The note stays when that is done: by it the
job gets back what it lost, and nobody takes pods back and forth.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from slicebus.proto.messages import Counts, Time, counts_text
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.fingerprints import content_hash
from slicebus.slices.api.kueue import PreemptionReason

_REMEMBERED = 16
"""Most beneficiaries of a note, the last ones."""


class Beneficiary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The slice that pods were taken back for."""

    workload: str
    """`namespace/name`."""
    uid: str
    """Of the Workload."""
    job_uid: str


class Taken(Beneficiary, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A beneficiary of a note, and when it became one."""

    at: Time
    opportunistic: bool = False
    """Whether it got only pods that nobody had asked for: that is no preemption."""
    took: Counts = {}
    """How many pods the job loses for it, by pod set; empty where those were gone when the last word came."""
    notice_s: float = 0.0
    """How long before their end these pods are told."""
    is_alone: bool = False
    """Whether everybody else fits without these pods once it is gone: no more was taken for it than it wanted."""


class Reclaimed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The pods that were taken back from a job."""

    id: str
    """Another one for each word to the job."""
    before: Counts
    """The job's size before it lost any that it has not got back, by pod set."""
    to: Counts
    at: Time
    """When the last of them were taken."""
    beneficiaries: tuple[Taken, ...]
    """Oldest first."""
    reason: str
    """The rule that allowed it, as for a preemption."""
    message: str
    notice_s: float = 0.0
    """How long before these pods are ended their job is told, from the moment on at which its worker knows."""
    done: bool = False
    """Whether the job shows that it has no more pods than that."""
    asked: Counts = {}
    """The size that somebody asked for, where the job was given quota that nobody else wanted: its pods beyond that are
    opportunistic. Empty where it was not."""
    to_nobody: bool = False
    """Whether the job gives these pods back as it may not have them any more, whoever waits."""
    spares: bool = False
    """Whether the same word was for fewer pods at first. A worker that has followed that gives some of them back."""
    refused_at: str = ""
    """When pods were left to the job because its worker refused to take them, RFC 3339; empty where that never was."""

    @property
    def names(self) -> tuple[str, ...]:
        """The slices for which pods were taken back, as `namespace/name`."""
        return tuple(beneficiary.workload for beneficiary in self.beneficiaries)

    @property
    def preemptors(self) -> Iterator[Taken]:
        """The beneficiaries that got pods which somebody had asked for."""
        return (beneficiary for beneficiary in self.beneficiaries if not beneficiary.opportunistic)

    @property
    def awaited_by(self) -> tuple[Taken, ...]:
        """The beneficiaries of which pods were still to go when the last word came."""
        return tuple(beneficiary for beneficiary in self.beneficiaries if beneficiary.took)

    @property
    def grows(self) -> bool:
        """Whether it gives the job more than somebody asked for, and takes nothing."""
        asked, to = self.asked, self.to
        return any(count > max(to.get(name, count), asked.get(name, count)) for name, count in self.before.items())

    def left_of(self, held: Mapping[str, int]) -> Counts | None:
        """The size that a job with these pods goes down to; None where nothing of it is still to go."""
        if self.done or all(count <= self.to.get(name, count) for name, count in held.items()):
            return None
        return {name: min(count, self.to.get(name, count)) for name, count in held.items()}

    def to_annotation(self) -> str:
        """The annotation's value, as JSON."""
        return msgspec.json.encode(self, order="sorted").decode()

    @classmethod
    def from_annotation(cls, value: str | None) -> "Reclaimed | None":
        """The note of an annotation; None where there is none, or where it is unreadable."""
        return read_json(value, _RECLAIMED)


_RECLAIMED = msgspec.json.Decoder(Reclaimed)


def take_back(
    note: Reclaimed | None,
    wanted: Counts,
    to: Counts,
    *,
    beneficiary: Beneficiary,
    at: str,
    reason: str,
    message: str,
    held: Mapping[str, int] = {},
    is_alone: bool = False,
    notice_s: float = 0.0,
) -> Reclaimed:
    """The note of a job that wants this size and shall hold no more than `to`. `note` is what it has so far, `held`
    what it holds, and `is_alone` and `notice_s` those of `Taken`. Without `held` nobody knows how many pods go for the
    beneficiary.

    What it wants to have again is what it wants now, and no less than it keeps; while pods of an earlier note are to
    go, what it wanted before that. It never wants more than somebody asked for. The same arguments give the same note,
    with the same id.
    """
    wished = note.before if note is not None and not note.done else wanted
    asked = note.asked if note is not None else {}
    before = {name: max(count, min(wished[name], asked.get(name, wished[name]))) for name, count in to.items()}
    earlier = _with_served(note, held) if note is not None else ()
    others = tuple(other for other in earlier if other.uid != beneficiary.uid)
    own = [other for other in earlier if other.uid == beneficiary.uid]
    has_preempted = any(not other.opportunistic for other in own)
    left = (note.left_of(held) if note is not None else None) or held
    taken = Taken(
        workload=beneficiary.workload,
        uid=beneficiary.uid,
        job_uid=beneficiary.job_uid,
        at=at,
        opportunistic=reason == PreemptionReason.OPPORTUNISTIC and not has_preempted,
        took={name: max(0, left.get(name, count) - count) for name, count in to.items()},
        notice_s=notice_s,
        is_alone=is_alone and not own,
    )
    return Reclaimed(
        id=content_hash([before, to, at, message]),
        before=before,
        to=to,
        at=at,
        beneficiaries=(*others, taken)[-_REMEMBERED:],
        reason=reason,
        message=message,
        notice_s=notice_s,
        asked=_beyond(asked, to),
    )


def after_ends(note: Reclaimed, ended: Mapping[str, int]) -> Reclaimed:
    """The note of a job of which so many more pods have ended for good, or fewer than was known: nobody wants those
    again. For a job whose size counts them."""
    before = {name: max(0, count - ended.get(name, 0)) for name, count in note.before.items()}
    return replace(
        note,
        before=before,
        to={name: min(count, before.get(name, count)) for name, count in note.to.items()},
        asked={name: max(0, count - ended.get(name, 0)) for name, count in note.asked.items()},
    )


def withdraw(note: Reclaimed, kept: Counts, *, refused_at: str = "") -> Reclaimed:
    """The note of a job that keeps these pods, as nobody waits any more for those that it was to lose, or its worker
    has refused to take them. Of these nobody has asked for those beyond what it would have wanted again. For whom they
    all stay has taken nothing."""
    kept_from = _kept_from(note, {name: max(0, kept[name] - count) for name, count in note.to.items()})
    return replace(
        note,
        beneficiaries=tuple(taken for taken in note.beneficiaries if taken not in kept_from),
        before={name: max(count, kept[name]) for name, count in note.before.items()},
        to=kept,
        done=True,
        to_nobody=False,
        asked=_beyond(note.asked or note.before, kept),
        refused_at=refused_at,
    )


def spare(note: Reclaimed, held: Counts, gone: Collection[str]) -> Reclaimed | None:
    """The note of a job that keeps what it was to lose for these beneficiaries, by UID; None where that is nothing.

    Pods go in the order in which they were taken, so those that are left are for the last ones. Somebody whose pods are
    gone in part, or who is not alone with them, leaves the note as it is: others may count on the rest. The word stays
    the same.
    """
    to_go = {name: max(0, held.get(name, count) - count) for name, count in note.to.items()}
    spared = [taken for taken in _kept_from(note, to_go) if taken.uid in gone]
    if not spared:
        return None
    to = {name: count + sum(taken.took[name] for taken in spared) for name, count in note.to.items()}
    beneficiaries = tuple(taken for taken in note.beneficiaries if taken not in spared)
    less = replace(
        note,
        before={name: max(count, to[name]) for name, count in note.before.items()},
        to=to,
        beneficiaries=beneficiaries,
        asked=_beyond(note.asked or note.before, to),
        spares=True,
    )
    last = less.awaited_by[-1].workload if less.awaited_by else ""
    return replace(less, message=f"Shrunk to {counts_text(to)} to accommodate {last}")


def _kept_from(note: Reclaimed, to_go: Counts) -> list[Taken]:
    """The beneficiaries, the last one first, for whom all pods that were taken are among these, which have yet to go,
    and who are alone with them."""
    parts = _parts(note, to_go)
    return [taken for taken, part in parts if taken.is_alone and part == taken.took and any(part.values())]


def _with_served(note: Reclaimed, held: Mapping[str, int]) -> tuple[Taken, ...]:
    """The beneficiaries as they are in another word to a job that holds these pods."""
    left = note.left_of(held)
    to_go = {name: count - left[name] for name, count in held.items()} if left is not None else {}
    found = [
        taken if any(part.values()) or not (held or note.done) else replace(taken, took={})
        for taken, part in _parts(note, to_go)
    ]
    return tuple(reversed(found))


def _parts(note: Reclaimed, to_go: Counts) -> Iterator[tuple[Taken, Counts]]:
    """The beneficiaries, the last one first, each with how many of the pods that have yet to go were taken for it. Pods
    go in the order in which they were taken."""
    for taken in reversed(note.beneficiaries):
        part = {name: min(count, taken.took.get(name, 0)) for name, count in to_go.items()}
        to_go = {name: count - part[name] for name, count in to_go.items()}
        yield taken, part


def give_back(note: Reclaimed, to: Counts, *, at: str, message: str, notice_s: float) -> Reclaimed:
    """The note of a job that may not have the pods any more that nobody asked for. It wants none of them again."""
    return replace(
        note,
        id=content_hash([to, note.asked, at, message]),
        beneficiaries=_with_served(note, note.to),
        before=to,
        to=to,
        at=at,
        reason=PreemptionReason.OPPORTUNISTIC,
        message=message,
        notice_s=notice_s,
        done=False,
        to_nobody=True,
        spares=False,
        asked=_beyond(note.asked, to),
    )


def grow(note: Reclaimed | None, held: Counts, to: Counts, *, asked: Counts, at: str, message: str) -> Reclaimed:
    """The note of a job that holds these pods and is given more. Where `to` is what it holds, it is given no more.

    Earlier beneficiaries stay: by them nobody takes pods back and forth.
    """
    return Reclaimed(
        id=content_hash([held, to, asked, at]),
        before=to,
        to=held,
        at=at,
        beneficiaries=_with_served(note, held) if note is not None else (),
        reason=PreemptionReason.OPPORTUNISTIC,
        message=message,
        done=to == held,
        asked=_beyond(asked, to),
        refused_at=note.refused_at if note is not None else "",
    )


def _beyond(asked: Counts, to: Counts) -> Counts:
    """The size that somebody asked for, where this one has more pods; else empty."""
    return asked if any(count > asked.get(name, count) for name, count in to.items()) else {}
