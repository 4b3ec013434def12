"""Whether pods may start: a manager that does not hear of a cluster may give its jobs to another one.

With a fence an agent lets pods start only until so long after it said the last heartbeat that the manager has heard.
Times are the process' own, so no clocks are compared. That there is a fence is written down before the manager is told
that it is kept: an agent that starts anew keeps it, and waits until it was heard.
"""

import asyncio
import math

import structlog

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import AlreadyExistsError, NotFoundError
from slicebus.proto.messages import Heard

_log = structlog.get_logger()

NAME = "slicebus-fence"
_KEY = "fenceSeconds"
_UNREADABLE_S = 1.0


class Fence:
    """The fence of one cluster, as this process knows it. Without one, pods may start at any time."""

    def __init__(self, client: KubeClient, namespace: str, *, epoch: int) -> None:
        self._client = client
        self._namespace = namespace
        self._epoch = epoch
        self.seconds = 0.0
        """0 without a fence."""
        self._heard_s = -math.inf
        """When the last heartbeat that was heard was said."""
        self._was_closed = False

    @property
    def closed(self) -> bool:
        """Whether no pod may start now."""
        closed = self.seconds > 0 and asyncio.get_running_loop().time() >= self._heard_s + self.seconds
        if closed != self._was_closed:
            self._was_closed = closed
            _log.warning("fence.closed" if closed else "fence.opened", fence_s=self.seconds)
        return closed

    async def load(self) -> None:
        """Read what was written down."""
        try:
            found = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        except NotFoundError:
            return
        self.seconds = _seconds((found.get("data") or {}).get(_KEY, ""))

    async def keep(self, seconds: float) -> None:
        """Keep another fence from now on, or none. Return when that is written down."""
        if seconds == self.seconds:
            return
        data = {_KEY: f"{seconds:g}"}
        metadata = {"name": NAME, "namespace": self._namespace}
        try:
            await self._client.create(
                CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
            )
        except AlreadyExistsError:
            await self._client.patch(CONFIGMAPS, NAME, self._namespace, MergePatch({"data": data}))
        _log.info("fence.kept", fence_s=seconds)
        self.seconds = seconds

    def hear(self, heard: Heard) -> None:
        """The manager has heard a heartbeat. What an agent before this one has said opens nothing."""
        if heard.epoch == self._epoch:
            self._heard_s = max(self._heard_s, heard.said_s)


def _seconds(text: str) -> float:
    """What is written down. What cannot be read is a fence too, and nobody knows how long it was."""
    try:
        return max(0.0, float(text))
    except ValueError:
        _log.warning("fence.unreadable", text=text)
        return _UNREADABLE_S
