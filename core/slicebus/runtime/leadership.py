"""Writes and reads the annotations by which a leader says on its Lease whether it works, as `slicebus doctor` shows."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import msgspec

from slicebus.proto.messages import Manifest

NOT_READY_ANNOTATION = "slicebus.dev/not-ready"
"""On a Lease: the reason why its holder does not work."""
LEFT_OUT_ANNOTATION = "slicebus.dev/left-out"
"""On a Lease: the job kinds that its holder leaves out, with the reasons."""


REFUSED_ANNOTATION = "slicebus.dev/refused"
"""On a Lease: for how many jobs the API server refuses what its holder has to do, and its words for one of them."""
_TEXT_LENGTH = 1000


def annotations(*, not_ready: str, left_out: Sequence[str], refused: Mapping[Any, str] = {}) -> dict[str, str | None]:
    """The annotations that a leader writes with each renewal; None removes one. `refused` are the jobs for which the
    API server refuses something, with its words."""
    return {
        NOT_READY_ANNOTATION: not_ready or None,
        LEFT_OUT_ANNOTATION: "; ".join(left_out) or None,
        REFUSED_ANNOTATION: _refusals(refused) or None,
    }


def _refusals(refused: Mapping[Any, str]) -> str:
    """The number of jobs, and the first of them by name."""
    if not refused:
        return ""
    key = min(refused, key=str)
    number = "1 job" if len(refused) == 1 else f"{len(refused)} jobs"
    return f"{number}, such as {getattr(key, 'key', key)}: {refused[key]}"[:_TEXT_LENGTH]


class Leadership(msgspec.Struct, frozen=True):
    """Says who leads, as a Lease shows it."""

    holder: str
    """Empty where nobody leads."""
    epoch: int
    silent_s: float
    """Seconds since the last renewal, by the reader's clock: clocks may differ by some seconds."""
    duration_s: float
    not_ready: str = ""
    left_out: str = ""
    refused: str = ""

    @property
    def is_at_work(self) -> bool:
        """Whether somebody holds the Lease and renews it."""
        return bool(self.holder) and self.silent_s <= self.duration_s

    @property
    def absence(self) -> str:
        """Why nobody leads, for people."""
        if not self.holder:
            return "nobody leads"
        return f"{self.holder} led, and has not renewed it for {self.silent_s:.0f} s"

    @classmethod
    def from_manifest(cls, lease: Manifest, *, now: datetime) -> Self:
        """The leadership that a Lease shows at `now`."""
        spec, written = lease["spec"], lease["metadata"].get("annotations") or {}
        renewed = spec.get("renewTime") or spec.get("acquireTime")
        return cls(
            holder=spec.get("holderIdentity") or "",
            epoch=spec.get("leaseTransitions", 0),
            silent_s=(now - datetime.fromisoformat(renewed)).total_seconds() if renewed else 0.0,
            duration_s=spec.get("leaseDurationSeconds", 0),
            not_ready=written.get(NOT_READY_ANNOTATION, ""),
            left_out=written.get(LEFT_OUT_ANNOTATION, ""),
            refused=written.get(REFUSED_ANNOTATION, ""),
        )
