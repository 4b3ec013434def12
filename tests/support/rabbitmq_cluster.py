"""A RabbitMQ cluster of the tests' own on loopback: three nodes that share their port mapper and their cookie."""

import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.processes import free_port
from support.rabbitmq import RabbitBroker, port_mapper
from support.rabbitmq_releases import Release

NODES = 3
_DISCOVERY = """\
cluster_formation.peer_discovery_backend = classic_config
cluster_formation.discovery_retry_limit = 1
cluster_formation.discovery_retry_interval = 100
"""
"""The first node finds nobody, and need not wait for it."""


class RabbitCluster:
    """Its nodes, by name. Each takes about 150 MB, and they start in about half a minute."""

    def __init__(self, folder: Path, release: Release) -> None:
        epmd, home = free_port(), folder / "home"
        made = [RabbitBroker(folder / str(number), release, epmd=epmd, home=home) for number in range(NODES)]
        self.nodes = {node.node: node for node in made}
        self._port_mapper = port_mapper(release, epmd, folder)
        self.killed: set[str] = set()

    @classmethod
    @contextmanager
    def started(cls, folder: Path, release: Release) -> Iterator["RabbitCluster"]:
        """A cluster that runs until the context is left."""
        cluster = cls(folder, release)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()

    def start(self) -> None:
        peers = [
            f"cluster_formation.classic_config.nodes.{number} = {name}\n"
            for number, name in enumerate(self.nodes, start=1)
        ]
        first, *others = self.nodes.values()
        for node in self.nodes.values():
            node.configure(_DISCOVERY + "".join(peers))
        self._port_mapper.start()
        first.launch()
        first.wait_ready()
        for node in others:
            node.launch()
        with ThreadPoolExecutor() as pool:
            list(pool.map(RabbitBroker.wait_ready, others))
        running = {entry["name"] for entry in first.api("GET", "nodes") if entry["running"]}
        assert running == set(self.nodes), f"{running} are one cluster, and not {set(self.nodes)}"

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()
        self._port_mapper.stop()

    @property
    def hosts(self) -> str:
        """The setting for all of them."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values())

    @property
    def alive(self) -> RabbitBroker:
        """One that was not killed."""
        return next(node for name, node in self.nodes.items() if name not in self.killed)

    def kill(self, name: str) -> None:
        """End a node as a crash does."""
        self.killed.add(name)
        self.nodes[name].kill()

    def launch(self, name: str) -> None:
        """Begin to start a node that was killed. Not from a thread that ends."""
        self.nodes[name].launch()

    def wait_ready(self, name: str) -> None:
        """Return when a node that was launched serves again."""
        self.nodes[name].wait_ready()
        self.killed.discard(name)

    def queues(self, vhost: str) -> dict[str, dict[str, Any]]:
        """What the cluster says about each queue, by its name."""
        try:
            found = self.alive.api("GET", f"queues/{quote(vhost, safe='')}")
        except urllib.error.URLError:
            return {}
        return {queue["name"]: queue for queue in found}
