"""Leader election by a Lease, with an epoch that only grows.

Whether another holder is alive is judged by how long its last renewal has been seen unchanged here, never by comparing
its clock with ours (as client-go does). The epoch is the Lease's `leaseTransitions`: each acquisition raises it, one by
the same process after a restart too, so that whatever an earlier holder still sends can be told and refused.
"""

import asyncio
import math
from contextlib import suppress
from typing import Any

import structlog

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.clock import now
from slicebus.kube.resources import LEASES
from slicebus.kube.times import micro_time_text
from slicebus.proto.errors import AlreadyExistsError, ConflictError, NotFoundError, SlicebusError, TransientError

_log = structlog.get_logger()
Manifest = dict[str, Any]


class LeaseLost(SlicebusError):
    """Somebody else holds the Lease, or it could not be renewed in time."""


class LeaderElection:
    """One candidate for one Lease."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        duration_s: float = 15.0,
        renew_s: float = 3.0,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration_s = duration_s
        self._renew_s = renew_s
        self._lease: Manifest | None = None
        self._seen: tuple[str, float] = ("", 0.0)

    async def acquire(self) -> int:
        """Wait until the Lease is held; return its epoch."""
        waiting = False
        while True:
            try:
                lease = await self._try()
            except (TransientError, ConflictError) as error:
                _log.warning("lease.retry", lease=self._name, error=str(error))
                lease = None
            if lease is not None:
                self._lease = lease
                epoch = int(lease["spec"]["leaseTransitions"])
                _log.info("lease.acquired", lease=self._name, identity=self._identity, epoch=epoch)
                return epoch
            if not waiting:
                waiting = True
                _log.info("lease.waiting", lease=self._name, identity=self._identity)
            await asyncio.sleep(self._renew_s)

    async def hold(self) -> None:
        """Renew the Lease until it is lost: then raise LeaseLost. Cancelling gives it back."""
        renewed_at = asyncio.get_running_loop().time()
        # One renewal before others may take it, whatever this process or the server is doing meanwhile.
        limit_s = self._duration_s - self._renew_s
        try:
            while True:
                async with asyncio.timeout_at(renewed_at + limit_s):
                    renewed_at = await self._renewed()
        except TimeoutError as error:
            raise LeaseLost(f"lease {self._name}: not renewed for {limit_s:.0f} s") from error
        except (ConflictError, NotFoundError) as error:
            raise LeaseLost(f"lease {self._name}: {error}") from error
        except asyncio.CancelledError:
            with suppress(SlicebusError):
                await self._write({"holderIdentity": ""})
            raise

    async def _try(self) -> Manifest | None:
        """One attempt: the Lease when it is ours now."""
        try:
            lease = await self._client.get(LEASES, self._name, self._namespace)
        except NotFoundError:
            with suppress(AlreadyExistsError):
                return await self._create()
            return None
        spec = lease["spec"]
        if spec.get("holderIdentity") not in ("", None, self._identity) and not self._expired(lease):
            return None
        self._lease = lease
        taken = {"leaseTransitions": spec.get("leaseTransitions", 0) + 1, "acquireTime": _now()}
        return await self._write(taken | {"holderIdentity": self._identity})

    def _expired(self, lease: Manifest) -> bool:
        version, now = lease["metadata"]["resourceVersion"], asyncio.get_running_loop().time()
        if version != self._seen[0]:
            self._seen = (version, now)
        duration_s = lease["spec"].get("leaseDurationSeconds", self._duration_s)
        return bool(now - self._seen[1] > duration_s)

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
                "leaseTransitions": 1,
            },
        }
        return await self._client.create(LEASES, manifest)

    async def _renewed(self) -> float:
        """Renew it when that is due, and again until the server has answered; when the request was sent."""
        while True:
            await asyncio.sleep(self._renew_s)
            asked_at = asyncio.get_running_loop().time()
            try:
                self._lease = await self._write({})
                return asked_at
            except TransientError as error:
                _log.warning("lease.renewal.failed", lease=self._name, error=str(error))
            except ConflictError:
                await self._look_again()

    async def _look_again(self) -> None:
        """After a conflict: a renewal without an answer may have been made. Raises ConflictError for another holder."""
        assert self._lease is not None
        with suppress(TransientError):
            found = await self._client.get(LEASES, self._name, self._namespace)
            for field in ("holderIdentity", "leaseTransitions"):
                if found["spec"].get(field) != self._lease["spec"].get(field):
                    raise ConflictError(f"{found['spec'].get('holderIdentity')!r} has taken it")
            self._lease = found

    async def _write(self, spec: Manifest) -> Manifest:
        assert self._lease is not None
        body = {
            "metadata": {"resourceVersion": self._lease["metadata"]["resourceVersion"]},
            "spec": {"renewTime": _now(), "leaseDurationSeconds": math.ceil(self._duration_s)} | spec,
        }
        return await self._client.patch(LEASES, self._name, self._namespace, MergePatch(body))


def _now() -> str:
    return micro_time_text(now())
