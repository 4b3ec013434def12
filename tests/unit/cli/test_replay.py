"""`slicebus replay` on exported files."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from slicebus.cli.main import app
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.replay import Replayer
from slicebus.journal.export import from_line

LIFE = gzip.decompress((Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz").read_bytes()).splitlines()
CHANGED = [line.replace(b"Quota reserved in ClusterQueue", b"Quota set in ClusterQueue") for line in LIFE]
MADE = list(Replayer(MODELS).feed_together(map(from_line, LIFE)))
FIRST = next(number for number, made in enumerate(MADE, start=1) if b"Quota reserved in ClusterQueue" in made.recorded)
BROKEN = b"not a line"
FILES: dict[str, tuple[Sequence[bytes], int, str]] = {
    "all as it was": (LIFE, 0, f"{len(MADE)} decisions made again, none differs"),
    "something that differs": (CHANGED, 1, f"decision {FIRST} differs"),
    "a broken line": ([*LIFE, BROKEN], 1, f"line {len(LIFE) + 1}: not a line of slicebus.journal/1"),
    "a broken line after what differs": ([*CHANGED, BROKEN], 1, f"decision {FIRST} differs"),
    "a broken line before what differs": ([BROKEN, *CHANGED], 1, "line 1: not a line of slicebus.journal/1"),
    "nothing": ([], 1, "no decision in it can be made again"),
}


def replay(file: Path, *options: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["replay", str(file), *options])


@pytest.mark.parametrize("options", [(), ("--state",)], ids=["in windows", "one by one"])
@pytest.mark.parametrize(("lines", "status", "said"), FILES.values(), ids=FILES.keys())
def test_a_replay_stops_at_the_first_difference_or_unreadable_record(
    tmp_path: Path, lines: Sequence[bytes], status: int, said: str, options: Sequence[str]
) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    done = replay(file, *options)
    assert done.exit_code == status, done.output
    assert said in f"{done.output}{done.exception}"


def test_what_is_believed_is_that_of_where_it_stops(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    file.write_bytes(b"".join(line + b"\n" for line in CHANGED))
    assert "1 of 1 jobs are not seen alike" in replay(file, "--state").output
    file.write_bytes(b"".join(line + b"\n" for line in LIFE))
    assert "all jobs are seen alike" in replay(file, "--state").output
