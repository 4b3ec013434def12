"""Servers that tests start: free ports, child processes that never outlive the test run, readable failures."""

import ctypes
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LOG_TAIL = 2000
START_S = 240.0
"""What a server may take to be ready on a busy machine. API servers that start together need 45 s of processor time."""
COMMAND_S = 300.0
"""What a command may take on a busy machine: a bound for one that hangs."""


_PORTS = range(20_000, 30_000)
"""Below those that the kernel gives to connections: one of them could take a port before its server listens."""
_next = itertools.count(os.getpid() * 1009)
"""Processes that test at the same time begin at different ports."""


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    while True:
        port = _PORTS[next(_next) % len(_PORTS)]
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def _die_with_parent() -> None:
    """Linux ends the child when the thread that started it ends, so at the latest with the test run."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def memory_bytes_of(pid: int) -> int:
    """What of a process' memory is resident."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def most_memory_bytes_of(pid: int) -> int:
    """The most of a process' memory that has ever been resident."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def cpu_s_of(pid: int) -> float:
    """The processor time that a process has taken so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """One child process with its log."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                preexec_fn=_die_with_parent,
                start_new_session=True,
            )

    def wait_for(self, ready: Callable[[], bool], *, within_s: float) -> None:
        """Return when it is ready. Fails with the end of its log when it ends or takes too long."""
        ends_at = time.monotonic() + within_s
        while not ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError(f"{self.name} did not become ready:\n{self.log_tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self, *, within_s: float = 10.0) -> None:
        """Ask it to end, then end it."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def signal(self, number: signal.Signals, *, within_s: float) -> int:
        """Send a signal that ends it; the exit status. Raises TimeoutExpired."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(within_s)

    def peak_bytes(self) -> int:
        """The most memory that it has had at once, in bytes: `VmHWM`."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024

    @property
    def is_running(self) -> bool:
        """Whether it has been started and has not ended. One that was stopped by SIGSTOP runs."""
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """SIGSTOP: it neither does nor notices anything until `resume`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def memory_bytes(self) -> int:
        """What of its memory is resident."""
        assert self._process is not None
        return memory_bytes_of(self._process.pid)

    def cpu_s(self) -> float:
        """The processor time that it has taken so far, in seconds: a hundredth more or less."""
        assert self._process is not None
        return cpu_s_of(self._process.pid)

    def log_text(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def log_tail(self) -> str:
        return self.log_text()[-_LOG_TAIL:]
