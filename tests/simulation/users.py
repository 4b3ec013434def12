"""Everybody who touches the fleet: what users, autoscalers and intruders do when the schedule says so."""

import asyncio
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

import msgspec

from simulation import queues
from simulation.faults import Weather
from simulation.fleet import MANAGER, Fleet, Process
from simulation.floods import Flood, flood_of, is_of_flood
from simulation.impostors import restored
from simulation.jobs import bounds_patch, cpu_patch, is_sized_where_it_runs, job_of, scale, settle, size_patch
from simulation.meddlers import Mislead, misled
from simulation.removals import create_again
from simulation.rules import OWNED_BY_USER
from simulation.schedule import (
    Cordon,
    Deactivate,
    Delete,
    Drain,
    Edit,
    Forge,
    Impostor,
    Join,
    OptOut,
    Policy,
    Prioritize,
    Quota,
    Rebound,
    Revalue,
    Scale,
    Squat,
    StopQueue,
    Submit,
    other_of,
)
from slicebus.agent.state import annotations
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    JOB_RESOURCES,
    JOBS,
    LOCALQUEUES,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import AlreadyExistsError, TransientError
from slicebus.proto.messages import MESSAGES, Direction
from slicebus.proto.topology import exchange_of
from slicebus.sandbox.bus import MemoryBus
from slicebus.slices.api import kueue

Manifest = dict[str, Any]

_FLAP_S = (0.05, 0.5, 2.0)
_OWN_S = 5.0
_OTHER_SIZE = 5
_AGAIN_S = 0.3


class Users:
    """What can be done is done; what cannot be done now raises, and is given up."""

    def __init__(self, fleet: Fleet) -> None:
        world = fleet.world()
        self._fleet = fleet
        self._clients: dict[str, KubeClient] = {MANAGER: world.manager, **world.workers}

    async def set_up(self) -> None:
        """The quota that a run begins with."""
        for resource, manifest in queues.at_first(apart=self._fleet.schedule.shards > 1):
            await self._clients[MANAGER].create(resource, manifest)

    async def set_quota(self, item: Quota) -> None:
        """Another quota of a queue or a cohort."""
        limits = {"nominalQuota": item.cpu, "borrowingLimit": item.borrowing, "lendingLimit": item.lending}
        manager, resource = self._clients[MANAGER], queues.resource_of(item.of)
        present = await manager.get(resource, item.of)
        await manager.patch(resource, item.of, None, MergePatch(queues.with_quota(present, item.flavor, limits)))

    async def join(self, item: Join) -> None:
        """Another cohort for a queue or a cohort, or none."""
        resource = queues.resource_of(item.who)
        field = "cohortName" if resource == CLUSTERQUEUES else "parentName"
        await self._clients[MANAGER].patch(resource, item.who, None, MergePatch({"spec": {field: item.cohort or None}}))

    async def set_policy(self, item: Policy) -> None:
        """Another policy of preemption for a queue."""
        await self._clients[MANAGER].patch(CLUSTERQUEUES, item.queue, None, MergePatch({"spec": item.spec}))

    async def prioritize(self, item: Prioritize) -> None:
        """Another priority class for a job."""
        jobs = (await self._clients[MANAGER].list(JOB_RESOURCES[item.kind])).items
        if jobs:
            name = jobs[item.pick % len(jobs)]["metadata"]["name"]
            patch = MergePatch({"metadata": {"labels": {kueue.PRIORITY_CLASS_LABEL: item.priority or None}}})
            await self._clients[MANAGER].patch(JOB_RESOURCES[item.kind], name, objects.NAMESPACE, patch)

    async def opt_out(self, item: OptOut) -> None:
        """Another queue for a job, or the wish that slicebus leaves it alone."""
        resource = JOB_RESOURCES[item.kind]
        jobs = (await self._clients[MANAGER].list(resource)).items
        if jobs:
            labels = {kueue.QUEUE_NAME_LABEL: item.queue or None}
            annotations = {kueue.ELASTIC_ANNOTATION: "true" if item.elastic else None}
            patch = MergePatch({"metadata": {"labels": labels, "annotations": annotations}})
            name = jobs[item.pick % len(jobs)]["metadata"]["name"]
            await self._clients[MANAGER].patch(resource, name, objects.NAMESPACE, patch)

    async def revalue(self, item: Revalue) -> None:
        """Another value for a priority class."""
        patch = MergePatch({"value": item.value})
        await self._clients[MANAGER].patch(WORKLOADPRIORITYCLASSES, item.priority, None, patch)

    async def submit(self, item: Submit) -> None:
        """Another job on the manager."""
        job = job_of(item)
        await self._clients[MANAGER].create(JOB_RESOURCES[item.kind], job)

    async def scale(self, item: Scale) -> None:
        """One other size, or several in a row."""
        client, is_manager = self._clients[item.api], item.api == MANAGER
        found = [one for resource in JOB_RESOURCES.values() for one in (await client.list(resource)).items]
        scale_targets = [one for one in found if is_manager or is_sized_where_it_runs(one)]
        if not scale_targets:
            return
        scale_target = scale_targets[item.pick % len(scale_targets)]
        try:
            for number, count in enumerate(item.counts):
                await self._scale(client, scale_target, max(count, int(is_manager)), group=item.group)
                if number + 1 < len(item.counts):
                    await asyncio.sleep(_FLAP_S[number % len(_FLAP_S)])
        finally:
            # What was named for deletion stays named when a later size is refused.
            await settle(client, scale_target, group=item.group)

    async def _scale(self, client: KubeClient, scale_target: Manifest, count: int, *, group: int) -> None:
        of = f", its group {group}" if group else ""
        self._fleet.note(f"{client.host}: {scale_target['kind']} {scale_target['metadata']['name']} to {count}{of}")
        await scale(client, scale_target, count, group=group)

    async def rebound(self, item: Rebound) -> None:
        """Other bounds for a cluster that may run already."""
        client, resource = self._clients[MANAGER], JOB_RESOURCES[item.kind]
        if jobs := (await client.list(resource)).items:
            job = jobs[item.pick % len(jobs)]
            patch = bounds_patch(job, least=item.least, most=item.most)
            await client.patch(resource, job["metadata"]["name"], objects.NAMESPACE, patch)

    async def edit(self, item: Edit) -> None:
        """Other pods for a job that may run already."""
        client, resource = self._clients[MANAGER], JOB_RESOURCES[item.kind]
        if jobs := (await client.list(resource)).items:
            job = jobs[item.pick % len(jobs)]
            await client.patch(resource, job["metadata"]["name"], objects.NAMESPACE, cpu_patch(job, item.cpu))

    async def delete(self, item: Delete) -> None:
        """A job goes; on the manager its name may be used again at once."""
        client, resource = self._clients[item.api], JOB_RESOURCES[item.kind]
        jobs = (await client.list(resource)).items
        if not jobs:
            return
        job = jobs[item.pick % len(jobs)]
        name = job["metadata"]["name"]
        self._fleet.note(f"{client.host}: delete {item.kind} {name}")
        self._fleet.rules.user_deletes(job)
        await client.delete(resource, name, objects.NAMESPACE, uid=job["metadata"]["uid"])
        if item.again and item.api == MANAGER:
            await create_again(client, item.kind, name)
        elif item.again and item.kind == "Job":
            await self._squat(client, name, for_s=_OWN_S)

    async def end_turns(self, *, within_s: float) -> bool:
        """Delete a job where jobs take turns by fair sharing (docs/decisions/0016). Whether there was one."""
        manager = self._clients[MANAGER]
        lost = self._fleet.rules.lost_by_share(since_s=asyncio.get_running_loop().time() - within_s)
        jobs = [job for resource in JOB_RESOURCES.values() for job in (await manager.list(resource)).items]
        by_uid = {job["metadata"]["uid"]: job for job in jobs}
        job = next((by_uid[uid] for uid in lost if uid in by_uid), None)
        if job is None:
            return False
        name = job["metadata"]["name"]
        self._fleet.note(f"jobs take turns: delete {job['kind']} {name}")
        self._fleet.rules.user_deletes(job)
        await manager.delete(JOB_RESOURCES[job["kind"]], name, job["metadata"]["namespace"])
        return True

    async def squat(self, item: Squat) -> None:
        """A user's own Job takes a name for a while."""
        await self._squat(self._clients[item.api], f"job-{item.name}", for_s=item.for_s)

    async def _squat(self, client: KubeClient, name: str, *, for_s: float) -> None:
        own = objects.job(name)
        del own["spec"]["managedBy"]
        own["metadata"] |= {"labels": {OWNED_BY_USER: "true"}, "annotations": {}}
        made = await client.create(JOBS, own)
        self._fleet.note(f"{client.host}: a user's own Job {name}")
        await asyncio.sleep(for_s)
        self._fleet.rules.user_deletes(made)
        await client.delete(JOBS, name, objects.NAMESPACE, uid=made["metadata"]["uid"])

    async def stop_queue(self, item: StopQueue) -> None:
        """A queue admits nothing for a while, and may be drained."""
        is_local = item.kind == LOCALQUEUES.kind
        resource, namespace = (LOCALQUEUES, objects.NAMESPACE) if is_local else (CLUSTERQUEUES, None)
        stopped, then = {"stopPolicy": item.policy}, {"stopPolicy": "None"}
        await self._for_a_while(resource, item.queue, namespace, stopped, then, item.for_s)

    async def deactivate(self, item: Deactivate) -> None:
        """A slice may not run for a while."""
        slices = (await self._clients[MANAGER].list(WORKLOADS)).items
        if slices:
            name = slices[item.pick % len(slices)]["metadata"]["name"]
            self._fleet.note(f"deactivate {name}")
            activating = self._fleet.rules.activations.user_activates(name)
            spec, then = {"active": False}, {"active": True}
            await self._for_a_while(WORKLOADS, name, objects.NAMESPACE, spec, then, item.for_s, activating)

    async def cordon(self, item: Cordon) -> None:
        """A cluster takes nothing new for a while."""
        await self._for_a_while(WORKERCLUSTERS, item.cluster, None, {"cordoned": True}, {"cordoned": False}, item.for_s)

    async def drain(self, item: Drain) -> None:
        """All jobs of a cluster have to go elsewhere, for a while."""
        await self._for_a_while(WORKERCLUSTERS, item.cluster, None, {"drain": True}, {"drain": False}, item.for_s)

    async def _for_a_while(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        spec: Manifest,
        then: Manifest,
        for_s: float,
        taking_back: AbstractContextManager[None] | None = None,
    ) -> None:
        """Another spec, which is taken back, within `taking_back`, whatever happens: nothing may stay stopped."""
        manager = self._clients[MANAGER]
        await manager.patch(resource, name, namespace, MergePatch({"spec": spec}))
        await asyncio.sleep(for_s)
        with taking_back or nullcontext():
            while True:
                try:
                    await manager.patch(resource, name, namespace, MergePatch({"spec": then}))
                except TransientError:
                    await asyncio.sleep(_AGAIN_S)
                else:
                    return

    async def forge(self, item: Forge) -> None:
        """A cluster's user says what another cluster has said before."""
        if said := self._said_by(item.of):
            forged = msgspec.structs.replace(said[item.pick % len(said)], user_id=item.by)
            await MemoryBus(self._fleet.memory, user=item.by).publish(exchange_of(Direction.UP), forged)

    async def mislead(self, item: Mislead) -> None:
        """A cluster's user says a status of its own cluster with other types in it."""
        if (message := misled(self._said_by(item.by), item)) is not None:
            await MemoryBus(self._fleet.memory, user=item.by).publish(exchange_of(Direction.UP), message)

    async def flood(self, item: Flood) -> None:
        """A cluster's user says many messages at once."""
        bus = MemoryBus(self._fleet.memory, user=item.by)
        for message in flood_of(self._said_by(item.by), item):
            await bus.publish(exchange_of(Direction.UP), message)

    def _said_by(self, cluster: str) -> list[WireMessage]:
        """What the agents of a cluster have said so far."""
        return [
            record.message
            for record in self._fleet.memory.journal
            if (known := MESSAGES.get(record.message.type or "")) is not None
            and known.direction is Direction.UP
            and record.message.routing_key.startswith(f"{cluster}.")
            and not is_of_flood(record.message)
        ]

    async def impersonate(self, item: Impostor) -> None:
        """Another cluster, with an agent of this one's name; whatever it was restored with is scaled there."""
        fleet, other = self._fleet, other_of(item.of)
        client = fleet.client(other)
        if item.restored:
            await self._restore(self._clients[item.of], client)
        fleet.weather.setdefault(other, Weather(fleet.schedule.seed, other))
        fleet.effects.setdefault(other, 0)
        process = Process(fleet, other, int(item.at_s * 100) + 1, fleet.agent(item.of, on=other))
        running = asyncio.ensure_future(process.run())
        await asyncio.sleep(item.for_s / 2)
        for job in (await client.list(JOBS)).items:
            await client.patch(JOBS, job["metadata"]["name"], objects.NAMESPACE, size_patch(job, _OTHER_SIZE))
        await asyncio.sleep(item.for_s / 2)
        process.end()
        await running

    async def _restore(self, backup: KubeClient, client: KubeClient) -> None:
        for resource in (*JOB_RESOURCES.values(), WORKLOADS):
            for found in (await backup.list(resource)).items:
                if annotations.is_ours(found):
                    with suppress(AlreadyExistsError):
                        await client.create(resource, restored(found))
