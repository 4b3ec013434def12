"""Releases by Helm itself on real API servers, and the pods that their Deployments would have: as processes."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from support.controlplane import Cluster
from support.helm import NAMESPACE, Manifest, environment
from support.installation import SECRET, Role, definitions, kubeconfig_of, with_mounted_files
from support.processes import COMMAND_S


class Release:
    """A release of a chart, which has the chart's name."""

    def __init__(self, helm: Path, cluster: Cluster, chart: str) -> None:
        self.cluster = cluster
        self.chart = chart
        self._program = helm

    def install(self, charts: Path, values: dict[str, object]) -> None:
        """`helm install`. Definitions that another test has applied become the release's."""
        given = values | definitions(self.cluster)
        forced = ("--take-ownership", "--force-conflicts")
        self._helm("install", *forced, "--values=-", self.chart, charts / self.chart, values=given)

    def upgrade(self, charts: Path, values: dict[str, object]) -> None:
        """`helm upgrade`."""
        given = values | definitions(self.cluster)
        self._helm("upgrade", "--values=-", self.chart, charts / self.chart, values=given)

    def rollback(self) -> None:
        """`helm rollback` to the revision before."""
        self._helm("rollback", self.chart)

    def uninstall(self) -> None:
        """`helm uninstall`, also where it is gone."""
        self._helm("uninstall", "--ignore-not-found", self.chart)

    def manifests(self) -> list[Manifest]:
        """The objects of the present revision, with the Secret of the broker's address."""
        found = [manifest for manifest in yaml.safe_load_all(self._helm("get", "manifest", self.chart)) if manifest]
        secret = self.cluster.kubectl("get", "secret", SECRET, "-n", NAMESPACE, "-o", "yaml")
        return [*found, yaml.safe_load(secret)]

    def _helm(self, *arguments: str | Path, values: Mapping[str, object] | None = None) -> str:
        command = [str(self._program), f"--kubeconfig={self.cluster.kubeconfig}", f"--namespace={NAMESPACE}"]
        text = yaml.safe_dump(dict(values)) if values is not None else None
        done = subprocess.run(
            [*command, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
        if done.returncode:
            raise RuntimeError(f"helm {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout


class Deployed:
    """The pod of a release: a process with the variables and the account of its container."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release = release
        self.role: Role | None = None
        self._folder = folder
        self._number = 0

    def roll(self, program: Path) -> None:
        """As a Deployment does it: start the pod of the present revision, and end the one before when it is ready."""
        command = self.release.chart.removeprefix("slicebus-")
        self._number += 1
        name = f"{command}-{self._number}"
        manifests = self.release.manifests()
        variables = with_mounted_files(environment(manifests), manifests, self._folder / f"{name}-files")
        variables |= {"SLICEBUS_IDENTITY": name}
        path = self._folder / f"{name}.kubeconfig"
        variables["KUBECONFIG"] = str(kubeconfig_of(self.release.cluster, self.release.chart, path))
        role = Role(name, command, variables, log=self._folder / f"{name}.log", program=program)
        role.start()
        before, self.role = self.role, role
        if before is not None:
            assert before.terminate() == 0, before.log()[-5:]

    def stop(self) -> None:
        """End the pod."""
        if self.role is not None:
            self.role.kill()

    def log_tail(self) -> str:
        """The end of what the pod has logged."""
        return self.role.process.log_tail() if self.role is not None else ""


def add_secret(cluster: Cluster, url: str, folder: Path) -> None:
    """The namespace, and the Secret with the broker's address, as README.md makes them."""
    address = folder / f"{cluster.name}.env"
    address.write_text(f"url={url}\n")
    namespace = cluster.kubectl("create", "namespace", NAMESPACE, "--dry-run=client", "-o", "yaml")
    cluster.kubectl("apply", "-f", "-", stdin=namespace)
    create = ("create", "secret", "generic", SECRET, "-n", NAMESPACE, f"--from-env-file={address}")
    secret = cluster.kubectl(*create, "--dry-run=client", "-o", "yaml")
    cluster.kubectl("apply", "-f", "-", stdin=secret)
