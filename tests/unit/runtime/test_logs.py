"""The logs of a process: one line an event, from a level on, libraries included."""

import logging
import re

import orjson
import pytest
import structlog
from structlog.testing import capture_logs

from slicebus.runtime.logs import LogFormat, configure_logging


@pytest.mark.parametrize("turn", [1, 2])
def test_what_one_test_configures_hides_no_log_from_the_next(turn: int) -> None:
    with capture_logs() as logs:
        structlog.get_logger().error("heard", turn=turn)
    assert logs == [{"event": "heard", "log_level": "error", "turn": turn}]
    configure_logging(level="CRITICAL")


def test_an_event_is_one_json_object_with_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    structlog.get_logger().warning("slice.admitted", cluster="east", count=5)
    [line] = capsys.readouterr().err.splitlines()
    event = orjson.loads(line)
    assert event.pop("timestamp").endswith("Z")
    assert event == {"event": "slice.admitted", "level": "warning", "cluster": "east", "count": 5}


def test_an_exception_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    try:
        raise ValueError("a bug")
    except ValueError:
        structlog.get_logger().exception("process.failed")
    [line] = capsys.readouterr().err.splitlines()
    assert "ValueError: a bug" in orjson.loads(line)["exception"]


LEVELS = ["debug", "info", "warning", "error", "critical"]


@pytest.mark.parametrize("threshold", LEVELS)
@pytest.mark.parametrize("upper", [str.upper, str.lower], ids=["upper", "lower"])
def test_levels_below_the_threshold_are_left_out(
    capsys: pytest.CaptureFixture[str], threshold: str, upper: type[str]
) -> None:
    configure_logging(level=upper(threshold))
    for level in LEVELS:
        structlog.get_logger().log(logging.getLevelNamesMapping()[level.upper()], "some.event")
    logged = [orjson.loads(line)["level"] for line in capsys.readouterr().err.splitlines()]
    assert logged == LEVELS[LEVELS.index(threshold) :]


@pytest.mark.parametrize(("threshold", "expected"), [("INFO", ["warning", "error"]), ("ERROR", ["error"])])
def test_libraries_log_from_warning_on(capsys: pytest.CaptureFixture[str], threshold: str, expected: list[str]) -> None:
    configure_logging(level=threshold)
    for level in ("info", "warning", "error"):
        getattr(logging.getLogger("aio_pika"), level)("the connection was lost")
    events = [orjson.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["level"] for event in events] == expected
    assert {(event["logger"], event["event"]) for event in events} == {("aio_pika", "the connection was lost")}


def test_the_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(format="console")
    structlog.get_logger().info("slice.admitted", cluster="east")
    [line] = capsys.readouterr().err.splitlines()
    assert "slice.admitted" in line
    assert "east" in line


@pytest.mark.parametrize("format", ["json", "console"])
def test_a_text_of_somebody_else_cannot_control_the_terminal(
    format: LogFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(format=format)
    structlog.get_logger().warning("message.refused", detail="\x1b]0;owned\x07\n\x9b31m\u202eevil")
    told = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)  # Colours are structlog's own.
    assert told.count("\n") == 1
    assert not [sign for sign in "\x1b\x07\x9b\u202e" if sign in told]


@pytest.mark.parametrize("level", ["INFO", "CRITICAL"])
def test_a_failed_connection_is_logged_by_who_retries_it_and_not_by_the_library_too(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(level=level)
    logging.getLogger("aiormq.connection").error("error when creating transport")
    assert capsys.readouterr().err == ""
