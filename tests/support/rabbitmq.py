"""A RabbitMQ broker of the tests' own: private folders, private ports, loopback only."""

import base64
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trustme

from slicebus.cli.broker.formats import SALT_BYTES, as_definitions, password_hash
from slicebus.proto.messages import ClusterName
from slicebus.proto.rights import Member, definitions
from support.processes import COMMAND_S, Server, free_port
from support.rabbitmq_releases import Release

_READY_S = 240.0
"""A quiet machine takes 7 to 20; one whose cores others use has taken over 90."""
_API_S = 60.0
"""A busy machine takes seconds to make or remove a vhost."""
_SAVED_S = 2.0
"""Within that a node has saved which queues it has. It does so twice a second."""
_UNTIL_QUEUES_HAVE_BEGUN = """
    [ra:members(amqqueue:get_pid(Queue)) || Queue <- rabbit_amqqueue:list(),
     amqqueue:get_type(Queue) =:= rabbit_quorum_queue],
    [sys:get_state(Worker) || {_, Worker, _, _} <- supervisor:which_children(rabbit_fifo_dlx_sup), is_pid(Worker)].
"""
"""A queue names its members when it has a leader, and a worker tells its state when it has begun."""
_PLUGINS = "[rabbitmq_management,rabbitmq_auth_mechanism_ssl].\n"
TLS_HOST = "localhost"
"""The one name that the broker's certificate is valid for."""
_ERLANG = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"
"""Its schedulers do not spin while they wait: others need the processor."""
ADMIN = "guest"
"""May do everything in every vhost: for what no role does."""
_DECLARED = ("exchanges", "queues", "bindings")


def port_mapper(release: Release, port: int, folder: Path) -> Server:
    """What tells the nodes of a cluster and the commands of RabbitMQ where each node listens. A node would start one
    that outlives it."""
    return Server(
        "epmd",
        ["epmd", "-port", str(port)],
        log=folder / "epmd.log",
        env={"PATH": release.path, "ERL_EPMD_ADDRESS": "127.0.0.1"},
    )


class RabbitBroker:
    """One node. Starting takes 7 to 20 seconds, so a test session has one, and a test its own vhost.

    Nodes that shall be one cluster share a port mapper, whose port is `epmd`, and the folder with their cookie. One
    that takes the place of another has its `port`.
    """

    def __init__(
        self,
        folder: Path,
        release: Release,
        *,
        epmd: int | None = None,
        home: Path | None = None,
        port: int | None = None,
    ) -> None:
        self._folder = folder
        self.release = release
        self.port, self.tls_port, self._management, self._distribution = (free_port() for _ in range(4))
        self.port = port or self.port
        self._epmd = epmd or free_port()
        self._home = home or folder / "home"
        self._node = f"slicebus-{self.port}@localhost"
        self.authority = trustme.CA()
        """Of the broker's certificate, and of its clients'."""
        self._server = Server("rabbitmq", [str(release.server)], log=folder / "rabbitmq.log", env=self.environment())
        self._port_mapper = None if epmd else port_mapper(release, self._epmd, folder)

    def start(self) -> None:
        self.configure()
        self.launch()
        self.wait_ready()

    def configure(self, more: str = "") -> None:
        """Write what the node reads when it starts; `more` are lines of its configuration."""
        for folder in (self._folder / "data", self._folder / "log", self._home):
            folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "plugins").write_text(_PLUGINS)
        certificate = self.authority.issue_cert(TLS_HOST)
        self.authority.cert_pem.write_to_path(self._folder / "ca.pem")
        certificate.cert_chain_pems[0].write_to_path(self._folder / "cert.pem")
        certificate.private_key_pem.write_to_path(self._folder / "key.pem")
        (self._folder / "rabbitmq.conf").write_text(
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._management}\n"
            "loopback_users = none\nlog.console.level = warning\n"
            # A test machine's disk is nobody's alarm.
            "disk_free_limit.absolute = 50MB\n"
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.cacertfile = {self._folder / 'ca.pem'}\n"
            f"ssl_options.certfile = {self._folder / 'cert.pem'}\n"
            f"ssl_options.keyfile = {self._folder / 'key.pem'}\n"
            "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false\n"
            "auth_mechanisms.1 = PLAIN\nauth_mechanisms.2 = AMQPLAIN\nauth_mechanisms.3 = EXTERNAL\n"
            f"ssl_cert_login_from = common_name\n{more}"
        )

    @property
    def node(self) -> str:
        """Its name."""
        return self._node

    def launch(self) -> None:
        """Begin to start, after `kill` with the same data. Not from a thread that ends: the node would end with it."""
        if self._port_mapper is not None and not self._port_mapper.is_running:
            self._port_mapper.start()
        self._server.start()

    def wait_ready(self) -> None:
        """Return when all of the node serves, and its queues have begun.

        The management answers before that. A vhost that is made then may be missing for good, and with a queue that is
        deleted while the worker of its dead letters begins goes the supervisor of all such workers: then the node takes
        no declaration of a queue whose dead letters are passed on at least once, INTERNAL_ERROR, until it is started
        again.
        """
        self._server.wait_for(self._is_ready, within_s=_READY_S)
        self.ctl("await_startup")
        self.ctl("eval", _UNTIL_QUEUES_HAVE_BEGUN)

    def kill(self) -> None:
        """End the node as a crash does.

        What it was told in the last second it may lose: then it starts with a quorum queue that nobody leads, for ever
        ("configured member … was not found on this node. Starting member as a new one").
        """
        time.sleep(_SAVED_S)
        self._server.kill()

    def stop(self) -> None:
        """End the node, and the port mapper that it started."""
        self._server.kill()
        if self._port_mapper is not None:
            self._port_mapper.stop()

    def url(self, vhost: str, user: str, password: str | None = None) -> str:
        """The address for a user, whose password is its name unless another is given."""
        return f"amqp://{quote(user)}:{quote(password or user)}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def tls_url(self, vhost: str, credentials: str = "", *, host: str = TLS_HOST) -> str:
        """The address with TLS. `credentials`: `USER:PASSWORD`, `USER`, or nothing."""
        login = f"{credentials}@" if credentials else ""
        return f"amqps://{login}{host}:{self.tls_port}/{quote(vhost, safe='')}"

    @property
    def api_url(self) -> str:
        """The address of the management API, for the administrator."""
        return f"http://{ADMIN}:{ADMIN}@127.0.0.1:{self._management}"

    def add_vhost(self, name: str, *clusters: str, shards: int = 1) -> None:
        """A vhost for a manager and these clusters, with the rights and bounds that slicebus defines; a user's password
        is its name. What the manager declares is not there."""
        made = self._definitions(name, *clusters, shards=shards)
        self.api("POST", "definitions", {kind: made[kind] for kind in made if kind not in _DECLARED})
        self.broaden(name, ADMIN)

    def import_all(self, name: str, *clusters: str) -> None:
        """The same, with the exchanges, queues and bindings that `slicebus broker definitions` prints too."""
        self.api("POST", "definitions", self._definitions(name, *clusters))

    @staticmethod
    def _definitions(vhost: str, *clusters: str, shards: int = 1) -> dict[str, Any]:
        given = definitions([Member(ClusterName(cluster), cluster) for cluster in clusters], shards=shards)
        hashes = {user: password_hash(user, os.urandom(SALT_BYTES)) for user in given.users}
        return as_definitions(given, vhost, hashes)

    def broaden(self, vhost: str, user: str) -> None:
        """Let a user do everything in the vhost, as `rabbitmqctl set_permissions USER '.*' '.*' '.*'` does."""
        where = quote(vhost, safe="")
        if user != ADMIN:
            self.api("DELETE", f"topic-permissions/{where}/{quote(user)}")
        self.permit(vhost, user, configure=".*", write=".*", read=".*")

    def permit(self, vhost: str, user: str, **expressions: str) -> None:
        """Set the permissions of a user, and leave its topic permissions as they are."""
        self.api("PUT", f"permissions/{quote(vhost, safe='')}/{quote(user)}", expressions)

    def remove_vhost(self, name: str) -> None:
        self.api("DELETE", f"vhosts/{quote(name, safe='')}")

    def close_connections(self) -> None:
        """Cut every connection that is open now. The management API would list those of some seconds ago."""
        self.ctl("close_all_connections", "--global", "cut by a test")

    def ctl(self, *arguments: str) -> str:
        """Call rabbitmqctl on this node: about a second each."""
        command = [
            str(self.release.ctl),
            "-n",
            self._node,
            "--longnames" if "." in self._node.split("@")[1] else "-q",
            *arguments,
        ]
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment()},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=True,
        )
        return done.stdout

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """Call the management API."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._management}/api/{path}",
            method=method,
            data=json.dumps(body if body is not None else {}).encode() if method in ("PUT", "POST") else None,
            headers={
                "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=_API_S) as response:
            text = response.read()
        return json.loads(text) if text else None

    def _is_ready(self) -> bool:
        try:
            self.api("GET", "overview")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def environment(self) -> dict[str, str]:
        """The variables by which its own programs find this node."""
        return {
            "PATH": self.release.path,
            "HOME": str(self._home),
            # The shell that it starts with gives way to the node, which then ends with the test run.
            "RUNNING_UNDER_SYSTEMD": "1",
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_MNESIA_BASE": str(self._folder / "data"),
            "RABBITMQ_LOG_BASE": str(self._folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self._folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(self._folder / "no-such-file"),
            "RABBITMQ_PID_FILE": str(self._folder / "pid"),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
            "ERL_EPMD_PORT": str(self._epmd),
        }
