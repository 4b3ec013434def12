"""The page docs/metrics.md: every metric of both roles, as they register it. `make metrics` writes it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from slicebus.bus.access.address import Access
from slicebus.cli.demo.world import embedded_world, fleet
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.runtime.role_metrics import RoleMetrics, show_process
from slicebus.slices.admission.sharing import FairSharing

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROLES = ("manager", "agent")
_KUEUE, _OWN, _PROCESS = "kueue_", "slicebus_", "process_"
_HEAD = """# Metrics

What `/metrics` of each pod shows. `make metrics` writes this page, and a test compares it with what the roles register.
[Operations](operations.md#metrics) says which of them to look at first, and has the [alerts](operations.md#alerts).

Only the process that leads has what is about queues, clusters and jobs; a series that ends says that nobody knows.
What is marked with ¹ each process shows from its first moment on, also while it waits for the broker or its Lease. No
label has the name of a job. A counter has no `_created`: its time would be that of the process,
`process_start_time_seconds`.
"""
_OF_KUEUE = """The manager has them with the names and labels of Kueue 0.20, so that dashboards and alerts for it go on
working. Where a Kueue admits, that one has them; `slicebus_pending_oldest_seconds` and
`slicebus_admission_cycle_seconds` are missing then.

"""
_TABLE = "| metric | type | meaning |\n|---|---|---|\n"
_SECTIONS = {
    "Both roles": (_OWN, set(ROLES), ""),
    "The manager": (_OWN, {"manager"}, ""),
    "The agent": (_OWN, {"agent"}, ""),
    "Kueue's": (_KUEUE, {"manager"}, _OF_KUEUE),
    "The process": (_PROCESS, set(ROLES), "As every client of Prometheus has them, on Linux.\n\n"),
}


@dataclass
class Family:
    """One metric, and the roles that have it."""

    name: str
    """As it is queried; that of a histogram without its suffixes."""
    type: str
    labels: tuple[str, ...]
    text: str
    roles: set[str]
    is_early: bool
    """Whether a process shows it before it works."""


def families() -> dict[str, Family]:
    """Every metric by name, from a manager and an agent that lead."""
    return asyncio.run(_fleet())[0]


def scrapes() -> dict[str, bytes]:
    """What a manager and an agent that lead answer to a scrape, by role."""
    return asyncio.run(_fleet())[1]


def page(known: dict[str, Family]) -> str:
    """The page, from what the roles register."""
    parts = [_HEAD]
    for title, (prefix, roles, text) in _SECTIONS.items():
        rows = [_row(family) for family in known.values() if family.name.startswith(prefix) and family.roles == roles]
        parts.append(
            f"## {title}\n\n{text}| metric | type | meaning |\n|---|---|---|\n" + "\n".join(sorted(rows)) + "\n"
        )
    return "\n".join(parts)


def _row(family: Family) -> str:
    labels = f"{{{','.join(family.labels)}}}" if family.labels else ""
    mark = " ¹" if family.is_early and family.name.startswith(_OWN) else ""
    return f"| `{family.name}{labels}`{mark} | {family.type} | {family.text.removesuffix('.')} |"


async def _fleet() -> tuple[dict[str, Family], dict[str, bytes]]:
    """The families and the scrapes of a fleet with everything that has metrics."""
    found: dict[str, Family] = {}
    early, role_of = CollectorRegistry(), {"manager": "manager", "east": "agent"}
    urls = {name: f"memory://{name}@metrics" for name in role_of}
    show_process(early, RoleMetrics(name="manager", access=Access(), role=lambda: None))
    known_early = {name for name, *_ in _read(early)}
    how = {"decisions": ManagerDecisionSettings(fair_sharing=FairSharing.BOTH)}
    async with embedded_world(["east"]) as world, fleet(world, urls, **how) as registries:
        for name, role in role_of.items():
            show_process(registries[name], RoleMetrics(name=role, access=Access(), role=lambda: None))
            for family in _read(registries[name]):
                found.setdefault(family[0], Family(*family, set(), family[0] in known_early)).roles.add(role)
        return found, {role: generate_latest(registries[name]) for name, role in role_of.items()}


def _read(registry: CollectorRegistry) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Name, type, labels and text of each family."""
    for collector in list(registry._collector_to_names):
        for family in collector.collect():
            labels = getattr(collector, "_labelnames", None) or getattr(family, "_labelnames", ())
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield name, family.type, tuple(labels), family.documentation


if __name__ == "__main__":
    PAGE.write_text(page(families()))
