"""Plays runs in processes, each in one of its own.

A process is forked for a run: it has everything imported, and nothing that another run has left. It never collects the
garbage, because it ends soon.
"""

import gc
import multiprocessing
import resource
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

Run = TypeVar("Run")
Outcome = TypeVar("Outcome")
_MOST_BYTES = 4 * 1024**3
"""Of one run: what needs more would end other programs of the machine."""
_AHEAD = 4
"""So many times as many runs as are played at once may wait for one before them."""


class DiedError(RuntimeError):
    """A run has ended its process."""


def outcomes(play: Callable[[Run], Outcome], runs: Iterable[Run], at_once: int) -> Iterator[Outcome]:
    """Outcomes in the order of the runs."""
    remaining, begun, told = enumerate(runs), 0, 0
    playing: dict[Connection, tuple[int, BaseProcess]] = {}
    played: dict[int, Outcome] = {}
    try:
        while True:
            while len(playing) < at_once and begun - told < _AHEAD * at_once:
                if (one := next(remaining, None)) is None:
                    break
                number, run = one
                connection, process = _begin(play, run)
                playing[connection] = number, process
                begun += 1
            if not playing:
                return
            for connection in wait([*playing]):
                assert isinstance(connection, Connection)
                number, process = playing.pop(connection)
                try:
                    played[number] = connection.recv()
                except EOFError:
                    process.join()
                    raise DiedError(f"run {number + 1} has ended its process, by status {process.exitcode}") from None
                process.join()
            while told in played:
                yield played.pop(told)
                told += 1
    finally:
        for _, process in playing.values():
            process.kill()


def _begin(play: Callable[[Run], Outcome], run: Run) -> tuple[Connection, BaseProcess]:
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_play, args=(play, run, sender))
    process.start()
    sender.close()
    return receiver, process


def _play(play: Callable[[Run], Outcome], run: Run, sender: Connection) -> None:
    gc.disable()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    sender.send(play(run))
