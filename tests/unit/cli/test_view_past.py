"""`slicebus view` at a time in the past: `?at=`, from the journal alone."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec
import pytest

from slicebus.ambient.clock import now
from slicebus.bus.contract import Record
from slicebus.cli.durations import local_time
from slicebus.cli.journal.source import records_of_file
from slicebus.cli.view import past_moments
from slicebus.cli.view.pages.timeline import address_of, slider_of
from slicebus.cli.view.past_moments import PastMoments, Recent
from slicebus.proto.errors import UnavailableError
from slicebus.sandbox.bus import MemoryBroker
from support.view import Served, a_state, an_hour, fill_journal, still_view
from unit.cli.hostile import NAMED, is_harmless
from unit.cli.test_view_pages import busy, tags

REPLAYS = Path(__file__).parents[2] / "replays"
LIFE, KUEUE = REPLAYS / "life-of-a-job.jsonl.gz", REPLAYS / "beside-kueue.jsonl.gz"
JOB = "/jobs/Job/team-a/job-a"
PAGES = ("/", "/jobs", JOB, "/queues", "/queues/batch", "/messages", "/clusters/east", "/keys")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> str:
    """The moment of a recording as addresses name it."""
    return address_of(BEGAN + timedelta(seconds=second))


class Browser:
    """Asks a view whose present has nothing of the recording."""

    def __init__(self, session: aiohttp.ClientSession, view: Served) -> None:
        self.session = session
        self.view = view

    async def get(self, path: str, moment: str = "", *, status: int = 200) -> str:
        """The text of a page."""
        query = {"at": moment} if moment else {}
        async with self.session.get(self.view.site + path, params=query) as answer:
            text = await answer.text()
            assert answer.status == status, text
            return text


@asynccontextmanager
async def browsing(
    url: str | None, *, ledger: str | None = None, first: datetime | None = None
) -> AsyncIterator[Browser]:
    state = a_state(busy(), lost="the present is not the past")
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        still_view(state, an_hour(), amqp_url=url, ledger=ledger, first=first) as view,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        async with session.get(view.address) as answer:
            assert answer.status == 200
        yield Browser(session, view)


@pytest.fixture
def life(broker_name: str) -> str:
    """The address of a broker that has the life of a job, of long ago."""
    return fill_journal(broker_name, records_of_file(str(LIFE)))


def said(page: str) -> str:
    """What a page says, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


# --- what was so then -------------------------------------------------------------------------------------------------


async def test_a_page_shows_what_it_would_have_shown_and_says_so(life: str) -> None:
    async with browsing(life) as browser:
        jobs = said(await browser.get("/jobs", at(15.5)))
        assert "The past : as it was at 2026-01-01 00:00:15 UTC , " in jobs
        assert "d ago, by the journal alone. Back to now" in jobs
        assert "team-a/job-a Job Resizing batch east 20 3 3 11s Pending: couldn't assign flavors" in jobs
        assert "team-a/job-a Job Running batch east 1 1" in said(await browser.get("/jobs", at(8)))
        assert "The manager knew of no jobs." in said(await browser.get("/jobs", at(33)))
        job = said(await browser.get(JOB, at(15.5)))
        assert "What would admit it" in job
        assert "waits since 2026-01-01T00:00:12Z, for 3s" in job
        assert "main=20, replaces job-job-a-b0ea5, 3s old" in job
        assert "waited from 00:00:12 on, 3.46 s so far" in job, "the wait on the chart ends with the moment"
        queue = said(await browser.get("/queues/batch", at(15.5)))
        assert "1 team-a/job-a main=20 0 3s couldn't assign flavors" in queue
        assert "east connected" in said(await browser.get("/clusters/east", at(15.5)))


async def test_nothing_of_the_present_is_on_a_page_of_the_past(life: str) -> None:
    async with browsing(life) as browser:
        assert "manager-1 leads" in await browser.get("/")
        for path in PAGES:
            page = await browser.get(path, at(15.5))
            for present in ("manager-1", "the present is not the past", "team/train", "stream lost", "no script"):
                assert present not in page, path
            assert ("The past" in page, "the rights of your kubeconfig" in page) == (True, False)


async def test_what_nobody_knows_of_the_moment_is_said(life: str) -> None:
    async with browsing(life) as browser:
        fleet = said(await browser.get("/", at(15.5)))
        assert "recorded last at 00:00:15 UTC; who led is not known of that moment" in fleet
        assert "Dead letters not known of that moment" in fleet
        assert "Journal is read up to that moment" in fleet
        assert "Its Events are left out: they are not known of that moment." in await browser.get(
            "/clusters/east", at(15.5)
        )
        assert "As of" not in fleet


async def test_messages_are_those_of_the_hour_before(life: str) -> None:
    async with browsing(life) as browser:
        first, second = [said(await browser.get("/messages", at(second))) for second in (8, 15.5)]
        assert ("main=3 -> main=20" in first, "main=3 -> main=20" in second) == (False, True)
        times = [re.findall(r"\d\d:\d\d:\d\d\.\d{3}", page) for page in (first, second)]
        assert max(times[0]) <= "00:00:08.000"
        assert "00:00:12.000" < max(times[1]) <= "00:00:15.500"


async def test_beside_a_kueue_the_queues_are_not_known(broker_name: str) -> None:
    async with browsing(fill_journal(broker_name, records_of_file(str(KUEUE)))) as browser:
        told = "a Kueue admits here: the manager's journal does not have its queues"
        for path in ("/queues", "/queues/batch"):
            assert told in said(await browser.get(path, at(15), status=400))
        assert told.replace("a ", "A ", 1) in said(await browser.get("/", at(15)))
        assert "Job" in said(await browser.get("/jobs", at(15)))


async def test_a_moment_at_which_no_manager_worked_is_told(broker_name: str) -> None:
    records = [
        record
        for record in records_of_file(str(LIFE))
        if record.timestamp and record.timestamp < BEGAN + timedelta(seconds=9)
    ]
    async with browsing(fill_journal(broker_name, records)) as browser:
        fleet = said(await browser.get("/", address_of(BEGAN + timedelta(minutes=30))))
        assert "no manager recorded anything from 2026-01-01 " in fleet
        assert "on: this is what it knew then" in fleet
        assert "cluster east is unknown" in fleet
        assert "1 job of unknown state" in fleet


# --- moments ----------------------------------------------------------------------------------------------------------


async def test_moments_that_the_journal_does_not_know(life: str) -> None:
    first = local_time(BEGAN + timedelta(seconds=1))
    early, late = BEGAN - timedelta(hours=1), now() + timedelta(days=1)
    async with browsing(life) as browser:
        for moment, why in ((early, "is before the first record"), (late, "is in the future")):
            for path in PAGES[:-1]:
                page = said(await browser.get(path, address_of(moment), status=400))
                assert f"at {local_time(moment)}: {why}; the journal has records from {first} to now" in page
                assert ("manager-1" in page, "The past" in page) == (False, True)
        page = said(await browser.get("/jobs", "noon", status=400))
        assert "at noon: use 03:00, -15m, or a date with its zone such as 2026-01-31T03:00:00Z" in page
        assert ("manager-1" in page, "not live" in page, "The past" in page) == (False, True, False)
        for nonsense in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-01T00:00:00", "-9999999d", "\u0661"):
            assert "That cannot be asked" in await browser.get("/jobs", nonsense, status=400)
        assert "there is no job" in said(await browser.get("/jobs/Job/team-a/jbo-a", at(8), status=404))


async def test_without_a_broker_it_says_so_and_has_no_slider() -> None:
    async with browsing(None) as browser:
        page = said(await browser.get("/jobs", at(8), status=400))
        assert "AMQP_URL is not set: name the broker, or an exported file" in page
        assert 'id="time"' not in await browser.get("/jobs")


async def test_a_broker_that_is_away_is_told() -> None:
    async with browsing("amqp://nobody@127.0.0.1:1/") as browser:
        assert "Nothing can be read now" in said(await browser.get("/jobs", at(8), status=503))


async def test_a_moment_that_moves_becomes_one_that_stays(life: str) -> None:
    async with browsing(life) as browser:
        address = f"{browser.view.site}/jobs?name=a&at=-15m"
        async with browser.session.get(address, allow_redirects=False) as answer:
            where = urlsplit(answer.headers["Location"])
            assert (answer.status, where.netloc, where.path) == (303, "", "/jobs")
        query = parse_qs(where.query)
        moment = datetime.fromisoformat(query["at"][0])
        assert query["name"] == ["a"]
        assert timedelta(minutes=14) < now() - moment < timedelta(minutes=20)
        assert moment.microsecond == 0


# --- staying at a moment ----------------------------------------------------------------------------------------------


async def test_every_link_and_form_keeps_the_moment(life: str) -> None:
    moment = at(15.5)
    async with browsing(life, first=now() - timedelta(hours=1)) as browser:
        for path in (*PAGES, "/jobs?name=job", "/jobs?name=nothing", "/messages?type=status", "/jobs/Job/team-a/no"):
            query = dict.fromkeys(["at"], moment) | {
                name: one[0] for name, one in parse_qs(urlsplit(path).query).items()
            }
            async with browser.session.get(browser.view.site + urlsplit(path).path, params=query) as answer:
                page = await answer.text()
            links = [unescape(href) for href in re.findall(r'href="([^"#][^"]*)"', page) if "/static/" not in href]
            assert len(links) > 6
            others = [href for href in links if parse_qs(urlsplit(href).query).get("at") != [moment]]
            assert others == [path], "the way back to now, with the filters"
            forms = re.findall(r"<form.*?</form>", page, re.DOTALL)
            assert forms
            assert all(f'name="at" value="{moment}"' in form for form in forms), path


async def test_pages_of_the_present_name_no_moment(life: str) -> None:
    async with browsing(life) as browser:
        for path in ("/", "/jobs", "/jobs/Job/team/train", "/queues", "/messages"):
            page = await browser.get(path)
            assert ("at=" in page, "data-at" in page, 'id="past"' in page) == (False, False, False)
            assert 'name="at" value=""' in page


@pytest.mark.parametrize(
    ("ago_s", "at_s", "expected"),
    [(3600, None, (0, 3600, 15, 3600)), (3600, 1800, (0, 3600, 15, 1800)), (100, None, (0, 100, 1, 100))],
)
def test_the_slider_goes_from_the_first_record_to_now(
    ago_s: int, at_s: int | None, expected: tuple[int, int, int, int]
) -> None:
    shown = BEGAN + timedelta(seconds=at_s) if at_s is not None else None
    slider = slider_of(BEGAN, BEGAN + timedelta(seconds=ago_s), shown)
    assert slider is not None
    began = int(BEGAN.timestamp())
    assert (slider.first - began, slider.last - began, slider.step, slider.value - began) == expected


def test_the_slider_reaches_the_moment_that_is_shown() -> None:
    long_ago = BEGAN - timedelta(days=30)
    slider = slider_of(BEGAN, BEGAN + timedelta(hours=1), long_ago)
    assert slider is not None
    assert slider.first == slider.value == int(long_ago.timestamp())
    assert slider.last >= int((BEGAN + timedelta(hours=1)).timestamp())
    assert (slider.last - slider.first) % slider.step == 0
    assert slider_of(None, BEGAN, None) is slider_of(BEGAN, BEGAN, None) is None


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_moment_is_read_once(life: str, broker_name: str) -> None:
    async with browsing(life) as browser:
        for path in ("/jobs", "/messages"):
            await browser.get(path, at(15.5))
        MemoryBroker.named(broker_name).streams.clear()
        for path in PAGES:
            await browser.get(path, at(15.5))


async def test_one_moment_is_read_at_a_time(life: str) -> None:
    moments = PastMoments(life)
    when = [BEGAN + timedelta(seconds=second) for second in (8, 15.5, 8, 25)]
    fleets = await asyncio.gather(*map(moments.fleet, when))
    assert fleets[0] is fleets[2]
    assert [len(fleet.rows) for fleet in fleets] == [1, 1, 1, 1]


async def test_a_reading_that_takes_too_long_ends_with_a_plain_message(
    life: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    for reading in ("find_past", "read_hour"):
        monkeypatch.setattr(past_moments, reading, never)
    moments, told = PastMoments(life, most_s=0.0), "the journal was not read within 0 s; `slicebus jobs --at` waits"
    with pytest.raises(UnavailableError, match=told):
        await moments.fleet(BEGAN + timedelta(seconds=8))
    assert told in (await moments.hour(BEGAN + timedelta(seconds=8))).problem


async def test_a_moment_that_may_get_more_records_is_read_again(life: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moments, moment = PastMoments(life), BEGAN + timedelta(seconds=8)
    monkeypatch.setattr(past_moments, "now", lambda: moment + timedelta(seconds=1))
    first = await moments.fleet(moment)
    monkeypatch.undo()
    second = await moments.fleet(moment)
    assert first is not second
    assert await moments.fleet(moment) is second


async def test_a_moment_that_nobody_waits_for_is_not_read_on(life: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def endless(*_: object, **__: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(past_moments, "find_past", endless)
    async with browsing(life) as browser, asyncio.timeout(20):
        asking = asyncio.create_task(browser.get("/jobs", at(8)))
        await begun.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await ended.wait()


def test_what_is_kept_is_bounded() -> None:
    recent = Recent[int, str](10)
    for number in range(3):
        recent.put(number, "x", 5)
    assert [recent.get(number) for number in range(3)] == [None, "x", "x"]
    assert recent.get(1) == "x"
    recent.put(3, "x", 5)
    assert [recent.get(number) for number in range(4)] == [None, "x", None, "x"]
    recent.put(4, "large", 50)
    assert [recent.get(number) for number in range(5)] == [None, None, None, None, "large"]


# --- hostile texts ----------------------------------------------------------------------------------------------------


def spoiled(records: Sequence[Record], text: str) -> list[Record]:
    """The same records, with a text in the place of each message of a condition."""
    encoded = b'"message":' + msgspec.json.encode(text)

    def changed(record: Record) -> Record:
        body = re.sub(rb'"message":"[^"\\\\]*"', lambda _: encoded, record.message.body)
        return msgspec.structs.replace(record, message=msgspec.structs.replace(record.message, body=body))

    return [changed(record) for record in records]


@pytest.mark.parametrize("name", ["clears the screen", "bidirectional", "tags", "a template", "another line"])
async def test_hostile_texts_of_the_past_are_texts(name: str, life: str) -> None:
    records = spoiled(list(records_of_file(str(LIFE))), NAMED[name])
    hostile = fill_journal("hostile", records)
    try:
        async with browsing(life) as ordinary, browsing(hostile) as browser:
            allowed = set().union(*[tags(await ordinary.get(path, at(15.5))) for path in PAGES])
            for path in PAGES:
                page = await browser.get(path, at(15.5))
                assert is_harmless(page), path
                assert tags(page) <= allowed, path
            for query in ({"at": NAMED[name]}, {"at": at(8), NAMED[name]: NAMED[name]}):
                async with browser.session.get(f"{browser.view.site}/jobs", params=query) as answer:
                    page = await answer.text()
                    assert is_harmless(page)
                    assert tags(page) <= allowed
    finally:
        MemoryBroker.forget("hostile")
