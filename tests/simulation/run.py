"""A simulated run: what the schedule says happens, then the faults end, and everything has to agree."""

import asyncio
from contextlib import suppress

from simulation import (
    additions,
    budgets,
    defaults,
    deleted_slices,
    elastic,
    floods,
    idle_quota,
    indexed,
    indexed_sizes,
    lost_copies,
    meddlers,
    notices,
    recorded,
    refusals,
    suspensions,
    switches,
    tenants,
    usage_order,
)
from simulation.agreement import Agreement, UnderWay
from simulation.definitions import bring_definition, remove_definition
from simulation.fleet import MANAGER, Fleet
from simulation.jobs import autoscale
from simulation.losses import lose
from simulation.relenting import OneRelents, check_keeps_spared
from simulation.relocations import resize_nodes, shrink_nodes
from simulation.removals import clean_up, delete_many, remove_namespace
from simulation.schedule import (
    MANY_CORES,
    WORKERS,
    ApiRestart,
    BrokerRestart,
    CleanUp,
    Cordon,
    Cut,
    Deactivate,
    DefinitionComes,
    DefinitionGoes,
    Delete,
    DeleteMany,
    Drain,
    Edit,
    Forge,
    Impostor,
    Item,
    Join,
    Lose,
    Moment,
    NamespaceGoes,
    Nodes,
    OptOut,
    Policy,
    Prioritize,
    Quota,
    Rebound,
    Reshard,
    Revalue,
    Scale,
    Squat,
    Stick,
    StopQueue,
    Submit,
    Succeed,
    Upgrade,
)
from simulation.services import upgrade
from simulation.stuck import stick
from simulation.successes import succeed
from simulation.two_preemptors import TwoPreemptors, check_first_is_served
from simulation.users import Users
from simulation.violations import Violation
from simulation.withdrawals import Relent, check_withdrawn
from slicebus.cli.demo import objects
from slicebus.kube.resources import NAMESPACES
from slicebus.proto.errors import SlicebusError

_WARM_UP_S = 4.0
_REPLAYED = 3
"""Of so many runs one is replayed: that costs a tenth of a run."""
_LOOK_S = 25.0
"""Agreement has to last from one look to the next."""
_CALM_S = 300.0
"""Long enough for every lease, backoff and periodic comparison to have come round."""


async def play(fleet: Fleet) -> None:
    """Raises Violation when the fleet does not agree in the end, or its journal does not explain what it decided."""
    one = Run(fleet)
    await one.pass_by()
    for name in WORKERS:
        await resize_nodes(fleet.client(name), MANY_CORES)
    await fleet.calm_down()
    fleet.note("the faults end")
    await _agree(fleet, one.users)
    for item in fleet.schedule.items:
        if isinstance(item, Relent | TwoPreemptors | OneRelents):
            fleet.note(f"{item}: {await _come_afterwards(fleet, item)}")
            await _agree(fleet, one.users)
    if fleet.schedule.seed % _REPLAYED == 0:
        count = recorded.check(fleet.memory.journal)
        fleet.note(f"{count} decisions are made again, and are the same")


async def _come_afterwards(fleet: Fleet, item: Relent | TwoPreemptors | OneRelents) -> str:
    """Play those who come when everything agrees, and return what became of it."""
    if (NAMESPACES.group, NAMESPACES.plural, "", objects.NAMESPACE) not in fleet.servers[MANAGER].api.store.objects:
        return "nobody comes, as the namespace went for good"
    match item:
        case Relent():
            told = await check_withdrawn(fleet.client(MANAGER), item, fleet.rules.user_deletes)
            return f"{'somebody' if told else 'nobody'} is told"
        case TwoPreemptors():
            taken = await check_first_is_served(fleet, item)
            return f"pods are {'taken' if taken else 'not taken'}"
        case OneRelents():
            spared = await check_keeps_spared(fleet, item)
            return f"pods are {'spared' if spared else 'not spared'}"


class Run:
    """Makes happen what the schedule says."""

    def __init__(self, fleet: Fleet) -> None:
        self.users = Users(fleet)
        self._fleet = fleet
        self._broken: set[str] = set()
        """UIDs of the manager's jobs whose manifests are broken now."""

    async def pass_by(self) -> None:
        """Begin with the quota, and make everything of the schedule happen."""
        await self.users.set_up()
        await asyncio.sleep(_WARM_UP_S)
        self._fleet.break_loose()
        await asyncio.gather(*(self.at(item) for item in self._fleet.schedule.items if isinstance(item, Moment)))

    async def at(self, item: Moment) -> None:
        """Make one thing happen at its time. What users cannot do then they do not do."""
        await asyncio.sleep(item.at_s)
        self._fleet.note(str(item))
        try:
            await self._happen(item)
        except SlicebusError as error:
            self._fleet.note(f"given up: {error}")
        except (LookupError, TypeError) as error:
            if not meddlers.are_in(self._fleet.schedule):
                raise
            self._fleet.note(f"given up, as the manifest is broken: {error!r}")

    async def _happen(self, item: Item) -> None:
        match item:
            case meddlers.Break():
                await meddlers.break_for_a_while(self._fleet.client(MANAGER), item, broken=self._broken)
            case meddlers.Mislead():
                await self.users.mislead(item)
            case indexed.Tandem():
                await indexed.resize(self._fleet.client(item.api), item)
            case indexed_sizes.Resize():
                await indexed_sizes.resize(self._fleet.client(item.api), item)
            case notices.Agree():
                await notices.agree(self._fleet.client(item.worker), item)
            case elastic.Least():
                await elastic.set_least(self._fleet.client(MANAGER), item)
            case budgets.GiveBudget():
                await budgets.give(self._fleet.client(MANAGER), item)
            case usage_order.ShareByUse():
                await usage_order.share(self._fleet.client(MANAGER), item)
            case idle_quota.Most():
                await idle_quota.set_most(self._fleet.client(MANAGER), item)
            case floods.Flood():
                await self.users.flood(item)
            case refusals.Refuse():
                await self._fleet.servers[item.api].refusals.refuse(item)
            case additions.Inject():
                await additions.inject(self._fleet.client(item.cluster), item)
            case defaults.Limit():
                await defaults.limit(self._fleet.client(item.cluster), item)
            case defaults.Overhead():
                await defaults.add_overhead(self._fleet.client(item.cluster), item)
            case defaults.Resize():
                await defaults.resize(self._fleet.client(item.cluster), item)
            case suspensions.Suspend():
                await suspensions.suspend(self._fleet.client(item.api), item)
            case lost_copies.DeleteWorkload():
                await lost_copies.delete_workload(self._fleet.client(item.cluster), item)
            case deleted_slices.DeleteSlice():
                await deleted_slices.delete_slice(self._fleet.client(MANAGER), item)
            case switches.Switch():
                await switches.switch(self._fleet.client(MANAGER), item)
            case tenants.Forged():
                await tenants.forge(self._fleet.client(MANAGER), item)
            case Submit():
                await self.users.submit(item)
            case Scale():
                await self.users.scale(item)
            case Succeed():
                await succeed(map(self._fleet.client, WORKERS), item)
            case Stick(cluster=cluster):
                await stick(self._fleet.runners[WORKERS.index(cluster)], item)
            case Upgrade():
                at = WORKERS if item.at == "worker" else (MANAGER,)
                await upgrade(map(self._fleet.client, at), item)
            case Rebound():
                await self.users.rebound(item)
            case Edit():
                await self.users.edit(item)
            case Delete():
                await self.users.delete(item)
            case CleanUp():
                await clean_up(self._fleet, item)
            case NamespaceGoes():
                await remove_namespace(self._fleet, item)
            case DefinitionComes():
                await bring_definition(self._fleet.client(item.api), item.kind)
            case DefinitionGoes():
                await remove_definition(self._fleet, item)
            case DeleteMany():
                await delete_many(self._fleet, item)
            case Squat():
                await self.users.squat(item)
            case Quota():
                await self.users.set_quota(item)
            case Join():
                await self.users.join(item)
            case OptOut():
                await self.users.opt_out(item)
            case Prioritize():
                await self.users.prioritize(item)
            case Revalue():
                await self.users.revalue(item)
            case Policy():
                await self.users.set_policy(item)
            case StopQueue():
                await self.users.stop_queue(item)
            case Reshard(shards=shards):
                await self._fleet.reshard(shards)
            case Deactivate():
                await self.users.deactivate(item)
            case Cordon():
                await self.users.cordon(item)
            case Drain():
                await self.users.drain(item)
            case Nodes():
                await shrink_nodes(self._fleet.client(item.cluster), item, cores=self._fleet.schedule.cores)
            case Cut():
                await self._fleet.cut(item.cluster, item.for_s)
            case Forge():
                await self.users.forge(item)
            case Impostor():
                await self.users.impersonate(item)
            case BrokerRestart():
                await self._fleet.broker.restart(item.down_s)
            case Lose():
                await lose(self._fleet.memory, item)
            case ApiRestart():
                await self._fleet.servers[item.api].restart(item.down_s)


async def _agree(fleet: Fleet, users: Users) -> None:
    """Wait until everything agrees twice in a row.

    Raises Violation when it does not, or when it does not go on agreeing although no quota is being freed.
    """
    agreement = Agreement(fleet.world(), fleet.memory, fleet.rules.activations, fixed_jobs=fleet.schedule.fixed_jobs)
    clock = asyncio.get_running_loop().time
    ends_at, agreed, freed = clock() + _CALM_S, False, 0
    while True:
        await asyncio.sleep(_LOOK_S)
        for worker in WORKERS:
            with suppress(SlicebusError):
                await autoscale(fleet.client(worker))
        try:
            fleet.rules.check_ends()
            await agreement.check()
        except Violation as violation:
            # Who gets what was freed since then may just have begun.
            agreed = agreed and freed == fleet.rules.quota.freed and not isinstance(violation, UnderWay)
            if not agreed and clock() < ends_at:
                continue
            if await users.end_turns(within_s=_CALM_S):
                ends_at, agreed = clock() + _CALM_S, False
            elif agreed:
                raise Violation(f"agreement did not last: {violation}") from violation
            else:
                raise
        else:
            if agreed:
                return
            agreed, freed = True, fleet.rules.quota.freed
