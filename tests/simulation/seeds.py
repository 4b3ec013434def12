"""The schedule of a seed."""

from simulation.random_choices import everything_of
from simulation.schedule import Schedule
from simulation.swarm import swarm_of

_OLD = range(100_000, 2_000_000)
"""Those that failed before there were others. They fail with what they had then."""
_ONE_OF = 10


def schedule_of(seed: int) -> Schedule:
    """The run of a seed: the same for the same seed."""
    return everything_of(seed) if has_everything(seed) else swarm_of(seed)


def has_everything(seed: int) -> bool:
    """Whether every kind of fault and user may come in a run, as in one of ten, or a few do."""
    return seed in _OLD or seed % _ONE_OF == _ONE_OF - 1
