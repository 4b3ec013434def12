"""Compares the inventories of the agents with what they shall hold, and corrects the differences.

A cluster that speaks is asked for an inventory when it has not sent one to this process. A shard beside the first hears
no heartbeats, so it asks the clusters that are connected. Agents also send inventories unasked.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.ambient.timers import Timers
from slicebus.decisions.commands import Command, Publish
from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.decide import catalog
from slicebus.manager.decide.cluster import worker_cluster_status
from slicebus.manager.decide.cluster.strays import Whereabouts
from slicebus.manager.decide.messages.inventory import Assembly, Difference, Listed, Stamp, stamp_of
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    NotFoundError,
    NotServedError,
    PermanentError,
    TransientError,
    UnavailableError,
)
from slicebus.proto.messages import (
    Applied,
    ClusterName,
    Heartbeat,
    Hello,
    Inventory,
    InventoryItem,
    JobRef,
    Message,
    Refused,
    Resync,
    Status,
)
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks

_log = structlog.get_logger()
_NOT_ABOUT_STATUS = (Difference.HELD, Difference.AGAIN, Difference.RENEW, Difference.WITHDRAWN)
_AT_ONCE = 100
"""How many jobs are compared before other tasks may run."""
_MOST_STRAYS = 1000
"""So many strays of a cluster are found in one inventory, which may list whatever its agent likes. Each costs some
decisions, and a request to the API server."""
_TRIES = 5
"""After so many conflicts in a row a job is left to the next inventory."""
_REFUSED_S = 60.0
"""How much later a cluster is asked again after a write that corrects a difference was refused."""
_HALF_S = 120.0
"""An inventory whose next page has not come for so long is given up. An agent sends its pages one after the other."""
_MOST_REPORTED = 20_000
"""Jobs of a cluster whose last report is remembered. Of one beyond that an older inventory counts, and has it asked
again."""
_ASKED_AT_ONCE = 500
"""How many jobs one message names: about 100 KiB."""
_UNHEARD = ("", 0)
"""The speaker and epoch of a cluster that was asked before it spoke to this process."""


class Resyncer:
    """Asks for inventories, takes them in and compares them."""

    def __init__(
        self,
        *,
        client: KubeClient,
        informers: Informers,
        decide: Decider[ManagerStore],
        executor: Executor,
        locks: Locks[JobRef],
        guard: DeleteGuard,
        registry: CollectorRegistry,
    ) -> None:
        self._client = client
        self._informers = informers
        self._decide = decide
        self._store = decide.state
        self._executor = executor
        self._locks = locks
        self._guard = guard
        self._assemblies: dict[str, Assembly] = {}
        """The inventories that are not complete yet, by `Envelope.agent`."""
        self._expiries: dict[str, asyncio.TimerHandle] = {}
        """When each half inventory is given up, by `Envelope.agent`."""
        self._refused = Timers[ClusterName](self.forget)
        """When each cluster is asked again, of which a difference could not be written."""
        self._reported_at: dict[str, dict[JobRef, Stamp]] = {}
        """When each `Envelope.agent` has last reported on a job since its last inventory."""
        self._expected: dict[ClusterName, tuple[str, int]] = {}
        """The speaker and epoch whose inventory has come, or was asked for."""
        self._differences = Counter(
            "slicebus_manager_differences",
            "What inventories found: jobs to publish again, renew or delete, and statuses and requests to ask for.",
            ["cluster", "difference"],
            registry=registry,
        )

    def forget(self, cluster: ClusterName) -> None:
        """Ask a cluster for an inventory when it speaks again: it fell silent, or this shard has more jobs than
        before."""
        self._expected.pop(cluster, None)

    async def answer(self, envelope: Envelope, message: Message) -> None:
        """Note a cluster's message, and ask for its inventory where none has come and none was asked for. It counts as
        asked for once the broker has the request."""
        cluster, speaker = envelope.cluster, (envelope.cluster_uid, envelope.epoch)
        match message:
            case Hello() | Inventory():
                self._expected[cluster] = speaker
            case Applied(job=job) | Refused(job=job) | Status(job=job):
                reported_at = self._reported_at.setdefault(envelope.agent, {})
                reported_at[job] = stamp_of(envelope)
                if len(reported_at) > _MOST_REPORTED:
                    del reported_at[next(iter(reported_at))]
            case Heartbeat() if self._expected.get(cluster) != speaker:
                await self._executor.run([_no_inventory(cluster)], caused_by=envelope)
                self._expected[cluster] = speaker

    async def ask_connected(self) -> None:
        """Ask every connected cluster whose inventory has not come and was not asked for."""
        for worker_cluster in self._store.quotas.worker_clusters:
            cluster = ClusterName(worker_cluster.name)
            if cluster in self._expected or not (worker_cluster.accepted and worker_cluster.connected):
                continue
            try:
                await self._executor.run([_no_inventory(cluster)])
            except (PermanentError, TransientError) as error:
                _log.info("inventory.unasked", cluster=cluster, error=str(error))
            else:
                self._expected.setdefault(cluster, _UNHEARD)

    async def take(self, envelope: Envelope, page: Inventory) -> None:
        """Take in one page. When it completes the inventory, return after every correction is made or queued. Raises
        ProtocolError for an inventory that is too large."""
        agent = envelope.agent
        assembly = self._assemblies.setdefault(agent, Assembly())
        if agent in self._expiries:
            self._expiries.pop(agent).cancel()
        listed = assembly.add(envelope, page)
        if listed is None:
            if assembly.is_half:
                self._expiries[agent] = asyncio.get_running_loop().call_later(_HALF_S, assembly.finish)
            return
        for _ in listed.read():
            await asyncio.sleep(0)
        await self._compare(listed)
        assembly.finish()

    async def delete_strays(self, ref: JobRef) -> None:
        """Delete a job on the clusters that should not have it, as far as the guard allows."""
        for cluster, version in self._guard.strays(ref):
            stored_uid = None
            if self._decide(catalog.whereabouts, job=ref, cluster=cluster) is Whereabouts.UNKNOWN:
                stored_uid = await self._stored_uid(ref)
            commands = self._decide(
                catalog.delete_stray, job=ref, cluster=cluster, version=version, stored_uid=stored_uid
            )
            _log.info("stray.deleted" if commands else "stray.kept", cluster=cluster, job=ref.key)
            await self._executor.run(commands)
            self._guard.settle(cluster, ref, ordered=bool(commands))
            if self._guard.wants_inventory(cluster):
                self.forget(cluster)

    async def _compare(self, listed: Listed) -> None:
        cluster, items = listed.cluster, dict(listed.items)
        differences: Tally[str] = Tally()
        statuses: list[JobRef] = []
        requests: list[JobRef] = []
        async for ref in _with_pauses(dict.fromkeys(self._store.refs())):
            if self._store.view(ref).cluster != cluster:
                continue
            item = items.pop(ref, None)
            try:
                difference = await self._compare_job(listed, ref, item, statuses, requests)
            except DecisionError as error:
                _log.error("difference.undecided", job=ref.key, error=str(error), exc_info=error)
                continue
            if difference is not None:
                differences[difference] += 1
        differences["stray"], differences["request"] = await self._note_strays(listed, items), len(requests)
        await self._ask(cluster, "StatusDiffers", statuses)
        await self._ask(cluster, "RequestUnknown", requests)
        self._report(listed, differences)

    async def _note_strays(self, listed: Listed, items: dict[JobRef, InventoryItem]) -> int:
        """Note which of these jobs should not be there, up to `_MOST_STRAYS`, and return how many. The others come with
        the next inventory."""
        cluster = listed.cluster
        own = {ref: items[ref] async for ref in _with_pauses(items) if self._store.has(ref)}
        found, unseen = dict[JobRef, int](), list[JobRef]()
        async for ref in _with_pauses(self._guard.in_turn(cluster, own)):
            if len(found) == _MOST_STRAYS:
                unseen.append(ref)
            elif self._is_stray(listed, ref):
                found[ref] = own[ref].spec_version
        left = self._guard.set_strays(cluster, found, unseen=unseen)
        manifest = self._store.clusters.get(None, cluster)
        if left and manifest is not None:
            await self._executor.run(worker_cluster_status.many_strays(manifest, most=_MOST_STRAYS))
        return len(found)

    async def _compare_job(
        self,
        listed: Listed,
        ref: JobRef,
        item: InventoryItem | None,
        statuses: list[JobRef],
        requests: list[JobRef],
    ) -> Difference | None:
        """Correct what differs of one job, and note whether its status or its request is to be asked for."""
        if self._lacks_request(listed, ref):
            requests.append(ref)
        async with self._locks.of(ref):
            difference = await self._correct(listed, ref, item)
        if difference is None:
            differs = not self._has_status_since(listed, ref) and self._status_differs(ref, item)
        else:
            is_other = difference in _NOT_ABOUT_STATUS and self._status_differs(ref, item)
            differs = difference is Difference.STATUS or is_other
        if differs:
            statuses.append(ref)
        return difference

    async def _ask(self, cluster: ClusterName, reason: str, jobs: list[JobRef]) -> None:
        for start in range(0, len(jobs), _ASKED_AT_ONCE):
            request = Resync(reason=reason, jobs=jobs[start : start + _ASKED_AT_ONCE])
            await self._executor.run([Publish(cluster=cluster, message=request)])

    async def _correct(self, listed: Listed, ref: JobRef, item: InventoryItem | None) -> Difference | None:
        """Write what corrects a difference of the worker's item, and return the difference; None where the job was
        reported on since.

        A conflict may be this manager's own write that got no answer, so it is compared again: the next inventory comes
        minutes later.
        """
        origin = {"speaker": listed.speaker, "published_at": listed.since}
        waits = {"waits": True} if ref.uid in listed.unanswered else {}
        difference = None
        for _ in range(_TRIES):
            if self._has_reported_since(listed, ref):
                return None
            difference = self._decide(catalog.compare, job=ref, item=item, **waits)
            try:
                match difference:
                    case Difference.AGAIN:
                        await self._write(catalog.publish_again, job=ref, item=item, **origin)
                    case Difference.HELD:
                        await self._write(catalog.take_as_applied, job=ref, version=item.spec_version if item else 0)
                    case Difference.RENEW:
                        await self._write(catalog.renew, job=ref, item=item, **origin)
                    case Difference.WITHDRAWN:
                        await self._write(catalog.forget_withdrawn, job=ref, **origin)
                    case Difference.NONE | Difference.STATUS:
                        pass  # Nothing to write; `_compare` asks for the status.
            except ConflictError as error:
                _log.info("difference.conflicted", job=ref.key, error=str(error))
            except PermanentError as error:
                _log.warning("difference.refused", job=ref.key, error=str(error))
                self._ask_later(listed.cluster)
                break
            else:
                break
        return difference

    def _ask_later(self, cluster: ClusterName) -> None:
        """Ask a cluster for another inventory in a while: a write that corrects a difference was refused."""
        self._refused.start(cluster, _REFUSED_S)

    async def _write(self, decision: Callable[..., list[Command]], *, job: JobRef, **arguments: Any) -> None:
        await self._executor.run(self._decide(decision, job=job, **arguments))

    def _has_reported_since(self, listed: Listed, ref: JobRef) -> bool:
        reported_at = self._reported_at.get(listed.agent, {}).get(ref)
        return reported_at is not None and reported_at > listed.since

    def _status_differs(self, ref: JobRef, item: InventoryItem | None) -> bool:
        return item is not None and self._decide(catalog.status_differs, job=ref, item=item)

    def _lacks_request(self, listed: Listed, ref: JobRef) -> bool:
        request, speaker, published_at = listed.unanswered.get(ref.uid), listed.speaker, listed.since
        if request is None:
            return False
        return self._decide(catalog.lacks_request, job=ref, request=request, speaker=speaker, published_at=published_at)

    def _has_status_since(self, listed: Listed, ref: JobRef) -> bool:
        return self._store.last_status.get((listed.agent, ref.uid), listed.since) > listed.since

    def _is_stray(self, listed: Listed, ref: JobRef) -> bool:
        reported_since = self._has_reported_since(listed, ref)
        return self._decide(catalog.is_stray, job=ref, cluster=listed.cluster, reported_since=reported_since)

    async def _stored_uid(self, ref: JobRef) -> str | None:
        """The UID under a job's name on the API server; None where there is none. Raises UnavailableError where its
        kind is not served."""
        try:
            job = await self._client.get(JOB_RESOURCES[ref.kind], ref.name, ref.namespace)
        except NotServedError as error:
            await self._informers.confirm(JOB_RESOURCES[ref.kind])
            raise UnavailableError(f"{JOB_RESOURCES[ref.kind].plural} are not served now: {error}") from error
        except NotFoundError:
            await self._informers.confirm(JOB_RESOURCES[ref.kind])
            return None
        uid: str = job["metadata"]["uid"]
        return uid

    def _report(self, listed: Listed, differences: Tally[str]) -> None:
        cluster, reported_at = listed.cluster, self._reported_at.get(listed.agent, {})
        self._reported_at[listed.agent] = {ref: at for ref, at in reported_at.items() if at > listed.since}
        same = differences.pop(Difference.NONE, 0)
        for name, count in differences.items():
            self._differences.labels(cluster, name).inc(count)
        differing = {name: count for name, count in differences.items() if count}
        _log.info("inventory.compared", cluster=cluster, same=same, **differing)


def _no_inventory(cluster: ClusterName) -> Publish:
    return Publish(cluster=cluster, message=Resync(reason="NoInventory"))


async def _with_pauses(jobs: Iterable[JobRef]) -> AsyncIterator[JobRef]:
    """Each of the jobs. Other tasks run in between."""
    for number, job in enumerate(jobs):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        yield job
