"""A RabbitMQ broker of the tests' own, from Debian's package: private folders, private ports, loopback only."""

import base64
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

from support.processes import Server, free_port

_HOME = Path("/usr/lib/rabbitmq")
SERVER = _HOME / "bin" / "rabbitmq-server"
CTL = _HOME / "bin" / "rabbitmqctl"
_READY_S = 90.0


class RabbitBroker:
    """One node. Starting takes 7 to 20 seconds, so a test session has one, and a test its own vhost."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port, self._management, self._distribution, self._epmd = (free_port() for _ in range(4))
        self._node = f"slicebus-{self.port}@localhost"
        self._server = Server("rabbitmq", [str(SERVER)], log=folder / "rabbitmq.log", env=self._environment())

    def start(self) -> None:
        for name in ("data", "log", "home"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / "plugins").write_text("[rabbitmq_management].\n")
        (self._folder / "rabbitmq.conf").write_text(
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._management}\n"
            "loopback_users = none\nlog.console.level = warning\n"
            # A test machine's disk is nobody's alarm.
            "disk_free_limit.absolute = 50MB\n"
        )
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Begin to start, after `kill` with the same data. Not from a thread that ends: the node would end with it."""
        self._server.start()

    def wait_ready(self) -> None:
        """Return when the node serves."""
        self._server.wait_for(self._is_ready, within_s=_READY_S)

    def kill(self) -> None:
        """End the node as a crash does."""
        self._server.kill()

    def stop(self) -> None:
        """End the node, and the port mapper that it started."""
        self._server.kill()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                command = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if command[0].endswith(b"epmd") and f"ERL_EPMD_PORT={self._epmd}\0".encode() in environment:
                os.kill(int(entry.name), signal.SIGTERM)

    def url(self, vhost: str, user: str = "guest", password: str = "guest") -> str:
        return f"amqp://{quote(user)}:{password}@127.0.0.1:{self.port}/{quote(vhost, safe='')}"

    def add_vhost(self, name: str, *users: str) -> None:
        """A vhost with users that may do everything in it; a user's password is its name."""
        self.api("PUT", f"vhosts/{quote(name, safe='')}")
        for user in ("guest", *users):
            if user != "guest":
                self.api("PUT", f"users/{quote(user)}", {"password": user, "tags": ""})
            self.permit(name, user, ".*")

    def permit(self, vhost: str, user: str, names: str) -> None:
        """Let a user do everything to what has a name like that, and to nothing else in the vhost."""
        permissions = {"configure": names, "write": names, "read": names}
        self.api("PUT", f"permissions/{quote(vhost, safe='')}/{quote(user)}", permissions)

    def remove_vhost(self, name: str) -> None:
        self.api("DELETE", f"vhosts/{quote(name, safe='')}")

    def close_connections(self) -> int:
        """Cut every connection; how many there were."""
        found = self.api("GET", "connections")
        for connection in found:
            self.api("DELETE", f"connections/{quote(connection['name'])}")
        return len(found)

    def ctl(self, *arguments: str) -> str:
        """Call rabbitmqctl on this node: about a second each."""
        command = [str(CTL), "-n", self._node, "--longnames" if "." in self._node.split("@")[1] else "-q", *arguments]
        done = subprocess.run(
            command, env={**os.environ, **self._environment()}, capture_output=True, text=True, timeout=60, check=True
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
        with urllib.request.urlopen(request, timeout=10) as response:
            text = response.read()
        return json.loads(text) if text else None

    def _is_ready(self) -> bool:
        try:
            self.api("GET", "overview")
        except (urllib.error.URLError, OSError):
            return False
        return True

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self._folder / "home"),
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
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd),
        }
