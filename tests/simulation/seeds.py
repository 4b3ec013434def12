"""The schedule of a seed."""

from simulation.additions import with_additions
from simulation.budgets import with_budgets
from simulation.defaults import with_defaults
from simulation.deleted_slices import with_deleted_slices
from simulation.elastic import with_elastic
from simulation.floods import with_floods
from simulation.gangs import with_elastic_gangs
from simulation.idle_quota import with_idle_quota
from simulation.indexed import with_indexed
from simulation.indexed_sizes import with_indexed_sizes
from simulation.later import OLD
from simulation.lost_copies import with_lost_copies
from simulation.meddlers import with_meddlers
from simulation.notices import with_notices
from simulation.random_choices import everything_of
from simulation.refusals import with_refusals
from simulation.relenting import with_relenting
from simulation.schedule import Schedule
from simulation.suspensions import with_suspensions
from simulation.swarm import swarm_of
from simulation.switches import with_switches
from simulation.tenants import with_tenants
from simulation.time_limits import with_time_limits
from simulation.two_preemptors import with_two_preemptors
from simulation.usage_order import with_usage_order

_ONE_OF = 10
_LATER = (
    with_additions,
    with_tenants,
    with_meddlers,
    with_refusals,
    with_indexed,
    with_defaults,
    with_suspensions,
    with_floods,
    with_elastic,
    with_lost_copies,
    with_notices,
    with_idle_quota,
    with_elastic_gangs,
    with_budgets,
    with_time_limits,
    with_usage_order,
    with_two_preemptors,
    with_deleted_slices,
    with_switches,
    with_relenting,
    with_indexed_sizes,
)
"""What came later, in this order."""


def schedule_of(seed: int) -> Schedule:
    """The run of a seed: the same for the same seed."""
    drawn = everything_of(seed) if has_everything(seed) else swarm_of(seed)
    for later in _LATER:
        drawn = later(drawn)
    return drawn


def has_everything(seed: int) -> bool:
    """Whether every kind of fault and user may come in a run, as in one of ten, or a few do."""
    return seed in OLD or seed % _ONE_OF == _ONE_OF - 1
