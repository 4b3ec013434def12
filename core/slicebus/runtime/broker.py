"""Checks that the broker has what a role needs before it starts, and shows whether it takes what the role says."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Gauge

from slicebus.bus.contract import Bus
from slicebus.proto.errors import ForbiddenError, NotFoundError
from slicebus.proto.rights import Use
from slicebus.proto.topology import Topology

_NOTHING = Topology((), (), ())


def show_blocked(registry: CollectorRegistry, bus: Bus) -> None:
    """Show as a metric whether the broker blocks the role's connection."""
    text = "Whether the broker takes nothing from publishers, as memory or disk is short there."
    Gauge("slicebus_broker_blocked", text, registry=registry).set_function(lambda: float(bool(bus.blocked)))


async def require(bus: Bus, uses: Iterable[Use], topology: Topology = _NOTHING) -> None:
    """Raise NotFoundError for missing parts of a topology that somebody else makes, and ForbiddenError for uses that
    the broker refuses to its user."""
    absent = await bus.check(topology)
    if absent:
        raise NotFoundError(f"{'; '.join(absent)}: the manager makes it")
    refused = await bus.refused(uses)
    if refused:
        names = "; ".join(map(str, refused))
        raise ForbiddenError(f"the broker refuses its user {bus.user} this: {names} (slicebus broker definitions)")
