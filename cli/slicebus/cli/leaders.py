"""Who leads, as every command asks it that shows what only a manager knows: it says first that none does."""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from slicebus.cli import screen

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.problems import Sight
    from slicebus.manager.state.settings import ManagerDecisionSettings
    from slicebus.runtime.leadership import Leadership

_LOOK_S = 0.5


class Leaders(msgspec.Struct, frozen=True):
    """Whether the managers work, by their Leases."""

    problems: tuple[str, ...] = ()
    """What is wrong, a line for each shard that nobody leads; none where every manager works."""
    unknown: str = ""
    """Why it cannot be known; empty where it can."""
    fleet_is_known: bool = True
    """Whether the WorkerClusters show the present: the first shard writes them."""
    holders: tuple[str, ...] = ()
    """Who leads each shard, as far as that is known; empty for a shard that nobody leads."""
    settings: "ManagerDecisionSettings | None" = None
    """By which settings it decides; None where that is unknown."""

    def seen(self, sight: "Sight") -> "Sight":
        """What may be relied on of what a reader sees: without a manager nothing is up to date."""
        return sight if self.fleet_is_known else msgspec.structs.replace(sight, unled="; ".join(self.problems))

    def say(self) -> None:
        """Say what is wrong. Call it before anything else is shown."""
        for problem in self.problems:
            screen.fail(f"✗ {problem}")
        if self.unknown:
            screen.warn(f"whether a manager leads is unknown: {self.unknown}")

    def exit(self) -> None:
        """End a command that has shown everything: exit status 1 where no manager works."""
        if self.problems:
            raise typer.Exit(1)


async def say_leaders(client: "KubeClient", namespace: str) -> Leaders:
    """Who leads, after saying what is wrong."""
    found = await leaders(client, namespace)
    found.say()
    return found


async def leaders(client: "KubeClient", namespace: str) -> Leaders:
    """Who leads the shards of the manager whose Leases are in a namespace. It takes some seconds where a Lease looks
    expired."""
    from slicebus.manager.permissions import lease_of
    from slicebus.manager.state.settings import ManagerDecisionSettings
    from slicebus.proto.errors import ForbiddenError, NotFoundError
    from slicebus.slices.api.annotation_values import read_number
    from slicebus.slices.api.api_names import SHARDS_ANNOTATION

    try:
        first, lease = await look(client, namespace, lease_of(0))
        shards = read_number((lease["metadata"].get("annotations") or {}).get(SHARDS_ANNOTATION))
        others = [await _look_at(client, namespace, shard) for shard in range(1, shards)]
    except NotFoundError:
        absent = f"no manager has ever led: there is no Lease {namespace}/{lease_of(0)} (--manager-namespace)"
        return Leaders((absent,), fleet_is_known=False)
    except ForbiddenError as error:
        return Leaders(unknown=str(error))
    problem = _of_manager(first)
    return Leaders(
        tuple(filter(None, (problem, *(other for other, _ in others)))),
        fleet_is_known=not problem,
        holders=(_holder(first), *(holder for _, holder in others)),
        settings=ManagerDecisionSettings.from_lease(lease),
    )


async def look(client: "KubeClient", namespace: str, name: str) -> "tuple[Leadership, dict[str, Any]]":
    """The leadership that a Lease shows, and the Lease. Raises NotFoundError and ForbiddenError."""
    from slicebus.ambient.clock import now
    from slicebus.kube.resources import LEASES
    from slicebus.runtime.leadership import Leadership

    first = lease = await client.get(LEASES, name, namespace)
    found, loop = Leadership.from_manifest(lease, now=now()), asyncio.get_running_loop()
    began_s, watch_s = loop.time(), found.watch_s
    while found.watch_s and loop.time() < began_s + watch_s:
        await asyncio.sleep(_LOOK_S)
        lease = await client.get(LEASES, name, namespace)
        found = Leadership.from_looks(first, lease, watched_s=loop.time() - began_s, now=now())
    return found, lease


async def _look_at(client: "KubeClient", namespace: str, shard: int) -> tuple[str, str]:
    """What is wrong with a shard, and who leads it."""
    from slicebus.manager.permissions import lease_of
    from slicebus.proto.errors import NotFoundError

    try:
        found, _ = await look(client, namespace, lease_of(shard))
    except NotFoundError:
        return f"no manager has ever led shard {shard}", ""
    return _of_manager(found, shard), _holder(found)


def _holder(found: "Leadership") -> str:
    """Who leads; empty where nobody does."""
    return found.holder if found.is_at_work else ""


def _of_manager(found: "Leadership", shard: int = 0) -> str:
    """What is wrong with a manager; empty where it works."""
    if found.is_at_work:
        return f"the manager does not work: {found.problem}" if found.problem else ""
    return found.absence.replace("nobody leads", f"no manager leads{f' shard {shard}' if shard else ''}", 1)
