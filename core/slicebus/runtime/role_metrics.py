"""Shows what a process is, from its first moment on: also while it waits for the broker or its Lease."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from platform import python_version
from typing import Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicebus.bus.access.address import Access
from slicebus.bus.access.certificate_expiry import expiries


class ShownRole(Protocol):
    """What is shown of a role."""

    @property
    def connected(self) -> bool:
        """Whether it has a connection to the broker."""

    @property
    def leads(self) -> Mapping[str, bool]:
        """Each Lease that it may hold, and whether it holds that one and works."""


class RoleMetrics(Collector):
    """The gauges of a role at the moment of a scrape. `role` returns None until the broker was reached once."""

    def __init__(self, *, name: str, access: Access, role: Callable[[], ShownRole | None]) -> None:
        self._name = name
        self._access = access
        self._role = role

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: otherwise the registry would collect when this is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Each of them."""
        role = self._role()
        text = "1; the labels say what runs here."
        build = GaugeMetricFamily("slicebus_build_info", text, labels=("role", "version", "python_version"))
        build.add_metric((self._name, version("slicebus"), python_version()), 1)
        yield build
        text = "1 where this process holds the Lease and is ready, else 0. Nobody works where no process has 1."
        leader = GaugeMetricFamily("slicebus_leader", text, labels=("lease",))
        for lease, is_led in (role.leads if role is not None else {}).items():
            leader.add_metric((lease,), is_led)
        yield leader
        text = "1 while there is a connection to the broker, else 0."
        connected = role is not None and role.connected
        yield GaugeMetricFamily("slicebus_broker_connected", text, float(connected))
        text = "When the first certificate of a file of the broker's login ends: authority, client."
        ends = GaugeMetricFamily("slicebus_certificate_expiry_timestamp_seconds", text, labels=("certificate",))
        for certificate, end_s in expiries(self._access).items():
            ends.add_metric((certificate,), end_s)
        yield ends


def show_process(registry: CollectorRegistry, role: RoleMetrics) -> None:
    """Show this process, once. No metric of it gets a series `_created`, whose time is that of the process anyway."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry.register(role)
    if sys.platform == "linux":
        ProcessCollector(registry=registry)
