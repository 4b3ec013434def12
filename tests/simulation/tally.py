"""Counts what runs have checked, and says it in a line that can be read again."""

import re
from typing import Self

import msgspec

from simulation.outcome import Outcome

_FORECASTS = re.compile(r"([0-9]+) forecasts on ([0-9]+) snapshots compared, ([0-9]+) differed")


class Forecasts(msgspec.Struct, frozen=True):
    """The verdicts of `slicebus simulate` that were compared with what the next cycle decided."""

    asked: int = 0
    snapshots: int = 0
    differed: int = 0

    def __add__(self, other: "Forecasts") -> "Forecasts":
        return Forecasts(self.asked + other.asked, self.snapshots + other.snapshots, self.differed + other.differed)

    def __str__(self) -> str:
        return f"{self.asked} forecasts on {self.snapshots} snapshots compared, {self.differed} differed"

    @classmethod
    def of(cls, line: str) -> Self | None:
        """What a line says of them; None for one that says nothing."""
        said = _FORECASTS.search(line)
        return cls(*map(int, said.groups())) if said is not None else None


class Tally:
    """What the runs until now have shown."""

    def __init__(self) -> None:
        self.played = 0
        self.failed = 0
        self._checked = 0
        self._forecasts = Forecasts()

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        self.played += 1
        self.failed += bool(outcome.problem)
        self._checked += outcome.checked
        self._forecasts += Forecasts(outcome.forecasts, outcome.snapshots, outcome.kind == "forecast")

    def text(self, elapsed_s: float) -> str:
        """In one line."""
        return (
            f"{self.played} seeds, {self.failed} failed, {self._checked} changes checked, {self._forecasts}, "
            f"{self.played / elapsed_s * 3600:.0f} an hour"
        )
