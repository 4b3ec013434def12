"""Plays a schedule on a fleet, and says how it ended."""

import hashlib
import traceback

import msgspec
import structlog

from simulation import beside_kueue
from simulation import run as one_run
from simulation.cycle_rules import watching
from simulation.fleet import Fleet
from simulation.loop import run
from simulation.mutations import SHARDED, mutated
from simulation.schedule import Schedule
from simulation.seeds import schedule_of
from simulation.shard_moves import sharded
from simulation.violations import Violation
from slicebus.manager.state.settings import AdmissionModeName


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule, played: what was wrong, if anything; what happened; how many changes were checked."""

    schedule: Schedule
    problem: str
    is_error: bool
    """Whether something raised, and no rule was broken."""
    trace: list[str]
    checked: int
    effects: dict[str, int]
    """The effects that each role had in the run."""
    virtual_s: float
    forecasts: int = 0
    """How many verdicts of `slicebus simulate` were compared with what a cycle decided."""
    snapshots: int = 0
    """On how many snapshots."""

    @property
    def seed(self) -> int:
        """What the schedule was made from."""
        return self.schedule.seed

    @property
    def kind(self) -> str:
        """Which rule was broken, without by what."""
        return self.problem.strip().splitlines()[-1].partition(":")[0] if self.problem else ""

    @property
    def digest(self) -> str:
        """The same for two runs that went the same way."""
        text = "\n".join([*self.trace, f"{self.checked} {self.effects} {self.virtual_s}"])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def play(
    schedule: Schedule, mutation: str | None = None, admission: AdmissionModeName = AdmissionModeName.BUILTIN
) -> Outcome:
    """Play a schedule to its end, on the product as it is or without one of its safeguards."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    fleet, problem, is_error = Fleet(schedule, admission=admission), "", False
    story = beside_kueue.play if admission is AdmissionModeName.KUEUE else one_run.play
    # A mutation that does not fit the product is no outcome.
    with mutated(mutation), watching(fleet.rules.decided), fleet.rules.forecasts.watching():
        try:
            run(fleet.run(story))
        except Violation as violation:
            problem = str(violation)
        except Exception as error:  # noqa: BLE001 whatever ends a fleet is its outcome
            problem, is_error = "".join(traceback.format_exception(error)), True
    return Outcome(
        schedule=schedule,
        problem=str(fleet.rules.violation or problem),
        is_error=is_error and fleet.rules.violation is None,
        trace=fleet.trace,
        checked=fleet.rules.checked,
        effects=fleet.effects,
        virtual_s=fleet.ended_s,
        forecasts=fleet.rules.forecasts.asked,
        snapshots=fleet.rules.forecasts.snapshots,
    )


def play_seed(seed: int, mutation: str | None = None, **given: int | None) -> Outcome:
    """Play the run of a seed. `given` are fields of its schedule, which are as the seed says for None."""
    schedule, shards = schedule_of(seed), given.pop("shards", None) or (2 if mutation in SHARDED else None)
    fields = {name: value for name, value in given.items() if value is not None}
    schedule = msgspec.structs.replace(schedule, **fields)
    return play(sharded(schedule, shards) if shards is not None else schedule, mutation)
