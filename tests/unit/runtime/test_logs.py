"""The logs of a process: one line an event, from a level on, libraries included."""

import logging
from collections.abc import Iterator

import orjson
import pytest
import structlog

from slicebus.runtime.logs import configure_logging


@pytest.fixture(autouse=True)
def configured_anew() -> Iterator[None]:
    """Logging is the process' own: put back what was there."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


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
