"""A run is played twice, once with 20% more quota from the start: the journal of the first one tells of the second."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from whatif import past_of

from simulation import quiet
from simulation.quiet import QUOTA
from slicebus.bus.contract import Record
from slicebus.cli.whatif.ledger_reading import read_ledger
from slicebus.journal.recording import decode_batch
from slicebus.manager.decide.whatif.answer import CLOSE_S, reproduction, summary
from slicebus.manager.decide.whatif.chronicle import Chronicle
from slicebus.manager.decide.whatif.hypotheses import QuotaChange, amount_change
from slicebus.manager.decide.whatif.play import Play
from slicebus.manager.decide.whatif.recorded_past import RecordedPast
from slicebus.proto.topology import DECISIONS_TYPE
from support.ledgers import ledger_of

MORE = QuotaChange(text="", queue="batch", resource="cpu", flavor="reserved", amount=amount_change("+20%"))
journal_of = cache(quiet.journal_of)
USE = 0.05
"""How far the use of a flavor may be off."""


def starts(chronicle: Chronicle) -> dict[str, float]:
    """When each job started, in seconds since the run began."""
    return {
        story.job: story.started - chronicle.since for story in chronicle.jobs.values() if story.started is not None
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_the_answer_is_what_the_second_run_does(seed: int) -> None:
    """Without preemption nearly every job starts within five seconds of when it does with more quota."""
    before = past_of(journal_of(seed, cpu=QUOTA, preempts=False))
    after = past_of(journal_of(seed, cpu=QUOTA * 6 // 5, preempts=False))
    assert reproduction(before.was, Play(before).run()).share >= 0.95
    answered, real = Play(before, [MORE]).run(), after.was
    told, found, unchanged = starts(answered), starts(real), starts(before.was)
    assert told.keys() == found.keys()
    close = [job for job, at in found.items() if abs(told[job] - at) <= CLOSE_S]
    assert len(close) >= 0.95 * len(found)
    assert any(abs(unchanged[job] - at) > CLOSE_S for job, at in found.items()), "more quota changes nothing"
    one, two = summary("", answered, before.until), summary("", real, after.until)
    for said, was in zip(one.flavors, two.flavors, strict=True):
        assert said.used_hours == pytest.approx(was.used_hours, rel=USE, abs=0.01)


@pytest.mark.parametrize("seed", [1, 3])
def test_a_run_with_preemption_is_reproduced(seed: int) -> None:
    past = past_of(journal_of(seed, cpu=QUOTA, preempts=True))
    found = reproduction(past.was, played := Play(past).run())
    assert past.was.preemptions
    assert found.is_enough, found.differences
    assert found.order_share >= 0.95
    assert played.preemptions == pytest.approx(past.was.preemptions, rel=0.1)


def without_shard(shard: int, journal: Sequence[Record], *, after: float) -> list[Record]:
    """The journal without what a shard has recorded past that part of it."""
    late = {record.offset for record in journal[int(len(journal) * after) :]}
    return [record for record in journal if record.offset not in late or _shard_of(record) != shard]


def _shard_of(record: Record) -> int | None:
    if record.message.type != DECISIONS_TYPE:
        return None
    source = decode_batch(record.message).source
    return source.shard if source.role == "manager" else None


def test_any_shard_tells_what_was() -> None:
    """The first one ends in the middle of the run, or has recorded nothing; or the second one."""
    journal = journal_of(1, cpu=QUOTA, preempts=False, shards=2)
    whole = past_of(journal)
    found = {job: whole.since + at for job, at in starts(whole.was).items()}
    assert reproduction(whole.was, Play(whole).run()).share >= 0.95
    for shard, after in ((0, 0.5), (0, 0.0), (1, 0.0)):
        part = past_of(without_shard(shard, journal, after=after))
        assert part.interruptions == 0
        told = {job: part.since + at for job, at in starts(part.was).items()}
        assert told.keys() == found.keys()
        assert all(abs(told[job] - found[job]) <= 1.0 for job in found), (shard, after)


def kept_past(journal: list[Record], since: float, folder: Path) -> RecordedPast:
    """The past from then on of a ledger that has followed a journal."""
    return read_ledger(ledger_of(journal, folder / "ledger.db"), datetime.fromtimestamp(since, UTC))


@pytest.mark.parametrize(("seed", "preempts"), [(1, False), (1, True), (3, True)])
def test_a_ledger_plays_as_the_recording_does(seed: int, preempts: bool, tmp_path: Path) -> None:
    """Every admission is where the recording has it, and is reproduced as well."""
    journal = journal_of(seed, cpu=QUOTA, preempts=preempts)
    recorded = past_of(journal)
    kept = kept_past(journal, recorded.since, tmp_path)
    same = reproduction(recorded.was, kept.was)
    assert (same.share, same.order_share) == (1.0, 1.0), same.differences
    assert (kept.was.preemptions, kept.was.pods_killed) == (recorded.was.preemptions, recorded.was.pods_killed)
    one, two = (reproduction(past.was, Play(past).run()) for past in (recorded, kept))
    assert two.share >= one.share - 0.02, two.differences
    assert two.order_share >= one.order_share - 0.02


@pytest.mark.parametrize("preempts", [False, True])
def test_a_ledger_gives_the_answer_that_the_recording_gives(preempts: bool, tmp_path: Path) -> None:
    journal = journal_of(1, cpu=QUOTA, preempts=preempts)
    recorded = past_of(journal)
    kept = kept_past(journal, recorded.since, tmp_path)
    told, found = (starts(Play(past, [MORE]).run()) for past in (recorded, kept))
    close = [job for job, at in told.items() if abs(found[job] - at) <= CLOSE_S]
    assert len(close) >= 0.95 * len(told)
