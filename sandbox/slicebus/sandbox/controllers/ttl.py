"""The TTL controller's stand-in: deletes ended Jobs after `ttlSecondsAfterFinished`.

As the original does, it deletes in the foreground, whoever manages the Job. Source: Kubernetes,
`pkg/controller/ttlafterfinished`.
"""

from contextlib import suppress
from datetime import datetime
from typing import Any

from slicebus.ambient.clock import now
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import JOBS
from slicebus.proto.errors import ConflictError, NotFoundError
from slicebus.sandbox.controllers.controller import Controller

Manifest = dict[str, Any]

_ENDS = ("Complete", "Failed")


class TtlController:
    """Deletes Jobs whose TTL after their end has passed."""

    def __init__(self, client: KubeClient) -> None:
        self._controller = Controller(client, JOBS)

    async def run(self) -> None:
        """Delete Jobs until cancelled."""
        await self._controller.run(self._reconcile)

    async def _reconcile(self, job: Manifest) -> None:
        metadata, left_s = job["metadata"], _left_s(job)
        if left_s is None or "deletionTimestamp" in metadata:
            return
        if left_s > 0:
            self._controller.queue.add_after((metadata["namespace"], metadata["name"]), left_s)
            return
        client = self._controller.client
        with suppress(NotFoundError, ConflictError):
            # The TTL may have been changed since.
            fresh = await client.get(JOBS, metadata["name"], metadata["namespace"])
            if (left_s := _left_s(fresh)) is not None and left_s <= 0:
                uid = metadata["uid"]
                await client.delete(JOBS, metadata["name"], metadata["namespace"], uid=uid, propagation="Foreground")


def _left_s(job: Manifest) -> float | None:
    """Seconds until a Job is to be deleted; None where it has not ended or has no TTL."""
    ttl_s = job["spec"].get("ttlSecondsAfterFinished")
    conditions = job.get("status", {}).get("conditions") or ()
    ended = next((entry for entry in conditions if entry["type"] in _ENDS and entry["status"] == "True"), None)
    if ttl_s is None or ended is None:
        return None
    since_s = (now() - datetime.fromisoformat(ended["lastTransitionTime"])).total_seconds()
    return float(ttl_s - since_s)
