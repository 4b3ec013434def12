"""A command that somebody interrupts, or whose reader goes away, ends without a traceback and gives no answer."""

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.jobs import command as jobs_command
from unit.cli.hostile import call

LIFE = str(Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz")
URL = "memory://manager@nowhere"
WITH_AN_END: dict[str, tuple[str, ...]] = {
    "journal query": ("journal", "query", "--from", LIFE),
    "journal tail --no-follow": ("journal", "tail", "--no-follow", "--amqp-url", URL),
    "journal export": ("journal", "export", "-", "--amqp-url", URL),
    "trace": ("trace", "job-a", "--from", LIFE),
    "redrive": ("redrive", LIFE, "--all", "--dry-run", "--amqp-url", URL),
    "replay": ("replay", LIFE),
    "whatif": ("whatif", "--from", LIFE, "--quota", "batch.cpu=+20%"),
    "jobs --at": ("jobs", "-A", "--at", "2026-01-01T00:00:12Z", "--from", LIFE),
    "queues --at": ("queues", "--at", "2026-01-01T00:00:12Z", "--from", LIFE),
    "jobs": ("jobs",),
    "doctor": ("doctor", "--amqp-url", URL),
    "dead list": ("dead", "list", "--amqp-url", URL),
    "ledger --no-follow": ("ledger", "--no-follow", "--amqp-url", URL, "--database", "{file}"),
}
UNTIL_STOPPED: dict[str, tuple[str, ...]] = {
    "journal tail": ("journal", "tail", "--amqp-url", URL),
    "ledger": ("ledger", "--amqp-url", URL, "--database", "{file}"),
    "view": ("view",),
}


def interrupted(main: Coroutine[Any, Any, Any]) -> None:
    main.close()
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        *(pytest.param(arguments, 130, id=name) for name, arguments in WITH_AN_END.items()),
        *(pytest.param(arguments, 0, id=name) for name, arguments in UNTIL_STOPPED.items()),
    ],
)
def test_an_interrupted_command_is_no_answer(
    arguments: tuple[str, ...], status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """0 and 1 are answers. Only what goes on until somebody stops it has done what it was asked for."""
    monkeypatch.setattr(asyncio, "run", interrupted)
    called = call(*(argument.replace("{file}", str(tmp_path / "ledger.db")) for argument in arguments))
    assert (called.status, called.out) == (status, "" if arguments[0] != "doctor" else "manager\n")
    assert "Aborted" not in called.err


def test_a_reader_that_goes_away_gets_no_answer() -> None:
    """Neither "yes" nor "no"."""
    arguments = ["broker", "definitions", "--cluster", "east"]
    command = [sys.executable, "-c", "from slicebus.cli.entry import main; main()", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 141
    assert "BrokenPipe" not in said
    assert "Traceback" not in said


def test_a_reader_that_goes_away_while_somebody_watches_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    async def said() -> None:
        async with asyncio.TaskGroup():
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(jobs_command, "run_led", lambda *_: asyncio.run(said()))
    assert call("jobs", "--watch") == (141, "", "")


def test_another_error_beside_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: object) -> None:
        raise ExceptionGroup("both", [BrokenPipeError(32, "Broken pipe"), KeyError("x")])

    monkeypatch.setattr(jobs_command, "run_led", failed)
    with pytest.raises(ExceptionGroup):
        call("jobs", "--watch")
