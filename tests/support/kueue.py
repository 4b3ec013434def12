"""A real Kueue on the manager's cluster: a binary that somebody else has built, with its webhooks in force.

`KUEUE_BINARY` names the binary, `KUEUE_CRDS` the folder with its definitions. The API server reaches the webhooks
through a Service of type ExternalName, so that Kueue runs with the certificates that it makes itself.
"""

import base64
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.controlplane import Cluster
from support.missing import skip_or_fail
from support.processes import START_S, Server, free_port

Manifest = dict[str, Any]
_SERVICE = "kueue-webhook-service"
_SECRET = "kueue-webhook-server-cert"
_FEATURES = {"ElasticJobsViaWorkloadSlices": True, "VisibilityOnDemand": False}
_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Definitions that Kueue converts, and waits for."""
_CONCURRENCY = {
    "Job.batch": 5,
    "Pod": 5,
    "Workload.kueue.x-k8s.io": 10,
    "LocalQueue.kueue.x-k8s.io": 5,
    "Cohort.kueue.x-k8s.io": 1,
    "ClusterQueue.kueue.x-k8s.io": 5,
    "ResourceFlavor.kueue.x-k8s.io": 1,
}
"""As its manifests and its chart set it. The binary alone reconciles one object of a kind at a time."""
_HOOKS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "kueue-x-k8s-io-v1beta2-clusterqueue": ("kueue.x-k8s.io", "v1beta2", ("clusterqueues",)),
    "kueue-x-k8s-io-v1beta2-resourceflavor": ("kueue.x-k8s.io", "v1beta2", ("resourceflavors",)),
    "kueue-x-k8s-io-v1beta2-workload": ("kueue.x-k8s.io", "v1beta2", ("workloads", "workloads/status")),
    "batch-v1-job": ("batch", "v1", ("jobs",)),
    "ray-io-v1-raycluster": ("ray.io", "v1", ("rayclusters",)),
    "ray-io-v1-rayjob": ("ray.io", "v1", ("rayjobs",)),
}
"""What follows `/mutate-` and `/validate-`, and what it is called for."""
VARIABLES = ("KUEUE_BINARY", "KUEUE_CRDS")
SYSTEM = "kueue-system"
"""Where it runs, and where it reads its Secrets."""


def binary_and_definitions() -> tuple[Path, Path]:
    """Skips the test where no Kueue is named, also in CI, which has none."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        pytest.skip(f"no Kueue: {' and '.join(missing)} not set")
    binary, definitions = (Path(os.environ[name]) for name in VARIABLES)
    if not binary.is_file() or not list(definitions.glob("*.yaml")):
        skip_or_fail(f"no Kueue at {binary} with definitions in {definitions}")
    return binary, definitions


class Kueue:
    """The controller manager, on one cluster. `install` comes first. `settings` go into its configuration file."""

    def __init__(
        self, cluster: Cluster, folder: Path, *, binary: Path, definitions: Path, settings: Mapping[str, Any] = {}
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._certificates = folder / "certificates"
        self._webhook_port, self._health_port = free_port(), free_port()
        self._certificates.mkdir(parents=True)
        configuration = folder / "configuration.yaml"
        configuration.write_text(yaml.safe_dump(self._configuration() | dict(settings)))
        self.server = Server(
            "kueue",
            [str(binary), f"--config={configuration}", f"--kubeconfig={cluster.kubeconfig}", "--zap-log-level=3"],
            log=folder / "kueue.log",
        )

    def install(self) -> None:
        """The definitions, and what its chart would bring."""
        manifests = [yaml.safe_load(path.read_text()) for path in sorted(self._definitions.glob("*.yaml"))]
        for manifest in manifests:
            if manifest["spec"]["names"]["plural"] in _CONVERTED:
                manifest["spec"]["conversion"] = {"strategy": "Webhook", "webhook": self._conversion()}
        self._create(*manifests, *self._system(), *self._hooks())

    def start(self) -> None:
        self.server.start()
        self.server.wait_for(self._has_certificates, within_s=START_S)
        self.server.wait_for(self._is_ready, within_s=START_S)

    def _create(self, *manifests: Manifest) -> None:
        self._cluster.kubectl("create", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(manifests))

    def _has_certificates(self) -> bool:
        """Kueue puts its certificates into a Secret, and waits for the kubelet to mount it."""
        secret = json.loads(self._cluster.kubectl("get", "secret", _SECRET, f"--namespace={SYSTEM}", "--output=json"))
        for name, content in secret.get("data", {}).items():
            (self._certificates / name).write_bytes(base64.b64decode(content))
        return bool(secret.get("data"))

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _configuration(self) -> Manifest:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": SYSTEM,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhook_port, "certDir": str(self._certificates)},
            "leaderElection": {"leaderElect": False},
            "controller": {"groupKindConcurrency": _CONCURRENCY},
            "integrations": {"frameworks": ["batch/job", "ray.io/raycluster", "ray.io/rayjob"]},
            "featureGates": _FEATURES,
        }

    def _conversion(self) -> Manifest:
        return {"clientConfig": {"service": self._service("/convert")}, "conversionReviewVersions": ["v1"]}

    def _service(self, path: str) -> Manifest:
        return {"namespace": SYSTEM, "name": _SERVICE, "path": path, "port": self._webhook_port}

    def _system(self) -> list[Manifest]:
        def named(kind: str, name: str, **content: Any) -> Manifest:
            return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": SYSTEM}} | content

        return [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
            named("Service", _SERVICE, spec={"type": "ExternalName", "externalName": "localhost"}),
            named("Secret", _SECRET),
        ]

    def _hooks(self) -> list[Manifest]:
        def configuration(kind: str, verb: str, operations: list[str]) -> Manifest:
            hooks = [
                {
                    "name": f"{verb[0]}{path.rpartition('-')[2]}.kb.io",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "clientConfig": {"service": self._service(f"/{verb}-{path}")},
                    "rules": [
                        {
                            "apiGroups": [group],
                            "apiVersions": [version],
                            "operations": operations,
                            "resources": list(resources if verb == "validate" else resources[:1]),
                        }
                    ],
                }
                for path, (group, version, resources) in _HOOKS.items()
            ]
            return {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{kind}WebhookConfiguration",
                "metadata": {"name": f"kueue-{kind.lower()}-webhook-configuration"},
                "webhooks": hooks,
            }

        return [
            configuration("Mutating", "mutate", ["CREATE"]),
            configuration("Validating", "validate", ["CREATE", "UPDATE"]),
        ]
