"""Keeps the demo's fleet running, and says how to try it with kubectl."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import yaml

from slicebus.cli.demo.world import World
from slicebus.cli.screen import SafeConsole
from slicebus.proto.messages import ClusterName

_KUBECONFIG = "slicebus-demo.kubeconfig"


async def keep_real(manager: Path, workers: Mapping[ClusterName, Path]) -> None:
    """Run on until cancelled, on clusters whose kubeconfigs the user has."""
    _say(f"kubectl --kubeconfig {manager}", {name: f"kubectl --kubeconfig {path}" for name, path in workers.items()})
    await asyncio.Event().wait()


async def keep_embedded(world: World, folder: Path) -> None:
    """Run on until cancelled. A kubeconfig of the embedded servers lies in the folder meanwhile: the manager's is its
    current context, and each worker has a context of its name."""
    path = (folder / _KUBECONFIG).resolve()
    servers = {"manager": world.manager.host} | {name: client.host for name, client in world.workers.items()}
    path.write_text(yaml.safe_dump(_kubeconfig(servers)), encoding="utf-8")
    try:
        _say("kubectl", {name: f"kubectl --context {name}" for name in world.workers}, f"export KUBECONFIG={path}")
        await asyncio.Event().wait()
    finally:
        path.unlink(missing_ok=True)


def _say(manager: str, workers: Mapping[ClusterName, str], *first: str) -> None:
    lines = [
        *first,
        f"{manager} get workerclusters,clusterqueues,workloads -A",
        *(f"{kubectl} get jobs,rayclusters,pods -A   # {name}" for name, kubectl in workers.items()),
    ]
    console = SafeConsole()
    console.print("\nThe fleet runs on until Ctrl-C. Try, in another terminal:")
    for line in lines:
        console.print(f"  {line}")


def _kubeconfig(servers: Mapping[str, str]) -> dict[str, object]:
    """A kubeconfig of servers that need no login. The first one's context is the current one."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": next(iter(servers)),
        "clusters": [{"name": name, "cluster": {"server": server}} for name, server in servers.items()],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "demo"}} for name in servers],
        "users": [{"name": "demo", "user": {}}],
    }
