"""A fleet as its users have it: charts applied to real API servers, roles as processes with the chart's variables."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import yaml

from support.controlplane import Cluster
from support.helm import NAMESPACE, Manifest, environment, only, render
from support.processes import COMMAND_S, START_S, Server, free_port

SECRET = "slicebus-amqp"
"""With the broker's address."""


def install(helm: Path, chart: str, cluster: Cluster, values: Mapping[str, object], *, address: Path) -> dict[str, str]:
    """Apply a chart, and the Secret of a file with the broker's address, as README.md says. The variables of its role's
    container: the Deployment is accepted, but nobody runs its pods."""
    create = ("create", "secret", "generic", SECRET, "-n", NAMESPACE, f"--from-env-file={address}")
    secret = yaml.safe_load(cluster.kubectl(*create, "--dry-run=client", "-o", "yaml"))
    rendered = render(helm, chart, {**values, **definitions(cluster), "amqp": {"existingSecret": {"name": SECRET}}})
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    apply(cluster, namespace, secret, *rendered)
    return with_mounted_files(environment([*rendered, secret]), rendered, address.parent / f"{chart}-files")


def definitions(cluster: Cluster) -> dict[str, object]:
    """The values of a chart that leaves Kueue's own definitions alone, where they are."""
    found = cluster.kubectl("get", "crds", "clusterqueues.kueue.x-k8s.io", "--ignore-not-found", "-o", "yaml")
    return {"crds": {"kueue": "controller-gen" not in found}}


def with_mounted_files(variables: dict[str, str], rendered: list[Manifest], folder: Path) -> dict[str, str]:
    """The variables with the paths of mounted ConfigMaps' files changed to those of copies in a folder."""
    pod = only(rendered, "Deployment")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0].get("volumeMounts", ())}
    files = {each["metadata"]["name"]: each["data"] for each in rendered if each["kind"] == "ConfigMap"}
    changed = dict(variables)
    for volume in pod.get("volumes", ()):
        for file, content in files.get(volume.get("configMap", {}).get("name"), {}).items():
            copy = folder / volume["name"] / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(content)
            path = f"{mounts[volume['name']]}/{file}"
            changed |= {name: str(copy) for name, value in variables.items() if value == path}
    return changed


def uninstall(helm: Path, chart: str, cluster: Cluster, values: Mapping[str, object]) -> None:
    """Take away what `helm uninstall` takes away: everything but the definitions."""
    rendered = render(helm, chart, {**values, "amqp": {"existingSecret": {"name": SECRET}}})
    gone = [manifest for manifest in rendered if manifest["kind"] != "CustomResourceDefinition"]
    cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=yaml.safe_dump_all(gone))


def apply(cluster: Cluster, *manifests: Manifest) -> None:
    """`kubectl apply --server-side`, so that the server validates everything."""
    text = yaml.safe_dump_all(manifests)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


def kubeconfig_of(cluster: Cluster, account: str, path: Path, *, namespace: str = NAMESPACE) -> Path:
    """A kubeconfig with the token of a ServiceAccount; a chart's has the chart's name."""
    token = cluster.kubectl("create", "token", account, "--namespace", namespace).strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))
    return path


class Role:
    """`slicebus manager` or `slicebus agent`, as a process. `program`: another `slicebus` than the checkout's."""

    def __init__(
        self, name: str, command: str, variables: Mapping[str, str], *, log: Path, program: Path | None = None
    ) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.variables = {**variables, "SLICEBUS_HEALTH_ADDRESS": self.url.removeprefix("http://")}
        self._program = program
        self._server = Server(name, [slicebus(program), command], log=log, env=self.variables)

    def launch(self) -> None:
        """Begin to start."""
        self._server.start()

    def start(self) -> None:
        """Return when it is ready."""
        self.launch()
        self._server.wait_for(self.is_ready, within_s=START_S)

    def probe(self, path: str) -> str:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def doctor(self) -> subprocess.CompletedProcess[str]:
        """`slicebus doctor` with the role's own variables, as `kubectl exec` would run it."""
        return run_cli("doctor", env=self.variables, program=self._program)

    def terminate(self) -> int:
        """SIGTERM; the exit status."""
        return self._server.signal(signal.SIGTERM, within_s=COMMAND_S)

    def kill(self) -> None:
        self._server.kill()

    @property
    def process(self) -> Server:
        """The process itself."""
        return self._server

    def log(self) -> list[dict[str, object]]:
        """What it has logged."""
        return [json.loads(line) for line in self._server.log_text().splitlines() if line.startswith("{")]

    def is_ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        try:
            return self.probe("/readyz") == "ok\n"
        except OSError:
            return False


def run_cli(
    *arguments: str, env: Mapping[str, str], program: Path | None = None, stdin: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the `slicebus` command to its end."""
    return subprocess.run(
        [slicebus(program), *arguments],
        input=stdin,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", **env},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def slicebus(program: Path | None = None) -> str:
    """The command, as it was installed; by default the checkout's."""
    return str(program or Path(sys.executable).with_name("slicebus"))
