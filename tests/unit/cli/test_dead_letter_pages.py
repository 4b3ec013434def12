"""Dead letters as people and programs see them."""

import subprocess
import sys
from datetime import timedelta

import msgspec
import pytest

from slicebus.cli.dead_letters.pages import in_full, table, to_json
from slicebus.cli.durations import age_text, duration
from slicebus.proto.envelope import WireMessage
from slicebus.proto.errors import ConfigurationError
from unit.bus.letters import NOON, dead, letter, wire


def test_a_table_has_a_line_for_each_letter() -> None:
    lines = [line.plain for line in table([letter(id="0123-456789abcdef", minutes_ago=5), letter("w.x")], NOON)]
    assert lines[0].split() == ["ID", "WHEN", "AGE", "CLUSTER", "TYPE", "SUBJECT", "REASON", "DETAIL"]
    assert lines[1].split()[0] == "456789abcdef"
    assert lines[1].split()[3:] == ["5m", "east", "scale-request", "Job/team/train", "unknown-cluster", "why"]
    assert len({line.index(word) for line, word in zip(lines, ("REASON", "unknown", "unknown"), strict=True)}) == 1


def test_a_sender_cannot_control_the_terminal_or_the_markup() -> None:
    evil = letter("east.\x1b[2J", detail="[red]\x1b]0;title\x07 amqp://u:secret@host/")
    [_, line] = table([evil], NOON)
    assert "\x1b" not in line.plain
    assert "[red]" in line.plain
    assert "secret" not in line.plain
    assert "\x1b" not in in_full(dead(wire("east.\x1b", id="\x1b"), detail="\x1b"), NOON, redact=True)


def test_json_has_everything_but_the_body() -> None:
    told = to_json(letter(minutes_ago=5), NOON)
    assert told == {
        "id": "id-1",
        "at": "2026-01-31T11:55:00+00:00",
        "age_s": 300.0,
        "cluster": "east",
        "type": "scale-request",
        "subject": "Job/team/train",
        "reason": "unknown-cluster",
        "detail": "why",
        "queue": "slicebus.manager.control",
        "by": "manager",
    }


def body(text: bytes) -> WireMessage:
    return msgspec.structs.replace(dead(), body=text)


SECRET = b'{"env":[{"name":"DB_PASSWORD","value":"hunter2"}]}'


@pytest.mark.parametrize(
    ("message", "redact", "there", "absent"),
    [
        pytest.param(dead(minutes_ago=5), True, '{\n  "a": 1\n}', "\x1b", id="indented"),
        pytest.param(dead(minutes_ago=5), True, "5m ago", "\x1b", id="age"),
        pytest.param(dead(), True, "slicebus-user-id: east", "\x1b", id="headers"),
        pytest.param(body(SECRET), True, "(redacted)", "hunter2", id="secrets are taken out"),
        pytest.param(body(SECRET), False, "hunter2", "(redacted)", id="unless they are asked for"),
        pytest.param(body(b"{password: hunter2"), True, "18 bytes that are not JSON", "hunter2", id="not JSON"),
        pytest.param(body(b"{password: hunter2\x1b"), False, "hunter2", "\x1b", id="not JSON, asked for"),
        pytest.param(body(b"[" * 300 + b'"hunter2"' + b"]" * 300), True, "(redacted)", "hunter2", id="too deep"),
    ],
)
def test_a_letter_in_full(message: WireMessage, redact: bool, there: str, absent: str) -> None:
    text = in_full(message, NOON, redact=redact)
    assert there in text
    assert absent not in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_800, "2d")]
)
def test_ages_are_short(seconds: int, text: str) -> None:
    assert age_text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("3d", 259_200)])
def test_durations_are_read(text: str, seconds: int) -> None:
    assert duration(text, option="--older-than") == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "-1m", "1.5h", "10 m", "9999999d"])
def test_an_invalid_duration_names_its_option(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--older-than"):
        duration(text, option="--older-than")


def test_the_command_needs_no_kubernetes_client() -> None:
    code = "import sys, slicebus.cli.dead_letters.command; print('slicebus.kube.client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "False"


def test_a_letter_in_full_shows_no_secret_of_its_headers() -> None:
    message = WireMessage(routing_key="east.status", body=b"{}", headers={"x-api-token": "hunter2"})
    assert "hunter2" not in in_full(message, NOON, redact=True)
    assert "hunter2" in in_full(message, NOON, redact=False)
