"""Every recording in this folder is decided by this version as it says."""

from pathlib import Path

import pytest

from slicebus.cli.recorded import records_of_file
from slicebus.cli.replaying import MODELS
from slicebus.process.replay import Replayer

RECORDINGS = sorted(Path(__file__).parent.glob("*.jsonl*"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_the_recording_is_decided_the_same(recording: Path) -> None:
    replayer, count = Replayer(MODELS), 0
    for made in replayer.feed_together(records_of_file(str(recording))):
        count += 1
        assert made.same, (
            f"{recording.name} at {made.position}: {made.source} decided {made.what}\n"
            f"from     {made.given.decode()}\nto be    {made.recorded.decode()}\nand now  {made.made.decode()}"
            f"{made.problem}\nIf that is meant: slicebus replay {recording.name} --accept"
        )
    assert count, "nothing in it can be made again"


def test_there_are_recordings() -> None:
    assert RECORDINGS
