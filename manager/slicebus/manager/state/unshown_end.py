"""The end of a job that the manager's API server refuses to show on the job: it stands on the job's Workload."""

from typing import Self

import msgspec

from slicebus.manager.state.annotations import annotation
from slicebus.proto.messages import JobPhase, Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.jobs.base import Outcome

_TEXT_LENGTH = 4000
_STATUS_LENGTH = 65_536
"""All annotations of an object share 256 KiB."""


class UnshownEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a job has ended on its worker, and why its own status does not say so."""

    phase: JobPhase
    status: Manifest = {}
    """The worker's status. It is shown as soon as the API server takes it."""
    message: str = ""
    """The words of the API server."""

    @classmethod
    def from_workload(cls, workload: Manifest) -> Self | None:
        """Read it from a Workload; None where there is none, or one that nobody can read."""
        end = read_json(annotation(workload, api_names.UNSHOWN_END_ANNOTATION), _DECODER)
        return end if end is not None and end.phase.is_terminal else None  # type: ignore[return-value]

    def to_annotation(self) -> str:
        """The annotation's value, as JSON; without a status that is too long for it."""
        short = msgspec.structs.replace(self, message=self.message[:_TEXT_LENGTH])
        text = msgspec.json.encode(short, order="deterministic")
        if len(text) > _STATUS_LENGTH:
            text = msgspec.json.encode(msgspec.structs.replace(short, status={}), order="deterministic")
        return text.decode()

    @property
    def outcome(self) -> Outcome:
        """The outcome of the job."""
        return Outcome(self.phase, f"The API server does not let the job show its end: {self.message}")


_DECODER = msgspec.json.Decoder(UnshownEnd)
