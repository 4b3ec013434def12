"""WorkProgress: on a terminal only, after two seconds, with a rate and what is left."""

import io
import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slicebus.cli import progress
from slicebus.cli.progress import WorkProgress, share_between
from unit.cli.test_hostile_text import URL, broker, recorded

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Terminal(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> list[str]:
        """Its lines, without what moves the cursor and colours."""
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())
        return [line.strip() for line in re.split(r"[\r\n]+", text) if line.strip()]


def in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error as a terminal. No fixture: pytest gives the test another standard error than its fixtures."""
    made = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", made)
    return made


class Clock:
    """Seconds that a test lets pass."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def work(steps: int, *, each_s: float, total: int | None = None, share: float | None = None) -> None:
    clock = Clock()
    with WorkProgress("export", "records", total=total, clock=clock) as shown:
        for _ in range(steps):
            clock.now_s += each_s
            shown.step(share)


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_a_terminal(monkeypatch)
    work(1999, each_s=0.001)
    assert terminal.getvalue() == ""


def test_long_work_has_its_count_and_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_a_terminal(monkeypatch)
    work(4000, each_s=0.001, total=8000)
    assert re.match(r"export .* 25% 2,0\d\d records, 1,000/s -?[-0:]+ left$", terminal.shown[0])
    assert re.match(r"export .* (49|50)% (3,9\d\d|4,000) records, 1,000/s .* left$", terminal.shown[-1])


def test_where_nobody_knows_the_whole_the_count_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_a_terminal(monkeypatch)
    work(30, each_s=1)
    assert terminal.shown[-1].endswith("30 records, 1/s")


def test_into_a_pipe_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    work(30, each_s=1, total=60)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("at", "first", "expected"),
    [
        (NOON, NOON, 0.0),
        (NOON + timedelta(minutes=15), NOON, 0.25),
        (NOON + timedelta(hours=2), NOON, 1.0),
        (NOON - timedelta(hours=1), NOON, 0.0),
        (None, NOON, None),
        (NOON, None, None),
        (NOON, NOON + timedelta(hours=1), None),
    ],
)
def test_how_far_a_reading_is(at: datetime | None, first: datetime | None, expected: float | None) -> None:
    assert share_between(at, first, NOON + timedelta(hours=1)) == expected


COMMANDS = {
    "export": ("journal", "export", "{file}"),
    "redrive": ("redrive", "stream", "--all", "--dry-run"),
    "requeue": ("dead", "requeue", "--all", "--dry-run"),
    "replay": ("replay", "stream", "--until", "0"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("is_terminal", [True, False], ids=["terminal", "pipe"])
def test_long_commands_show_it_beside_their_result(
    name: str,
    is_terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from slicebus.cli.main import main

    monkeypatch.setattr(progress, "QUIET_S", 0.0)
    monkeypatch.setenv("AMQP_URL", URL)
    arguments = [word.format(file=tmp_path / "export.jsonl") for word in COMMANDS[name]]
    monkeypatch.setattr(sys, "argv", ["slicebus", *arguments])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    terminal = in_a_terminal(monkeypatch) if is_terminal else None
    with broker(journal=recorded(), dead=recorded()), pytest.raises(SystemExit):
        main()
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    if terminal is not None:
        assert "/s " in terminal.getvalue()
        assert "\x1b[" in terminal.getvalue()
    else:
        assert "/s " not in err
        assert "\x1b" not in err
