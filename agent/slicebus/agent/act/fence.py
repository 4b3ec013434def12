"""Stores the fence of the cluster, and logs when it closes and opens. `decide.cluster.fence` has the rule.

The fence is stored before the manager learns that the agent keeps it: an agent that restarts keeps it too, and lets no
pod start before the manager has heard it.
"""

import asyncio

import structlog

from slicebus.agent.decide.cluster.fence import NEVER_S, UNREADABLE_S, is_closed, newest_heard_s, parse_seconds
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import AlreadyExistsError, NotFoundError
from slicebus.proto.messages import Heard

_log = structlog.get_logger()

NAME = "slicebus-fence"
_KEY = "fenceSeconds"


class Fence:
    """The fence of one cluster, as this process knows it. Without one, pods may start at any time."""

    def __init__(self, client: KubeClient, namespace: str, *, epoch: int) -> None:
        self._client = client
        self._namespace = namespace
        self._epoch = epoch
        self.seconds = 0.0
        """The length of the fence; 0 without one."""
        self._heard_s = NEVER_S
        self._was_closed = False

    @property
    def closed(self) -> bool:
        """Whether no pod may start now."""
        closed = is_closed(self.seconds, heard_s=self._heard_s, now_s=asyncio.get_running_loop().time())
        if closed != self._was_closed:
            self._was_closed = closed
            _log.warning("fence.closed" if closed else "fence.opened", fence_s=self.seconds)
        return closed

    async def load(self) -> None:
        """Read the stored fence."""
        try:
            config_map = await self._client.get(CONFIGMAPS, NAME, self._namespace)
        except NotFoundError:
            return
        text = (config_map.get("data") or {}).get(_KEY, "")
        seconds = parse_seconds(text)
        if seconds is None:
            _log.warning("fence.unreadable", text=text)
        self.seconds = UNREADABLE_S if seconds is None else seconds

    async def keep(self, seconds: float) -> None:
        """Store and keep a fence of this length; 0 lifts it. Raises what the write raises; the fence then stays."""
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
        """Take note of a heartbeat that the manager has heard."""
        self._heard_s = newest_heard_s(self._heard_s, heard, epoch=self._epoch)
