"""`slicebus view` at a moment of the past that the journal does not have, and a ledger has."""

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from slicebus.cli.journal.source import records_of_file
from slicebus.cli.past.ledger_rows import JOBS_NOT_KNOWN, QUEUES_NOT_KNOWN
from support.ledgers import ledger_of
from support.view import fill_journal
from unit.cli.hostile import NAMED, call, is_harmless
from unit.cli.test_view_pages import tags
from unit.cli.test_view_past import BEGAN, JOB, LIFE, at, browsing, said, spoiled

BEFORE = "is before the first record; the journal has records from "
OTHERS = ("/", JOB, "/queues/batch", "/messages", "/clusters/east")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a ledger of the life of a job."""
    return ledger_of(records_of_file(str(LIFE)), tmp_path_factory.mktemp("ledger") / "ledger.db")


@pytest.fixture
def rest(broker_name: str) -> str:
    """The address of a broker whose journal has lost the first ten seconds of that life."""
    lost = BEGAN + timedelta(seconds=10)
    kept = [record for record in records_of_file(str(LIFE)) if record.timestamp and record.timestamp > lost]
    return fill_journal(broker_name, kept)


async def test_jobs_and_queues_are_those_of_the_ledger(rest: str, ledger: str) -> None:
    async with browsing(rest, ledger=ledger) as browser:
        jobs = said(await browser.get("/jobs", at(8)))
        assert "The past : as it was at 2026-01-01 00:00:08 UTC , " in jobs
        assert "by the ledger alone. Back to now" in jobs
        assert "Read only, of the ledger." in jobs
        assert BEFORE in jobs
        assert JOBS_NOT_KNOWN in jobs
        assert "team-a/job-a Job Running batch east 1 1 3s" in jobs
        queues = said(await browser.get("/queues", at(8)))
        assert QUEUES_NOT_KNOWN in queues
        assert "by the ledger alone" in queues
        assert "batch reserved cpu 1 0 1" in queues


async def test_its_filters_are_those_of_the_command(rest: str, ledger: str) -> None:
    async with browsing(rest, ledger=ledger) as browser:

        async def asked(status: int = 200, **query: str) -> str:
            async with browser.session.get(f"{browser.view.site}/jobs", params={"at": at(8), **query}) as answer:
                assert answer.status == status
                return said(await answer.text())

        assert "team-a/job-a" in await asked(name="JOB", namespace="team-a", queue="batch", cluster="east")
        assert "No job is like this." in await asked(state="Pending")
        assert "did you mean batch?" in await asked(status=400, queue="bacth")


async def test_other_pages_say_that_it_may_know_jobs_and_queues(rest: str, ledger: str) -> None:
    async with browsing(rest, ledger=ledger) as browser:
        for path in OTHERS:
            page = await browser.get(path, at(8), status=400)
            assert BEFORE in said(page)
            assert "The ledger may know the jobs and the queues of that moment." in said(page)
            known = [unescape(href) for href in re.findall(r'<a href="([^"]+)">(?:jobs|queues)</a>', page)]
            assert [(urlsplit(href).path, parse_qs(urlsplit(href).query)) for href in known] == [
                ("/jobs", {"at": [at(8)]}),
                ("/queues", {"at": [at(8)]}),
            ]
    async with browsing(rest) as browser:
        assert "ledger" not in await browser.get("/", at(8), status=400)


async def test_the_journal_is_asked_first(broker_name: str, ledger: str) -> None:
    async with browsing(fill_journal(broker_name, records_of_file(str(LIFE))), ledger=ledger) as browser:
        jobs = said(await browser.get("/jobs", at(8)))
        assert "by the journal alone" in jobs
        assert JOBS_NOT_KNOWN not in jobs


async def test_without_a_broker_the_ledger_is_asked(ledger: str) -> None:
    async with browsing(None, ledger=ledger) as browser:
        jobs = said(await browser.get("/jobs", at(8)))
        assert "there is no journal to ask: the view has no broker" in jobs
        assert "team-a/job-a" in jobs
        assert 'id="time"' in await browser.get("/jobs"), "a moment can be typed"


async def test_a_moment_that_neither_knows(rest: str, ledger: str, tmp_path: Path) -> None:
    early = at(-3600)
    async with browsing(rest, ledger=ledger) as browser:
        for path in ("/jobs", "/queues"):
            page = said(await browser.get(path, early, status=400))
            assert re.search(r" at \S+ \S+: the ledger knows each job from 2026-01-01 ", page)
    async with browsing(rest, ledger=str(tmp_path / "gone.db")) as browser:
        assert "--ledger" in said(await browser.get("/jobs", at(8), status=400))


@pytest.mark.parametrize("name", ["clears the screen", "bidirectional", "tags", "a template", "another line"])
async def test_hostile_texts_of_a_ledger_are_texts(name: str, rest: str, ledger: str, tmp_path: Path) -> None:
    hostile = ledger_of(spoiled(list(records_of_file(str(LIFE))), NAMED[name]), tmp_path / "hostile.db")
    async with browsing(rest, ledger=ledger) as ordinary, browsing(rest, ledger=hostile) as browser:
        for path in ("/jobs", "/queues"):
            page = await browser.get(path, at(9.9))
            assert is_harmless(page)
            assert tags(page) <= tags(await ordinary.get(path, at(9.9)))


def test_an_address_that_cannot_work_ends_the_command(tmp_path: Path) -> None:
    done = call("view", "--ledger", str(tmp_path / "none.db"))
    assert done.status == 2
    assert done.err == f"slicebus: --ledger {tmp_path}/none.db: there is no such file; `slicebus ledger` makes it\n"
