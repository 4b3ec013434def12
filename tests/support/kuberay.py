"""A real KubeRay operator, where `KUBERAY_BINARY` names one; `KUBERAY_CRDS` is the folder with its definitions."""

import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from support.controlplane import Cluster
from support.processes import START_S, Server, free_port

BINARY = "KUBERAY_BINARY"
DEFINITIONS = "KUBERAY_CRDS"


def binary_and_definitions() -> tuple[str, Path]:
    """The operator and the folder of its definitions; skips the test where they are not named."""
    binary, definitions = os.environ.get(BINARY), os.environ.get(DEFINITIONS)
    if not (binary and definitions):
        pytest.skip(f"no KubeRay: set {BINARY} to its operator and {DEFINITIONS} to the folder of its definitions")
    return binary, Path(definitions).resolve()  # kubectl reads no folder by a link


class KubeRay:
    """An operator of one namespace, with the replica labels of KubeRay 1.6 or without, as 1.4 and 1.5."""

    def __init__(self, cluster: Cluster, folder: Path, *, namespace: str, replica_labels: bool) -> None:
        binary, definitions = binary_and_definitions()
        self._cluster = cluster
        self._definitions = definitions
        self._probe = f"127.0.0.1:{free_port()}"
        flags = (
            "--metrics-addr=0",
            f"--health-probe-bind-address={self._probe}",
            "--enable-leader-election=false",
            f"--watch-namespace={namespace}",
            # The second one lets a group be suspended; KubeRay 1.5 has it off.
            f"--feature-gates=RayMultiHostIndexing={str(replica_labels).lower()},RayJobDeletionPolicy=true",
        )
        kubeconfig = {"KUBECONFIG": str(cluster.kubeconfig)}
        self._server = Server(f"KubeRay of {namespace}", [binary, *flags], log=folder / "kuberay.log", env=kubeconfig)

    def start(self) -> None:
        apply = ("apply", "--server-side", "--force-conflicts")
        self._cluster.kubectl(*apply, f"--filename={self._definitions}")
        self._server.start()
        self._server.wait_for(self._is_ready, within_s=START_S)

    def stop(self) -> None:
        self._server.stop()

    def log_tail(self) -> str:
        return self._server.log_tail()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self._probe}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
