"""Runs a role until it ends or gets a signal."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from slicebus.proto.errors import ConfigurationError, SlicebusError
from slicebus.runtime.logs import configure_logging

_log = structlog.get_logger()

EXIT_FAILURE = 1
EXIT_USAGE = 2


async def until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run `main`. SIGTERM or SIGINT cancels it; `main` bounds its own clean-up."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(main, name="main")
    stopped = asyncio.Event()

    def stop(name: str) -> None:
        _log.info("process.stopping", signal=name)
        stopped.set()
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        await task
    except asyncio.CancelledError:
        if not stopped.is_set():
            raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def run_process(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a role to its end. Exit status: 0 after a signal, 1 after a failure, 2 for invalid settings."""
    # The default until the settings are read: their errors are logged too.
    configure_logging()
    status = 0
    try:
        asyncio.run(until_signal(main()))
    except* ConfigurationError as group:
        _log.error("process.misconfigured", error=_text(group))
        status = EXIT_USAGE
    except* SlicebusError as group:
        _log.error("process.failed", error=_text(group))
        status = status or EXIT_FAILURE
    # Python before 3.11.4 puts what is raised in an `except*` into a group, and prints that.
    if status:
        sys.exit(status)


def _text(group: BaseExceptionGroup[Any]) -> str:
    texts = [_text(error) if isinstance(error, BaseExceptionGroup) else str(error) for error in group.exceptions]
    return "; ".join(texts)
