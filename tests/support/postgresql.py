"""A PostgreSQL of the tests' own: private folders, a private port, loopback only."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from support.processes import COMMAND_S, START_S, Server, free_port

_FOLDER = Path("/usr/lib/postgresql")
"""Where Debian's packages have the programs of each version."""
_USER = "postgres"
_INIT = ("--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8")
"""A locale of the machine may be named there that was never made."""


def programs() -> Path | None:
    """The folder with the programs of the newest version; None where there is none."""
    found = [path.parent for path in _FOLDER.glob("*/bin/postgres")]
    return max(found, key=lambda path: float(path.parent.name), default=None)


class PostgresServer:
    """One server. It refuses to run as root: then it runs as the user that Debian's package has made."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
        self._port = free_port()
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        data = str(self._folder / "data")
        self._make = ["initdb", f"--pgdata={data}", f"--username={_USER}", *_INIT]
        options = {"listen_addresses": "127.0.0.1", "port": self._port, "unix_socket_directories": "", "fsync": "off"}
        command = ["postgres", "-D", data, *(f"-c{name}={value}" for name, value in options.items())]
        self._server = Server("postgresql", self._command(command), log=self._folder / "postgresql.log")

    def start(self) -> None:
        """Return when it takes connections."""
        subprocess.run(self._command(self._make), check=True, capture_output=True, timeout=COMMAND_S)
        self._server.start()
        ready = self._command(["pg_isready", "--host", "127.0.0.1", "--port", str(self._port)])
        self._server.wait_for(
            lambda: subprocess.run(ready, check=False, capture_output=True).returncode == 0, within_s=START_S
        )

    def stop(self) -> None:
        """End it, and remove what it had."""
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def database(self, name: str) -> str:
        """The address of a new database."""
        create = ["createdb", "--host", "127.0.0.1", "--port", str(self._port), "--username", _USER, name]
        subprocess.run(self._command(create), check=True, capture_output=True, timeout=COMMAND_S)
        return f"postgresql://{_USER}@127.0.0.1:{self._port}/{name}"

    def _command(self, command: list[str]) -> list[str]:
        return [*self._as_user, str(self._programs / command[0]), *command[1:]]
