"""A real Kubernetes control plane: one etcd, an API server for each cluster, and the controllers that tests need.

The binaries are built by tests/tools/build.sh. Everything listens on loopback, with certificates made for the run.
"""

import json
import secrets
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import trustme
import yaml

from slicebus.slices.api.conditions import conditions_of
from support.processes import COMMAND_S, START_S, Server, free_port

_CONTROLLERS = (
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "ttl-after-finished-controller",
    "deployment-controller",
    "replicaset-controller",
)
_ADMIN_GROUP = "system:masters"
_NODES = 3

_RARE_COLLECTIONS = {"GOGC": "400"}
"""For a few hundred megabytes more, a server takes a third less of the processor while it waits."""
_STAGES = Path(__file__).parent / "kwok-stages.yaml"


class Alpha(msgspec.Struct, frozen=True):
    """What a cluster has that is off by default."""

    gates: tuple[str, ...] = ()
    apis: tuple[str, ...] = ()
    """Groups with their versions."""
    controllers: tuple[str, ...] = ()

    @property
    def flags(self) -> list[str]:
        """The gates, for every server."""
        return [f"--feature-gates={','.join(f'{gate}=true' for gate in self.gates)}"] if self.gates else []

    @property
    def api_flags(self) -> list[str]:
        """The APIs too, for an API server."""
        served = [f"--runtime-config={','.join(f'{api}=true' for api in self.apis)}"] if self.apis else []
        return [*self.flags, *served]


_NOTHING = Alpha()


class Cluster:
    """One API server with its controllers."""

    def __init__(
        self, name: str, folder: Path, *, bin: Path, etcd: str, pki: "Pki", worker: bool, alpha: Alpha = _NOTHING
    ) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = folder / "kubeconfig"
        folder.mkdir()
        self._folder = folder
        self._pki = pki
        self._alpha = alpha
        pki.write_kubeconfig(self.kubeconfig, self.url)
        self.api_server = Server(
            f"kube-apiserver of {name}",
            [str(bin / "kube-apiserver"), *self._flags(etcd)],
            log=folder / "apiserver.log",
            env=_RARE_COLLECTIONS,
        )
        self._others = [self._controller_manager(bin)]
        if worker:
            self._others += [self._scheduler(bin), self._kwok(bin)]

    def wait_ready(self) -> None:
        self.api_server.wait_for(self.is_ready, within_s=START_S)

    def start_controllers(self) -> None:
        """Start them, anew where they run."""
        for server in self._others:
            server.kill()
            server.start()

    def stop(self) -> None:
        for server in [*reversed(self._others), self.api_server]:
            server.kill()

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2, context=self._pki.client_context()) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl as a user would, by default as the administrator; its standard output."""
        command = ["kubectl", f"--kubeconfig={kubeconfig or self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=COMMAND_S)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def define(self, *files: str) -> None:
        """Create the definitions that these files have. They are served when it returns."""
        named = [f"--filename={file}" for file in files]
        self.kubectl("create", "--validate=false", *named)
        self.api_server.wait_for(partial(self._has_established, *named), within_s=START_S)

    def _has_established(self, *named: str) -> bool:
        """Whether definitions are served. `kubectl wait` fails where one has no conditions yet."""
        answer = json.loads(self.kubectl("get", *named, "--output=json"))
        definitions = answer.get("items", [answer])
        states = ({entry["type"]: entry["status"] for entry in conditions_of(item)} for item in definitions)
        return all(state.get("Established") == "True" for state in states)

    def add_nodes(self) -> None:
        """Nodes for kwok to play."""
        for number in range(_NODES):
            name = f"{self.name}-{number}"
            status = {
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"},
                "capacity": {"cpu": "64", "memory": "256Gi", "pods": "500"},
            }
            metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
            self.kubectl("create", "-f", "-", stdin=json.dumps(node))

    def _flags(self, etcd: str) -> list[str]:
        pki = self._pki
        return [
            f"--etcd-servers={etcd}",
            f"--etcd-prefix=/{self.name}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port}",
            f"--tls-cert-file={pki.server_cert}",
            f"--tls-private-key-file={pki.server_key}",
            f"--token-auth-file={pki.tokens}",
            f"--cert-dir={self._folder}",
            f"--service-account-key-file={pki.server_key}",
            f"--service-account-signing-key-file={pki.server_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            # No controller runs here that would make service accounts in time, or take the taint from a new node.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            *self._alpha.api_flags,
        ]

    def _controller_manager(self, bin: Path) -> Server:
        flags = [
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            f"--controllers={','.join((*_CONTROLLERS, *self._alpha.controllers))}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self._folder}",
            # Twenty jobs a second and their pods are more than the defaults allow.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            *self._alpha.flags,
        ]
        command = [str(bin / "kube-controller-manager"), *flags]
        return Server(f"kube-controller-manager of {self.name}", command, log=self._folder / "controllers.log")

    def _scheduler(self, bin: Path) -> Server:
        flags = [
            f"--kubeconfig={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
            f"--authorization-kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
            f"--cert-dir={self._folder}",
            *self._alpha.flags,
        ]
        command = [str(bin / "kube-scheduler"), *flags]
        return Server(f"kube-scheduler of {self.name}", command, log=self._folder / "scheduler.log")

    def _kwok(self, bin: Path) -> Server:
        flags = [
            f"--kubeconfig={self.kubeconfig}",
            f"--config={_STAGES}",
            "--manage-all-nodes=true",
            "--node-ip=127.0.0.1",
            f"--server-address=127.0.0.1:{free_port()}",
        ]
        return Server(f"kwok of {self.name}", [str(bin / "kwok"), *flags], log=self._folder / "kwok.log")


class Pki:
    """Certificates and a token for one run."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        self.ca, self.server_cert, self.server_key, self.tokens = (
            folder / name for name in ("ca.crt", "server.crt", "server.key", "tokens.csv")
        )
        authority.cert_pem.write_to_path(str(self.ca))
        for pem in certificate.cert_chain_pems:
            pem.write_to_path(str(self.server_cert), append=True)
        certificate.private_key_pem.write_to_path(str(self.server_key))
        self.token = secrets.token_hex(16)
        self.tokens.write_text(f'{self.token},admin,admin,"{_ADMIN_GROUP}"\n')

    def client_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def write_kubeconfig(self, path: Path, server: str) -> None:
        cluster = {"server": server, "certificate-authority": str(self.ca)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
        }
        path.write_text(yaml.safe_dump(config))


class ControlPlane:
    """Clusters by name. The first is the manager's, the others are workers."""

    def __init__(self, folder: Path, bin: Path, names: Sequence[str] = ("manager", "east", "west")) -> None:
        client, peer = free_port(), free_port()
        self._folder = folder
        self._bin = bin
        self._data = folder / "etcd"
        self._etcd = Server(
            "etcd", [str(bin / "etcd"), *self._etcd_flags(folder, client, peer)], log=folder / "etcd.log"
        )
        self.etcd_url = f"http://127.0.0.1:{client}"
        self._pki = Pki(folder)
        self.clusters = {
            name: Cluster(name, folder / name, bin=bin, etcd=self.etcd_url, pki=self._pki, worker=name != names[0])
            for name in names
        }

    def start(self) -> None:
        self._start_servers()
        clusters = list(self.clusters.values())
        with ThreadPoolExecutor() as pool:
            list(pool.map(Cluster.add_nodes, clusters[1:]))
        for cluster in clusters:
            cluster.start_controllers()

    @contextmanager
    def worker_beside(self, name: str, alpha: Alpha, *definitions: str) -> Iterator[Cluster]:
        """One more worker, without nodes and not among `clusters`, until the context is left. The files have what is
        there before its controllers: the garbage collector looks for new kinds every 30 s only."""
        folder = self._folder / name
        cluster = Cluster(name, folder, bin=self._bin, etcd=self.etcd_url, pki=self._pki, worker=True, alpha=alpha)
        try:
            cluster.api_server.start()
            cluster.wait_ready()
            cluster.define(*definitions)
            cluster.start_controllers()
            yield cluster
        finally:
            cluster.stop()

    def save(self, backup: Path) -> None:
        """Copy everything that the clusters hold. They are away for a moment."""
        self.stop()
        shutil.copytree(self._data, backup)
        self._restart()

    def restore(self, backup: Path) -> None:
        """Go back to a copy, as an operator does who restores a backup of etcd."""
        self.stop()
        shutil.rmtree(self._data)
        shutil.copytree(backup, self._data)
        self._restart()

    def _restart(self) -> None:
        self._start_servers()
        for cluster in self.clusters.values():
            cluster.start_controllers()

    def _start_servers(self) -> None:
        self._etcd.start()
        self._etcd.wait_for(self._etcd_is_ready, within_s=START_S)
        clusters = list(self.clusters.values())
        # Started from this thread: a child dies with the thread that has made it.
        for cluster in clusters:
            cluster.api_server.start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Cluster.wait_ready, clusters))

    def stop(self) -> None:
        for cluster in self.clusters.values():
            cluster.stop()
        self._etcd.kill()

    def _etcd_is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.etcd_url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    @staticmethod
    def _etcd_flags(folder: Path, client: int, peer: int) -> list[str]:
        return [
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
