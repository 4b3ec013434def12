"""Kubeconfigs of servers that ask nobody who he is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, server: str) -> Path:
    """The path, with a kubeconfig of the server at this address."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def join_kubeconfigs(path: Path, kubeconfigs: Mapping[str, Path]) -> Path:
    """The path, with a kubeconfig that has a context for each of these, by its name. The first is the current one."""
    joined: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": next(iter(kubeconfigs))}
    joined |= {"clusters": [], "contexts": [], "users": []}
    for name, source in kubeconfigs.items():
        config = yaml.safe_load(source.read_text())
        joined["clusters"].append(config["clusters"][0] | {"name": name})
        joined["users"].append(config["users"][0] | {"name": name})
        joined["contexts"].append({"name": name, "context": {"cluster": name, "user": name}})
    path.write_text(yaml.safe_dump(joined))
    return path
