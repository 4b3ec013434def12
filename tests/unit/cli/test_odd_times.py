"""Whoever sends a message chooses its time: one at either end of the years is shown, and ends no command."""

import time
from datetime import UTC, datetime

import pytest

from slicebus.bus.contract import Record
from slicebus.bus.dead_letters.headers import TIME_HEADER
from slicebus.bus.dead_letters.letters import DeadLetter
from slicebus.cli.durations import local_time
from slicebus.cli.journal.entry_lines import line
from slicebus.journal.entry import Entry
from slicebus.proto.envelope import WireMessage
from slicebus.proto.headers import PREFIX

ODD = ["9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z"]


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_it_is_shown(text: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        headers = {f"{PREFIX}time": text, TIME_HEADER: text}
        message = WireMessage(routing_key="east.status", body=b"{}", headers=headers, message_id="1")
        entry = Entry.from_record(Record(offset=1, message=message, timestamp=datetime.now(UTC)))
        assert line(entry).plain
        letter = DeadLetter.from_message(message)
        assert letter.at is None or local_time(letter.at)
    finally:
        monkeypatch.undo()
        time.tzset()
