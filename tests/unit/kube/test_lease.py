"""Leader election: who holds the Lease, with which epoch, and when a holder must stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from slicebus.ambient.clock import ambient
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.lease import LeaderElection, LeaseDeleted, LeaseLost
from slicebus.kube.resources import LEASES, Resource
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotServedError,
    SlicebusError,
    UnauthorizedError,
    UnavailableError,
)
from slicebus.sandbox.apiserver.patches import merge_patch
from support.waiting import PATIENCE_S
from unit.kube.loop_time import START_S, LoopTime
from unit.kube.servers import SYSTEM

Manifest = dict[str, Any]
DURATION_S, RENEW_S = 15.0, 3.0
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
YEAR_2026 = datetime(2026, 1, 1, tzinfo=UTC)


class LeaseServer:
    """One Lease in memory. What `hangs` is set for is never answered; what `fails` has is raised."""

    def __init__(self) -> None:
        self.lease: Manifest | None = None
        self.fails: dict[str, SlicebusError] = {}
        self.hangs = False
        self._version = 0

    async def get(self, resource: Resource, name: str, namespace: str) -> Manifest:
        await self._answer("get")
        if self.lease is None:
            raise NotFoundError("404")
        return self.lease

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        await self._answer("create")
        if self.lease is not None:
            raise AlreadyExistsError("409")
        return self._store(manifest)

    async def patch(self, resource: Resource, name: str, namespace: str, patch: MergePatch) -> Manifest:
        await self._answer("patch")
        if self.lease is None:
            raise NotFoundError("404")
        if patch.body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError("409")
        return self._store(merge_patch(self.lease, patch.body))

    @property
    def spec(self) -> Manifest:
        assert self.lease is not None
        return self.lease["spec"]

    def _store(self, manifest: Manifest) -> Manifest:
        self._version += 1
        self.lease = manifest | {"metadata": manifest["metadata"] | {"resourceVersion": str(self._version)}}
        return self.lease

    def touch(self) -> None:
        """A renewal of the holder's, whose answer it never saw."""
        assert self.lease is not None
        self._store(self.lease)

    def take(self, identity: str) -> None:
        """Give the Lease to another holder."""
        assert self.lease is not None
        self._store(merge_patch(self.lease, {"spec": {"holderIdentity": identity}}))

    def restore(self, backup: Manifest) -> None:
        """Go back to an older state of the Lease."""
        self.lease, self._version = backup, int(backup["metadata"]["resourceVersion"])

    async def _answer(self, verb: str) -> None:
        await asyncio.sleep(0)
        if self.hangs:
            await asyncio.sleep(3600)
        if verb in self.fails:
            raise self.fails[verb]


def candidate(server: Any, identity: str) -> LeaderElection:
    return LeaderElection(
        server, namespace=SYSTEM, name="slicebus", identity=identity, duration_s=DURATION_S, renew_s=RENEW_S
    )


@asynccontextmanager
async def holding(election: LeaderElection) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(election.hold())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time() - START_S


async def test_the_first_holder_creates_the_lease(jumping: LoopTime) -> None:
    server = LeaseServer()
    await candidate(server, "a").acquire()
    assert server.spec["holderIdentity"] == "a"
    assert server.spec["leaseDurationSeconds"] == 15
    assert now() == 0


async def test_a_released_lease_is_acquired_at_once(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    async with holding(first):
        await asyncio.sleep(10)
    assert server.spec["holderIdentity"] == ""
    await candidate(server, "b").acquire()
    assert now() == pytest.approx(10)


async def test_a_lease_that_is_no_longer_renewed_is_acquired_after_its_duration(jumping: LoopTime) -> None:
    server = LeaseServer()
    await candidate(server, "a").acquire()
    await candidate(server, "b").acquire()
    assert DURATION_S < now() <= DURATION_S + 1


async def test_a_renewed_lease_is_not_acquired_whatever_the_holders_clock_shows(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    async with holding(first):
        waiting = asyncio.create_task(candidate(server, "b").acquire())
        for _ in range(100):
            server.spec["renewTime"] = "2000-01-01T00:00:00.000000Z"
            await asyncio.sleep(3)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_the_epoch_grows_with_every_holder_and_every_restart_whatever_the_clock_says(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = await candidate(server, "a").acquire()
    with ambient(clock=lambda: LONG_AGO, random=Random(1)):
        epochs = [await candidate(server, identity).acquire() for identity in ("a", "b", "a", "a")]
    assert epochs == [first + number for number in (1, 2, 3, 4)]


async def test_a_lease_that_is_made_anew_goes_on_above_the_one_before_it(jumping: LoopTime) -> None:
    server, time = LeaseServer(), YEAR_2026
    with ambient(clock=lambda: time, random=Random(1)):
        epochs = [await candidate(server, "a").acquire() for _ in range(3)]
        restored = server.lease
        time += timedelta(minutes=1)
        server.lease = None
        epochs += [await candidate(server, "a").acquire() for _ in range(2)]
        time += timedelta(minutes=1)
        server.lease = restored
        epochs.append(await candidate(server, "a").acquire())
    assert epochs == [1, 2, 3, 60, 61, 120]


async def test_two_candidates_at_once_get_different_epochs(jumping: LoopTime) -> None:
    server = LeaseServer()
    epochs = await asyncio.gather(candidate(server, "a").acquire(), candidate(server, "b").acquire())
    assert len(set(epochs)) == 2


async def test_a_holder_that_lost_the_lease_stops_at_its_next_renewal(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    server.spec["holderIdentity"] = ""
    await candidate(server, "b").acquire()
    async with holding(first) as task:
        with pytest.raises(LeaseLost, match="has taken it"):
            await task
    assert server.spec["holderIdentity"] == "b"


async def test_a_holder_that_stood_still_for_too_long_notices_before_it_writes(loop_time: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    with pytest.raises(LeaseLost):
        first.check()
    await first.acquire()
    first.check()
    loop_time.now += DURATION_S - RENEW_S - 0.1
    first.check()
    loop_time.now += 0.1
    with pytest.raises(LeaseLost):
        first.check()


async def test_the_time_between_acquiring_and_holding_counts(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    await asyncio.sleep(DURATION_S)
    with pytest.raises(LeaseLost):
        await first.hold()


async def test_a_holder_whose_cluster_is_restored_from_a_backup_stops(jumping: LoopTime) -> None:
    """The Lease is its own in the backup too; what else it knows is of a time that is no more."""
    server = LeaseServer()
    election = candidate(server, "a")
    epoch = await election.acquire()
    async with holding(election) as held:
        await asyncio.sleep(4 * RENEW_S)
        assert server.lease is not None
        backup = server.lease
        await asyncio.sleep(4 * RENEW_S)
        server.restore(backup)
        with pytest.raises(LeaseLost, match="restored"):
            await held
    assert await candidate(server, "a").acquire() > epoch


async def test_a_renewal_whose_answer_was_lost_is_no_loss(jumping: LoopTime) -> None:
    server = LeaseServer()
    holder = candidate(server, "a")
    await holder.acquire()
    async with holding(holder) as task:
        for _ in range(3):
            server.touch()
            await asyncio.sleep(DURATION_S)
            assert not task.done()


async def test_a_holder_that_ends_in_the_middle_of_a_renewal_releases_the_lease(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    async with holding(first):
        await asyncio.sleep(RENEW_S / 2)
        server.touch()
    assert server.spec["holderIdentity"] == ""


async def test_a_holder_that_ends_releases_no_lease_of_another(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    async with holding(first):
        await asyncio.sleep(RENEW_S / 2)
        server.take("b")
    assert server.spec["holderIdentity"] == "b"


@pytest.mark.parametrize("hangs", [False, True], ids=["the server fails", "the server does not answer"])
async def test_a_holder_that_cannot_renew_stops_before_another_may_take_it(jumping: LoopTime, hangs: bool) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    server.hangs = hangs
    server.fails = {"patch": UnavailableError("503")}
    async with holding(first) as task:
        with pytest.raises(LeaseLost):
            await task
    assert now() <= DURATION_S - RENEW_S


async def test_a_short_outage_does_not_lose_the_lease(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    async with holding(first) as task:
        server.fails = {"patch": UnavailableError("503")}
        await asyncio.sleep(2 * RENEW_S + 1)
        server.fails = {}
        await asyncio.sleep(60)
        assert not task.done()


async def test_a_lease_that_somebody_deleted_is_lost(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    server.lease = None
    async with holding(first) as task:
        with pytest.raises(LeaseLost, match="404"):
            await task


async def test_whoever_had_it_may_make_it_anew(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    epoch = await first.acquire()
    server.lease = None
    with pytest.raises(LeaseDeleted):
        await first.hold()
    server.fails = {"create": ForbiddenError("403")}
    making = asyncio.create_task(first.make_anew())
    await asyncio.sleep(1)
    server.fails = {}
    await making
    assert (server.spec["holderIdentity"], server.spec["leaseTransitions"] >= epoch) == ("a", True)
    async with holding(first) as task:
        await asyncio.sleep(60)
        assert not task.done()


@pytest.mark.parametrize("holder", ["a", "b"])
async def test_unless_another_was_quicker(jumping: LoopTime, holder: str) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    server.take(holder)
    if holder == "a":  # It was made, and the answer was lost.
        await first.make_anew()
        first.check()
    else:
        with pytest.raises(LeaseLost, match="'b' has taken it"):
            await first.make_anew()


async def test_nor_after_it_may_have_been_anothers(jumping: LoopTime) -> None:
    server = LeaseServer()
    first = candidate(server, "a")
    await first.acquire()
    server.lease, server.fails = None, {"create": ForbiddenError("403")}
    with pytest.raises(LeaseLost, match="not made anew for 12 s"):
        await first.make_anew()
    assert now() == pytest.approx(DURATION_S - RENEW_S, abs=1)


ACQUIRED_LATER = {"get": UnavailableError("503"), "create": UnavailableError("503"), "patch": ConflictError("409")}


@pytest.mark.parametrize("verb", ACQUIRED_LATER)
async def test_acquiring_outlasts_an_outage(jumping: LoopTime, verb: str) -> None:
    server = LeaseServer()
    if verb == "patch":
        await candidate(server, "a").acquire()
    server.fails = {verb: ACQUIRED_LATER[verb]}
    waiting = asyncio.create_task(candidate(server, "a").acquire())
    await asyncio.sleep(60)
    assert not waiting.done()
    server.fails = {}
    assert await waiting >= 1


@pytest.mark.parametrize("error", [ForbiddenError("403"), UnauthorizedError("401")], ids=repr)
async def test_acquiring_waits_for_permission_and_says_so(jumping: LoopTime, error: SlicebusError) -> None:
    server, waiting = LeaseServer(), None
    server.fails = {"get": error}
    waiting = candidate(server, "a")
    acquiring = asyncio.create_task(waiting.acquire())
    await asyncio.sleep(60)
    assert (acquiring.done(), waiting.problem) == (False, str(error))
    server.fails = {}
    assert await acquiring >= 1
    assert not waiting.problem


OF_A_MOMENT = [ForbiddenError("403"), UnauthorizedError("401"), InvalidError("422: a policy"), NotServedError("404")]


@pytest.mark.parametrize("error", OF_A_MOMENT, ids=repr)
async def test_a_renewal_that_is_refused_for_a_moment_keeps_the_lease(jumping: LoopTime, error: SlicebusError) -> None:
    server = LeaseServer()
    holder = candidate(server, "a")
    await holder.acquire()
    holding = asyncio.create_task(holder.hold())
    server.fails = {"patch": error}
    await asyncio.sleep(5)
    server.fails = {}
    await asyncio.sleep(60)
    holder.check()
    server.fails = {"patch": error}
    with pytest.raises(LeaseLost):
        await holding


@pytest.mark.parametrize("error", OF_A_MOMENT, ids=repr)
async def test_a_lease_that_cannot_be_read_after_a_conflict_is_kept(jumping: LoopTime, error: SlicebusError) -> None:
    server = LeaseServer()
    holder = candidate(server, "a")
    await holder.acquire()
    async with holding(holder) as task:
        server.touch()
        server.fails = {"get": error}
        await asyncio.sleep(5)
        server.fails = {}
        await asyncio.sleep(60)
        assert not task.done()
        holder.check()


async def test_on_an_api_server(api: KubeClient) -> None:
    first = LeaderElection(api, namespace=SYSTEM, name="slicebus", identity="a", duration_s=1.0, renew_s=0.01)
    epoch = await first.acquire()
    taken = candidate(api, "a")
    assert await taken.acquire() == epoch + 1
    lease = await api.get(LEASES, "slicebus", SYSTEM)
    assert lease["spec"]["leaseTransitions"] == epoch + 1
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(first.hold(), PATIENCE_S)
