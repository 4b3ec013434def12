"""Says who leads, and whether that one works: every command and both roles ask here.

A leader writes with each renewal of its Lease whether it works. Whoever reads the Lease compares clocks with the
holder, and they may differ: a holder that looks silent is watched for a while before anybody says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from slicebus.kube.times import time_text
from slicebus.proto.messages import Manifest

NOT_READY_ANNOTATION = "slicebus.dev/not-ready"
"""On a Lease: the reason why its holder does not work."""
LEFT_OUT_ANNOTATION = "slicebus.dev/left-out"
"""On a Lease: the job kinds that its holder leaves out, with the reasons."""


REFUSED_ANNOTATION = "slicebus.dev/refused"
"""On a Lease: for how many jobs, clusters and objects of its own the API server refuses what its holder has to do, and
its words for one of them."""
_TEXT_LENGTH = 1000
_AHEAD_S = 1.0
"""A renewal so far in the future shows that the clocks differ."""


def annotations(
    *,
    not_ready: str,
    left_out: Sequence[str],
    refused: Mapping[Any, str] = {},
    refused_clusters: Mapping[Any, str] = {},
    unkept: Mapping[Any, str] = {},
) -> dict[str, str | None]:
    """The annotations that a leader writes with each renewal; None removes one. `refused` are the jobs for which the
    API server refuses something, with its words, `refused_clusters` the worker clusters, and `unkept` the holder's own
    objects."""
    return {
        NOT_READY_ANNOTATION: not_ready or None,
        LEFT_OUT_ANNOTATION: "; ".join(left_out) or None,
        REFUSED_ANNOTATION: "; ".join(_all_refusals(refused, refused_clusters, unkept)) or None,
    }


def _all_refusals(
    jobs: Mapping[Any, str], clusters: Mapping[Any, str], own_objects: Mapping[Any, str]
) -> Iterator[str]:
    yield from _refusals(jobs, "job")
    yield from _refusals(clusters, "cluster")
    yield from _refusals(own_objects, "own object")


def _refusals(refused: Mapping[Any, str], one: str) -> list[str]:
    """The number of objects, and the first of them by name; empty for none."""
    if not refused:
        return []
    key = min(refused, key=str)
    number = f"1 {one}" if len(refused) == 1 else f"{len(refused)} {one}s"
    return [f"{number}, such as {getattr(key, 'key', key)}: {refused[key]}"[:_TEXT_LENGTH]]


class Leadership(msgspec.Struct, frozen=True):
    """Says who leads, as a Lease shows it."""

    holder: str
    """Empty where nobody leads."""
    epoch: int
    silent_s: float
    """Seconds since the last renewal, by the reader's clock: clocks may differ by some seconds."""
    duration_s: float
    renewed: str = ""
    """The time of the last renewal, or of the release, by the holder's clock; RFC 3339, empty where unknown."""
    not_ready: str = ""
    left_out: str = ""
    refused: str = ""

    @property
    def is_at_work(self) -> bool:
        """Whether somebody holds the Lease and renews it."""
        return bool(self.holder) and self.silent_s <= self.duration_s

    @property
    def problem(self) -> str:
        """Why nothing is done, for people; empty where somebody leads and works."""
        if not self.is_at_work:
            return self.absence
        return f"{self.holder} leads and does not work: {self.not_ready}" if self.not_ready else ""

    @property
    def absence(self) -> str:
        """Since when nobody leads, for people."""
        since = f" since {self.renewed}" if self.renewed else ""
        if not self.holder:
            return f"nobody leads{since}"
        return f"nobody leads{since}: {self.holder} has not renewed its Lease for {self.silent_s:.0f} s"

    @property
    def watch_s(self) -> float:
        """How long to watch the Lease before its clock is believed; 0 where it is beyond doubt.

        A holder renews it at least three times within its duration. One that is silent by the clock alone is watched
        for half of it; a renewal in the future says nothing of the present, so that one for all of it.
        """
        if not self.holder or -_AHEAD_S <= self.silent_s <= self.duration_s:
            return 0.0
        return self.duration_s / 2 if self.silent_s > 0 else self.duration_s + _AHEAD_S

    @classmethod
    def from_manifest(cls, lease: Manifest, *, now: datetime) -> Self:
        """The leadership that a Lease shows at `now`."""
        spec, written = lease["spec"], lease["metadata"].get("annotations") or {}
        text = spec.get("renewTime") or spec.get("acquireTime")
        renewed = datetime.fromisoformat(text) if text else None
        return cls(
            holder=spec.get("holderIdentity") or "",
            epoch=spec.get("leaseTransitions", 0),
            silent_s=(now - renewed).total_seconds() if renewed else 0.0,
            duration_s=spec.get("leaseDurationSeconds", 0),
            renewed=time_text(renewed) if renewed else "",
            not_ready=written.get(NOT_READY_ANNOTATION, ""),
            left_out=written.get(LEFT_OUT_ANNOTATION, ""),
            refused=written.get(REFUSED_ANNOTATION, ""),
        )

    @classmethod
    def from_looks(cls, first: Manifest, last: Manifest, *, watched_s: float, now: datetime) -> Self:
        """The leadership that a Lease shows which was watched from its `first` to its `last` version. A renewal in that
        time counts, whatever the clocks say; without one it has been silent for as long as it was watched."""
        found = cls.from_manifest(last, now=now)
        if first["spec"].get("renewTime") != last["spec"].get("renewTime"):
            return msgspec.structs.replace(found, silent_s=0.0)
        return msgspec.structs.replace(found, silent_s=max(found.silent_s, watched_s))
