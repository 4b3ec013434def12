"""Elects a leader by a Lease, with an epoch that only grows.

A candidate tells whether the holder is alive by how long it has seen the same renewal, never by comparing clocks (as
client-go does). The epoch is the Lease's `leaseTransitions`. Each acquisition raises it, also one by the same process
after a restart, so that messages of an earlier holder can be recognized and refused. It is at least the time of the
acquisition: a Lease that was deleted, restored or created in another cluster goes on above the epochs of the one before
(docs/decisions/0012).

A holder may lose the Lease without noticing: it hangs, or its machine stands still. `check` raises before every write.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from slicebus.ambient.clock import now
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import LEASES
from slicebus.kube.times import micro_time_text
from slicebus.proto.epochs import epoch_at
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotServedError,
    PermanentError,
    SlicebusError,
    TransientError,
)

_log = structlog.get_logger()
Manifest = dict[str, Any]
_RETRY_S = 0.2
_OF_A_MOMENT = (TransientError, ForbiddenError, InvalidError, NotServedError)
"""The answers to a holder that say nothing of the Lease: a right, a policy, a webhook or the path is away."""


class LeaseLost(SlicebusError):
    """Somebody else holds the Lease, or it could not be renewed in time."""


class LeaseDeleted(LeaseLost):
    """Somebody has deleted the Lease."""


class LeaderElection:
    """Stands for one candidate for one Lease."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float,
        renew_s: float,
        notes: Callable[[], Mapping[str, str | None]] = dict,
    ) -> None:
        """`notes` returns the annotations to write with each renewal."""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._renew_s = renew_s
        # One renewal before others may acquire it, whatever this process or the server does meanwhile.
        self._limit_s = duration_s - renew_s
        self._lease: Manifest | None = None
        self._notes = notes
        self._renewed_at = -math.inf
        self._answered_at = -math.inf
        self._seen = ""
        self._expires_at = math.inf
        self.problem = ""
        """Why the last attempt or renewal failed, for people; empty where it did not."""

    @property
    def silent_s(self) -> float:
        """Seconds since the server last answered; infinite before the first answer."""
        return asyncio.get_running_loop().time() - self._answered_at

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of the Lease when it was last written."""
        return (self._lease or {}).get("metadata", {}).get("annotations") or {}

    async def acquire(self) -> int:
        """Wait until the Lease is held; return its epoch."""
        return (await acquire_first([self]))[1]

    async def attempt(self) -> int | None:
        """Acquire the Lease if it is free now; return its epoch, or None where it is not."""
        sent_at = asyncio.get_running_loop().time()
        try:
            lease = await self._try()
        except (TransientError, ConflictError, PermanentError) as error:
            self.problem = str(error)
            _log.warning("lease.retry", lease=self._name, error=str(error))
            return None
        self.problem = ""
        if lease is None:
            return None
        self._lease, self._renewed_at = lease, sent_at
        epoch = int(lease["spec"]["leaseTransitions"])
        _log.info("lease.acquired", lease=self._name, identity=self._identity, epoch=epoch)
        return epoch

    def pause_s(self) -> float:
        """Seconds until the next attempt, at the latest when the Lease expires: a takeover takes no longer."""
        return min(self._renew_s, max(self._expires_at - asyncio.get_running_loop().time(), _RETRY_S))

    def note_waiting(self) -> None:
        """Log that this candidate waits."""
        _log.info("lease.waiting", lease=self._name, identity=self._identity)

    def check(self) -> None:
        """Raise LeaseLost where somebody else may hold the Lease by now."""
        if asyncio.get_running_loop().time() >= self._renewed_at + self._limit_s:
            raise LeaseLost(f"lease {self._name}: not renewed for {self._limit_s:.0f} s")

    async def hold(self) -> None:
        """Renew the Lease until it is lost, then raise LeaseLost, or LeaseDeleted. Cancelling releases it."""
        try:
            while True:
                async with asyncio.timeout_at(self._renewed_at + self._limit_s):
                    self._renewed_at = await self._renewed()
        except TimeoutError as error:
            raise LeaseLost(f"lease {self._name}: not renewed for {self._limit_s:.0f} s") from error
        except ConflictError as error:
            raise LeaseLost(f"lease {self._name}: {error}") from error
        except NotFoundError as error:
            raise LeaseDeleted(f"lease {self._name}: {error}") from error
        except asyncio.CancelledError:
            with suppress(SlicebusError):
                await self._release()
            raise

    async def make_anew(self) -> None:
        """Make the Lease that somebody has deleted, while nobody else has it. Raises LeaseLost where another holder was
        quicker, or where it cannot be made in time."""
        try:
            async with asyncio.timeout_at(self._renewed_at + self._limit_s):
                while True:
                    sent_at = asyncio.get_running_loop().time()
                    try:
                        self._lease = await self._made()
                        self._renewed_at = sent_at
                        return
                    except (*_OF_A_MOMENT, NotFoundError) as error:
                        _log.warning("lease.renewal.failed", lease=self._name, error=str(error))
                        await asyncio.sleep(_RETRY_S)
        except TimeoutError as error:
            raise LeaseLost(f"lease {self._name}: not made anew for {self._limit_s:.0f} s") from error

    async def _made(self) -> Manifest:
        try:
            return await self._create()
        except AlreadyExistsError:  # It may be our own, whose answer was lost.
            lease = await self._client.get(LEASES, self._name, self._namespace)
        holder = lease["spec"].get("holderIdentity")
        if holder != self._identity:
            raise LeaseLost(f"lease {self._name}: {holder!r} has taken it")
        return lease

    async def _try(self) -> Manifest | None:
        """Attempt once to acquire: return the Lease where it is ours now, else None."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
            self._answered_at = asyncio.get_running_loop().time()
        except NotFoundError:
            with suppress(AlreadyExistsError):
                return await self._create()
            return None
        spec = lease["spec"]
        if spec.get("holderIdentity") not in ("", None, self._identity) and not self._expired(lease):
            return None
        self._lease = lease
        taken = {"leaseTransitions": _epoch_after(spec.get("leaseTransitions", 0)), "acquireTime": _now()}
        return await self._write(taken | {"holderIdentity": self._identity})

    def _expired(self, lease: Manifest) -> bool:
        version, now = lease["metadata"]["resourceVersion"], asyncio.get_running_loop().time()
        if version != self._seen:
            self._seen = version
            self._expires_at = now + lease["spec"].get("leaseDurationSeconds", self._duration_s)
        return bool(now > self._expires_at)

    async def _create(self) -> Manifest:
        manifest = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": math.ceil(self._duration_s),
                "acquireTime": _now(),
                "renewTime": _now(),
                "leaseTransitions": _epoch_after(0),
            },
        }
        created = await self._client.create(LEASES, manifest)
        self._answered_at = asyncio.get_running_loop().time()
        return created

    async def _renewed(self) -> float:
        """Renew when due, and retry until the server answers; return when the request was sent."""
        while True:
            await asyncio.sleep(self._renew_s)
            sent_at = asyncio.get_running_loop().time()
            try:
                self._lease = await self._write({})
                self.problem = ""
                return sent_at
            except _OF_A_MOMENT as error:
                self.problem = str(error)
                _log.warning("lease.renewal.failed", lease=self._name, error=str(error))
            except ConflictError:
                await self._reread()

    async def _release(self) -> None:
        """Give the Lease back, also where the server has taken the renewal that the cancellation cut off."""
        released = {"holderIdentity": ""}
        try:
            await self._write(released)
        except ConflictError:
            await self._reread()
            await self._write(released)

    async def _reread(self) -> None:
        """Read the Lease again after a conflict: an unanswered renewal may have taken effect.

        Raises ConflictError for another holder, and where the cluster was restored from a backup: this process knows
        later states then, and its watches would wait for those.
        """
        assert self._lease is not None
        with suppress(*_OF_A_MOMENT):
            lease = await self._client.get(LEASES, self._name, self._namespace)
            if _version(lease) < _version(self._lease):
                raise ConflictError("it is older than before: the cluster was restored")
            for field in ("holderIdentity", "leaseTransitions"):
                if lease["spec"].get(field) != self._lease["spec"].get(field):
                    raise ConflictError(f"{lease['spec'].get('holderIdentity')!r} has taken it")
            self._lease = lease

    async def _write(self, spec: Manifest) -> Manifest:
        assert self._lease is not None
        body = {
            "metadata": {
                "resourceVersion": self._lease["metadata"]["resourceVersion"],
                "annotations": dict(self._notes()),
            },
            "spec": {"renewTime": _now(), "leaseDurationSeconds": math.ceil(self._duration_s)} | spec,
        }
        written = await self._client.patch(LEASES, self._name, self._namespace, MergePatch(body))
        self._answered_at = asyncio.get_running_loop().time()
        return written


async def acquire_first(candidates: Sequence[LeaderElection]) -> tuple[LeaderElection, int]:
    """Wait until one of these Leases is held; return that one with its epoch."""
    waiting = False
    while True:
        for candidate in candidates:
            if (epoch := await candidate.attempt()) is not None:
                return candidate, epoch
        if not waiting:
            waiting = True
            for candidate in candidates:
                candidate.note_waiting()
        await asyncio.sleep(min(candidate.pause_s() for candidate in candidates))


def _epoch_after(last: int) -> int:
    """The next epoch. The clock is only a floor: within one Lease epochs grow whatever it shows."""
    return max(last + 1, epoch_at(now()))


def _version(lease: Manifest) -> int:
    return int(lease["metadata"]["resourceVersion"])


def _now() -> str:
    return micro_time_text(now())
