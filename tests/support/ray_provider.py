"""Ray's own Kubernetes provider, on the API server of a test: what its autoscaler v2 writes, Ray itself writes here.

`ray` is imported only where a test asks for it. Its provider is synchronous, so that it runs in a thread.
"""

import asyncio
import importlib.util
import itertools
from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any
from urllib.parse import parse_qs, urlsplit

from slicebus.kube.client import JsonPatch, KubeClient
from slicebus.kube.resources import PODS, RAYCLUSTERS
from support.missing import skip_or_fail

Manifest = dict[str, Any]

_REQUEST_S = 30.0


class RayProvider:
    """The provider of one RayCluster. It fails a test when Ray says that a request failed."""

    def __init__(self, client: KubeClient, name: str, namespace: str) -> None:
        if importlib.util.find_spec("ray") is None:
            skip_or_fail("no ray, which has no wheel for this Python")
        from ray.autoscaler.v2.instance_manager.cloud_providers.kuberay.cloud_provider import KubeRayProvider

        self._api = _ApiClient(client, namespace, asyncio.get_running_loop())
        # The client to the GCS is for what these clusters have not: resizes in place, and an end when idle.
        self._provider = KubeRayProvider(name, {"namespace": namespace}, None, k8s_api_client=self._api)
        self._requests = map(str, itertools.count(1))

    @property
    def patches(self) -> list[list[Manifest]]:
        """What it has written so far, patch by patch."""
        return self._api.patches

    async def instances(self) -> dict[str, bool]:
        """The pods that Ray counts by name, and whether they run. Those that are being deleted are not among them."""
        found = await asyncio.to_thread(self._provider.get_non_terminated)
        return {name: bool(instance.is_running) for name, instance in found.items()}

    async def launch(self, group: str, pods: int) -> None:
        """Ask for so many pods more."""
        await self._ask(self._provider.launch, {group: pods})

    async def terminate(self, names: Collection[str]) -> None:
        """Have these pods deleted."""
        await self._ask(self._provider.terminate, list(names))

    async def _ask(self, ask: Callable[[Any, str], None], what: object) -> None:
        await asyncio.to_thread(ask, what, next(self._requests))
        errors = self._provider.poll_errors()
        assert not errors, [*map(str, errors)]


class _ApiClient:
    """Ray's `IKubernetesHttpApiClient`, from its thread to the client of the test's loop."""

    def __init__(self, client: KubeClient, namespace: str, loop: asyncio.AbstractEventLoop) -> None:
        self.patches: list[list[Manifest]] = []
        self._client = client
        self._namespace = namespace
        self._loop = loop

    def get(self, path: str) -> Manifest:
        return self._wait(asyncio.run_coroutine_threadsafe(self._get(path), self._loop))

    def patch(self, path: str, payload: list[Manifest], content_type: str = "") -> Manifest:
        self.patches.append(payload)
        name = path.removeprefix("rayclusters/")
        patch = self._client.patch(RAYCLUSTERS, name, self._namespace, JsonPatch(payload))
        return self._wait(asyncio.run_coroutine_threadsafe(patch, self._loop))

    async def _get(self, path: str) -> Manifest:
        parts = urlsplit(path)
        if parts.path == "pods":
            [labels] = parse_qs(parts.query)["labelSelector"]
            page = await self._client.list(PODS, namespace=self._namespace, labels=labels)
            # The embedded server gives a new pod no status; a real one does.
            items = [{"status": {}} | pod for pod in page.items]
            return {"metadata": {"resourceVersion": page.resource_version}, "items": items}
        return await self._client.get(RAYCLUSTERS, parts.path.removeprefix("rayclusters/"), self._namespace)

    def _wait(self, asked: "Future[Manifest]") -> Manifest:
        return asked.result(_REQUEST_S)
