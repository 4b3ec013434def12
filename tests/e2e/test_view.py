"""`slicebus view` in Debian's Chromium: on a fleet with jobs, and where something is missing or hostile."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from playwright.async_api import Browser

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, Timeouts
from slicebus.kube.resources import JOBS
from slicebus.proto.messages import Pending
from slicebus.sandbox.apiserver.status import ApiError
from support.browser import DESK, PHONE, Looker, chromium, looking
from support.installation import run_cli, slicebus
from support.processes import START_S
from support.refusing import refusing
from support.scenario import Scenario, set_quota
from support.view import Served, a_state, an_hour, still_view, viewing
from support.waiting import eventually
from unit.cli.hostile import NAMED
from unit.cli.test_view_pages import busy
from unit.journal.records import entry
from unit.journal.test_traces import pending, request, spec

WIDE = "/jobs/Job/team-a/wide"
PAGES = (
    "/",
    "/jobs",
    WIDE,
    "/queues",
    "/queues/batch",
    "/messages",
    "/clusters/east",
    "/keys",
    "/jobs/Job/team-a/wied",
)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest.fixture
async def view(world: World, urls: dict[str, str], kubeconfig: Path) -> AsyncIterator[Served]:
    """Of a fleet whose job `sweep` runs at its size, and whose job `wide` waits to grow."""
    await set_quota(world, 4)
    for name, size in (("sweep", 2), ("wide", 6)):
        job = Scenario(world, "Job", name)
        await job.submit()
        await job.expect_pods(running=1)
        await job.scale(size)
        await job.expect_pods(running=min(size, 2) if name == "sweep" else 1, gated=0 if name == "sweep" else 5)
    reader = urls["manager"].replace("//manager@", "//viewer@")
    async with (
        await KubeClient.connect(kubeconfig=kubeconfig, timeouts=Timeouts(retry_s=1.0)) as client,
        viewing(client, amqp_url=reader) as served,
    ):
        yield served


@pytest.mark.real
async def test_what_a_newcomer_sees(view: Served, world: World, browser: Browser) -> None:
    async with looking(browser, view) as looker:
        await looker.expect("manager-1 leads")
        await looker.expect("live")
        await looker.page.get_by_role("link", name="Jobs", exact=True).click()
        await looker.page.get_by_role("link", name="team-a/wide").click()
        await looker.expect("couldn't assign flavors to pod set main")
        assert "It goes on with" in await looker.text()
        await looker.page.locator(".chart rect.band").first.wait_for()
        await looker.expect("so far: ")
        assert await looker.page.locator(".chart svg.times text").count() > 1, "the axis has times"
        await looker.page.locator("summary strong", has_text="resize main 1 -> 6").wait_for()

        await set_quota(world, 20)
        await looker.page.get_by_text("What would admit it").wait_for(state="detached")
        await looker.page.locator("h1 + p .state.Running").wait_for()

        await looker.go("/messages?type=scale-request")
        rows = await looker.page.locator("tr[data-row]").all_inner_texts()
        assert [row for row in rows if "scale-request" not in row] == []
        # More than two where a request was published twice: a busy broker may confirm too late.
        assert [job for job in ("team-a/sweep", "team-a/wide") if not any(job in row for row in rows)] == []
        await looker.go("/queues/batch")
        assert "Nobody waits." in await looker.text()
        assert looker.complaints == []


async def test_every_page_is_usable_by_anybody_on_any_screen(view: Served, browser: Browser) -> None:
    for theme in ("light", "dark"):
        for size in (PHONE, DESK):
            async with looking(browser, view, size=size, theme=theme) as looker:
                await looker.expect("manager-1 leads")
                for path in PAGES:
                    await looker.go(path)
                    await looker.expect("live")
                    assert await looker.findings() == [], (path, theme)
                    assert await looker.width_past_screen() <= 0, (path, size["width"])
                found = [text for text in looker.complaints if "404" not in text]
                assert found == []


async def test_the_keyboard_is_enough(view: Served, browser: Browser) -> None:
    async with looking(browser, view) as looker:
        page = looker.page
        await looker.expect("manager-1 leads")
        await page.keyboard.press("Tab")
        assert await focused(looker) == "Skip to the page"
        await page.keyboard.press("g")
        await page.keyboard.press("j")
        await page.wait_for_url("**/jobs")
        await looker.expect("team-a/sweep")
        await page.keyboard.press("j")
        assert await focused(looker) == "team-a/sweep"
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**{WIDE}")
        await page.go_back()
        await page.keyboard.press("/")
        await page.keyboard.type("swe")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs?name=swe*")
        assert await page.locator("tr[data-row]").count() == 1
        background = "getComputedStyle(document.body).backgroundColor"
        seen = {await page.evaluate(background)}
        for _ in range(2):
            await page.keyboard.press("t")
            seen.add(await page.evaluate(background))
        assert len(seen) == 2, "light and dark"
        await page.keyboard.press("?")
        await page.wait_for_url("**/keys")


async def focused(looker: Looker) -> str:
    return str(await looker.page.evaluate("document.activeElement.textContent"))


async def test_a_page_that_is_not_up_to_date_says_how_old_it_is(view: Served, world: World, browser: Browser) -> None:
    """The server goes away, and comes back."""
    async with looking(browser, view) as looker:
        await looker.go("/jobs")
        await looker.expect("live")
        with refusing(
            world.apis[world.manager.host], ApiError(503, "etcd is away", reason="ServiceUnavailable"), verbs="GET"
        ):
            await looker.expect("stream lost")
            await looker.expect("etcd is away")
            assert "team-a/wide" in await looker.text()
        await looker.page.get_by_text("etcd is away").wait_for(state="detached")
        await looker.expect("live")
        await world.manager.create(JOBS, objects.job("later"))
        await looker.expect("team-a/later")


async def test_the_command_serves_until_it_is_interrupted(world: World, kubeconfig: Path) -> None:
    env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    env.pop("AMQP_URL", None)
    process = await asyncio.create_subprocess_exec(slicebus(), "view", "--port", "0", stdout=PIPE, env=env)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            said = (await process.stdout.readline()).decode()
        address = said.removeprefix("open ").strip()
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:

            async def look() -> bool:
                async with session.get(address) as answer:
                    return "manager-1 leads" in await answer.text()

            await eventually(look, "the page says who leads")
            port = address.partition("/?")[0].rpartition(":")[2]
            taken = await asyncio.to_thread(run_cli, "view", "--port", port, env={"KUBECONFIG": str(kubeconfig)})
            assert (taken.returncode, taken.stdout) == (2, "")
            assert taken.stderr.startswith(f"slicebus: --port {port}: ")
    finally:
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(START_S):
            assert await process.wait() == 0


# --- hostile texts ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hostile_view(text: str) -> AsyncIterator[Served]:
    """A fleet whose objects and messages say this text."""
    store = busy()
    for workload in store.workloads.all():
        conditions = [condition | {"message": text} for condition in workload["status"].get("conditions", ())]
        metadata = workload["metadata"] | {"resourceVersion": "99"}
        store.workloads.put(
            workload | {"metadata": metadata, "status": workload["status"] | {"conditions": conditions}}
        )
    said = pending(6)
    message = Pending(**{name: getattr(said, name) for name in said.__struct_fields__} | {"message": text})
    recorded = [
        entry(spec(2, version=1), offset=0),
        entry(request(2, 6), offset=1, at_s=5, chain="c"),
        entry(message, offset=2, at_s=6, chain="c"),
    ]
    async with still_view(a_state(store, lost=text), an_hour(*recorded)) as served:
        yield served


async def test_a_page_whose_view_has_stopped_says_so(browser: Browser) -> None:
    async with AsyncExitStack() as stack:
        view = await stack.enter_async_context(hostile_view("nothing"))
        async with looking(browser, view) as looker:
            await looker.page.locator("#stream", has_text="live").wait_for()
            await stack.aclose()
            await looker.page.locator("#age", has_text="s old").wait_for()
            assert await looker.page.inner_text("#stream") == "stream lost"


async def test_hostile_texts_do_nothing(browser: Browser) -> None:
    for text in (NAMED["tags"], NAMED["bidirectional"], NAMED["a template"], "</svg><script>alert(2)</script>"):
        async with hostile_view(text) as view, looking(browser, view) as looker:
            for path in ("/", "/jobs", "/jobs/Job/team/train", "/queues/cq", "/messages"):
                assert await looker.go(path) == 200
                assert await looker.page.locator("script:not([src]), main img, main script").count() == 0
                assert await looker.width_past_screen() <= 0
            assert looker.complaints == []


async def test_the_policy_is_in_force(browser: Browser) -> None:
    """The browser itself refuses an inline script, a style, and text that becomes markup."""
    async with hostile_view("x") as view, looking(browser, view) as looker:
        refused = await looker.page.evaluate(
            """() => {
                const tried = [];
                const inline = document.createElement("script");
                try { inline.textContent = "window.owned = 1"; } catch { tried.push("script"); }
                document.head.append(inline);
                try { document.body.innerHTML = "<b>x</b>"; } catch { tried.push("markup"); }
                const style = document.createElement("style");
                style.textContent = "body { color: rgb(1, 2, 3) }";
                document.head.append(style);
                return [window.owned, getComputedStyle(document.body).color === "rgb(1, 2, 3)", tried];
            }"""
        )
        assert refused[:2] == [None, False]
        assert "markup" in refused[2]
