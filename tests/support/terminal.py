"""A command in a terminal, as somebody sits before it."""

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

from support.installation import slicebus
from support.processes import COMMAND_S
from support.waiting import eventually

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")


class Terminal:
    """A terminal that a command runs in."""

    def __init__(self, master: int, process: asyncio.subprocess.Process) -> None:
        self._master = master
        self._process = process
        self._shown = bytearray()
        asyncio.get_running_loop().add_reader(master, self._read)

    @property
    def shown(self) -> str:
        """Everything that the command has written, without what moves the cursor and colours."""
        return _CONTROL.sub("", self._shown.decode(errors="replace"))

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def forget(self) -> None:
        """Take what was shown so far as read."""
        self._shown.clear()

    async def expect(self, text: str) -> None:
        """Wait until the command shows a text."""

        async def is_shown() -> bool:
            return text in self.shown

        await eventually(is_shown, f"{text!r} is shown")

    async def ends(self) -> int:
        """The exit status, when it has ended."""
        async with asyncio.timeout(COMMAND_S):
            return await self._process.wait()

    def _read(self) -> None:
        try:
            self._shown += os.read(self._master, 65536)
        except OSError:  # The command has closed its side.
            asyncio.get_running_loop().remove_reader(self._master)


@asynccontextmanager
async def terminal(
    *arguments: str, env: Mapping[str, str], lines: int = 40, columns: int = 140
) -> AsyncIterator[Terminal]:
    """`slicebus` in a terminal of this size, ended when the context is left."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = await asyncio.create_subprocess_exec(
        slicebus(),
        *arguments,
        env={**variables, "TERM": "xterm-256color", **env},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    opened = Terminal(master, process)
    try:
        yield opened
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        asyncio.get_running_loop().remove_reader(master)
        os.close(master)
