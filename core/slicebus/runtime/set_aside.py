"""Shows as a metric how many objects are set aside."""

from collections.abc import Callable, Collection, Mapping

from prometheus_client import CollectorRegistry, Gauge

_TEXT = "Objects that are left alone, as the decision about them raises: jobs, and on the manager quota trees."


def show_set_aside(registry: CollectorRegistry, kinds: Mapping[str, Callable[[], Collection[object]]]) -> None:
    """Show how many objects of each kind are set aside."""
    gauge = Gauge("slicebus_set_aside", _TEXT, ["of"], registry=registry)
    for name, present in kinds.items():
        gauge.labels(name).set_function(_counting(present))


def _counting(present: Callable[[], Collection[object]]) -> Callable[[], float]:
    return lambda: float(len(present()))
