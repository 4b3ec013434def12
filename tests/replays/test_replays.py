"""Every recording in this folder is decided by this version as it says."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from slicebus.bus.contract import Record
from slicebus.cli.journal.source import records_of_file
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.replay import Replayer
from slicebus.journal.recording import Decided, decode_batch, with_records
from slicebus.proto.topology import DECISIONS_TYPE

FOLDER = Path(__file__).parent
RECORDINGS = sorted(FOLDER.glob("*.jsonl*"))
ANEW = "If that is meant, record it anew: make recordings"
CONTENT: dict[str, set[tuple[str, bytes]]] = {
    "life-of-a-job": {("reconcile_job", b'"reason":"WorkloadSliceReplaced"'), ("reconcile_job", b'"type":"pending"')},
    "eviction": {
        ("apply_decision", b'"reason":"Preempted"'),
        ("reconcile_job", b'"type":"suspend"'),
        ("receive", b'"Suspended"'),
    },
    "ray-job": {
        ("reconcile_job", b'"type":"scale-request"'),
        ("reconcile_job", b"RayJob"),
        ("reconcile_job", b'"reason":"JobFinished"'),
    },
    "beside-kueue": {
        ("reconcile_job", b"Worker cluster west holds it"),
        ("reconcile_job", b'"type":"pending"'),
        ("move", b'"WorkerClusterDrained"'),
        ("apply_decision", b'"Retry"'),
        ("report_checks", b'"reason":"Active"'),
    },
    "lost-cluster": {
        ("assess_silent", b'"reason":"ClusterLost"'),
        ("move", b'"WorkerClusterLost"'),
        ("is_back", b"true"),
    },
}
"""Decisions that a recording is there for, and what comes of them."""


def problems(name: str, records: Iterable[Record]) -> list[str]:
    """What is wrong with a recording."""
    replayer, found, count = Replayer(MODELS), [], 0
    for made in replayer.feed_together(records):
        count += 1
        if not made.same:
            then, now = made.recorded.decode(), made.replayed.decode()
            found.append(
                f"{name} at {made.position}: {made.source} decided {made.what}\nfrom     {made.arguments.decode()}\n"
                f"to be    {then}\nand now  {now}{made.problem}\n{ANEW}\n"
                f"An incident's: slicebus replay tests/replays/{name} --accept"
            )
    if replayer.passed_over:
        found.append(f"{name}: {replayer.passed_over} decisions cannot be made again. {ANEW}")
    return found if count else [f"{name}: nothing in it can be made again. {ANEW}"]


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_the_recording_is_decided_the_same(recording: Path) -> None:
    found = problems(recording.name, records_of_file(str(recording)))
    assert not found, found[0]


@pytest.mark.parametrize("name", CONTENT)
def test_the_recording_has_what_it_is_there_for(name: str) -> None:
    [made, *more] = [
        [(each.what, each.recorded) for each in Replayer(MODELS).feed_together(records_of_file(str(path)))]
        for path in RECORDINGS
        if path.name.partition(".")[0] == name
    ]
    assert not more
    missing = [(what, text) for what, text in CONTENT[name] if not any(w == what and text in r for w, r in made)]
    assert not missing, f"{dict(Counter(what for what, _ in made))}\n{missing}"


def test_a_decision_that_the_code_no_longer_has_is_told() -> None:
    def renamed(record: Record) -> Record:
        if record.message.type != DECISIONS_TYPE:
            return record
        batch = decode_batch(record.message)
        records = tuple(
            Decided(what="gone", at=each.at, arguments=each.arguments, outcome=each.outcome)
            if isinstance(each, Decided) and each.what == "cycle"
            else each
            for each in batch.records
        )
        return Record(record.offset, with_records(record.message, batch, records), record.timestamp)

    found = problems("x", map(renamed, records_of_file(str(FOLDER / "life-of-a-job.jsonl.gz"))))
    assert found
    assert all(re.search(r"no decision gone\n.*make recordings", text) for text in found)
