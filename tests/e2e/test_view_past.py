"""Pages of `slicebus view` at a time in the past, in Debian's Chromium."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser

from slicebus.ambient.clock import now
from slicebus.cli.demo.world import World
from slicebus.cli.journal.source import records_of_file
from slicebus.cli.view.pages.timeline import address_of
from slicebus.cli.view.past_moments import PastMoments
from slicebus.kube.client import KubeClient, Timeouts
from support.browser import DESK, PHONE, Looker, chromium, looking
from support.scenario import Scenario, set_quota
from support.view import Served, a_state, an_hour, fill_journal, still_view, viewing
from support.waiting import eventually
from unit.cli.hostile import NAMED
from unit.cli.test_view_pages import busy
from unit.cli.test_view_past import LIFE, PAGES, at, spoiled

JOB = "/jobs/Job/team-a/sweep"


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


class Grown(msgspec.Struct, frozen=True):
    """A view of a fleet whose job had another size."""

    view: Served
    job: Scenario
    small: datetime
    """When it had one pod."""


@pytest.fixture
async def grown(world: World, urls: dict[str, str], kubeconfig: Path) -> AsyncIterator[Grown]:
    """Its job `sweep` has grown from one pod to two."""
    reader = urls["manager"].replace("//manager@", "//viewer@")
    await set_quota(world, 4)
    job = Scenario(world, "Job", "sweep")
    async with (
        await KubeClient.connect(kubeconfig=kubeconfig, timeouts=Timeouts(retry_s=1.0)) as client,
        viewing(client, amqp_url=reader) as view,
    ):

        async def small_moment() -> datetime | None:
            moment = now()
            fleet = await PastMoments(reader).fleet(moment)
            return moment if [(row.state, row.ready) for row in fleet.rows] == [("Running", 1)] else None

        await job.submit()
        await job.expect_pods(running=1)
        small = await eventually(small_moment, "the manager has recorded that the pod is ready")
        assert small is not None
        await job.scale(2)
        await job.expect_pods(running=2)
        yield Grown(view, job, small)


async def sizes(looker: Looker) -> list[str]:
    """Wanted, granted and ready, of the only job on the page."""
    return await looker.page.locator("tr[data-row] td.number").all_inner_texts()


@pytest.mark.real
async def test_a_deep_link_shows_the_moment_and_stays_so(grown: Grown, browser: Browser) -> None:
    async with looking(browser, grown.view) as looker:
        asked: list[str] = []
        looker.page.on("request", lambda request: asked.append(request.url))
        await looker.go("/jobs")
        await looker.page.locator("td[data-title=Ready]", has_text="2").wait_for()
        asked.clear()
        await looker.go(f"/jobs?name=sweep&at={address_of(grown.small)}")
        assert await sizes(looker) == ["1", "1", "1"]
        assert "The past: as it was at" in await looker.text()
        await grown.job.scale(3)
        await grown.job.expect_pods(running=3)
        assert await sizes(looker) == ["1", "1", "1"]
        await looker.page.wait_for_timeout(1500)
        assert not [url for url in asked if url.endswith("/events")], "nothing of the present comes in"
        assert await looker.page.inner_text("#stream") == "the past"

        await looker.page.get_by_role("link", name="team-a/sweep").click()
        await looker.page.wait_for_url(f"**{JOB}?at=*")
        await looker.page.locator(".chart svg").first.wait_for()
        assert "resize main" not in await looker.text(), "what came later"
        await looker.page.keyboard.press("g")
        await looker.page.keyboard.press("j")
        await looker.page.wait_for_url("**/jobs?at=*")
        await looker.page.keyboard.press("n")
        await looker.page.wait_for_url("**/jobs")
        await looker.page.locator("td[data-title=Ready]", has_text="3").wait_for()
        await looker.expect("live")
        assert looker.complaints == []


async def test_the_slider_by_keyboard(grown: Grown, browser: Browser) -> None:
    async with looking(browser, grown.view) as looker:
        page = looker.page
        await looker.go("/jobs?name=sweep")
        await page.locator("#slider").wait_for()
        await page.keyboard.press("p")
        assert await held(looker) == ("slider", "now")
        await page.keyboard.press("Home")
        await page.wait_for_url("**at=*")
        await page.locator("#past").wait_for()
        assert "name=sweep" in page.url, "it keeps the filters"
        first = datetime.fromisoformat(await page.input_value("#moment"))
        assert await held(looker) == ("slider", address_of(first)), "it can be moved on"
        assert await page.locator("h1").inner_text() == "Jobs", "the journal knows its first moment"
        step = timedelta(seconds=int(await page.get_attribute("#slider", "step") or ""))
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowRight")
        later = address_of(first + 2 * step)
        assert await held(looker) == ("slider", later), "it says where it is before it goes there"
        await page.wait_for_url(lambda url: later.replace(":", "%3A") in url)
        await page.locator("#past").wait_for()
        await page.keyboard.press("End")
        await page.wait_for_url("**/jobs?name=sweep")
        await page.locator("td[data-title=Ready]", has_text="2").wait_for()
        await looker.expect("live")
        assert looker.complaints == []


async def held(looker: Looker) -> tuple[str, str]:
    """What has the focus, and what it says to who does not see."""
    element = "document.activeElement"
    found = await looker.page.evaluate(f"[{element}.id, {element}.getAttribute('aria-valuetext')]")
    return found[0], found[1]


async def test_a_time_can_be_typed_without_a_script(grown: Grown, browser: Browser) -> None:
    context = await browser.new_context(java_script_enabled=False)
    try:
        page = await context.new_page()
        await page.goto(grown.view.address)
        await page.goto(f"{grown.view.site}/jobs?name=sweep")
        assert not await page.locator("#slider").is_visible()
        await page.fill("#moment", address_of(grown.small))
        await page.keyboard.press("Enter")
        await page.locator("#past").wait_for()
        assert await page.locator("tr[data-row] td.number").all_inner_texts() == ["1", "1", "1"]
        assert "name=sweep" in page.url
        await page.click("#now")
        await page.locator("#past").wait_for(state="detached")
    finally:
        await context.close()


async def test_a_moment_before_the_journal_says_what_there_is(grown: Grown, browser: Browser) -> None:
    async with looking(browser, grown.view) as looker:
        assert await looker.go(f"/jobs?at={address_of(now() - timedelta(days=400))}") == 400
        said = await looker.text()
        assert "is before the first record; the journal has records from " in said
        assert "team-a/sweep" not in said
        assert await looker.findings() == []
        await looker.page.click("#now")
        await looker.expect("team-a/sweep")


# --- a recording of long ago ------------------------------------------------------------------------------------------


async def test_every_page_of_the_past_is_usable_by_anybody_on_any_screen(broker_name: str, browser: Browser) -> None:
    url, first = fill_journal(broker_name, records_of_file(str(LIFE))), now() - timedelta(hours=1)
    async with still_view(a_state(busy()), an_hour(), amqp_url=url, first=first) as view:
        for theme in ("light", "dark"):
            for size in (PHONE, DESK):
                async with looking(browser, view, size=size, theme=theme) as looker:
                    for path in PAGES:
                        assert await looker.go(f"{path}?at={at(15.5)}") == 200
                        await looker.page.locator("#slider").wait_for()
                        assert "The past: as it was at 2026-01-01 00:00:15 UTC" in await looker.text()
                        assert await looker.findings() == [], (path, theme)
                        assert await looker.width_past_screen() <= 0, (path, size["width"])
                    assert looker.complaints == []


async def test_hostile_texts_of_the_past_do_nothing(broker_name: str, browser: Browser) -> None:
    for number, text in enumerate((NAMED["tags"], NAMED["bidirectional"], "</svg><script>alert(2)</script>")):
        url = fill_journal(f"{broker_name}-{number}", spoiled(list(records_of_file(str(LIFE))), text))
        async with (
            still_view(a_state(busy()), an_hour(), amqp_url=url, first=now() - timedelta(hours=1)) as view,
            looking(browser, view) as looker,
        ):
            for path in PAGES:
                assert await looker.go(f"{path}?at={at(15.5)}") == 200
                assert await looker.page.locator("script:not([src]), main img, main script").count() == 0
                assert await looker.width_past_screen() <= 0
            assert looker.complaints == []
            await looker.page.evaluate(
                "text => { const a = new URL(location); a.searchParams.set('at', text); location = a; }", text
            )
            await looker.expect("That cannot be asked")
            assert await looker.page.locator("script:not([src]), main img, main script").count() == 0
