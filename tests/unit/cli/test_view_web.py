"""`slicebus view` as a browser asks it: who gets a page, and what a page says where something is wrong."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest

from slicebus.ambient.clock import now
from slicebus.cli.demo import objects
from slicebus.cli.view.guard import HEADERS
from slicebus.kube.client import KubeClient, Timeouts
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, JOBS, LEASES, NAMESPACES, WORKERCLUSTERS
from slicebus.kube.times import micro_time_text
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.status import ApiError
from support.kubeconfig import write_kubeconfig
from support.refusing import FORBIDDEN, refusing
from support.view import Served, viewing
from support.waiting import eventually
from unit.cli.hostile import call

SYSTEM = objects.SYSTEM_NAMESPACE
PAGES = ("/", "/jobs", "/jobs/Job/team-a/sweep", "/queues", "/queues/batch", "/messages", "/clusters/east", "/keys")


class Browser:
    """Asks as a browser that has opened the printed address."""

    def __init__(self, session: aiohttp.ClientSession, view: Served) -> None:
        self.session = session
        self.view = view

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """The status and the text of a page."""
        async with self.session.get(self.view.site + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def expect(self, path: str, text: str, *, status: int = 200) -> str:
        """Wait until a page says so."""

        async def look() -> str | None:
            found, body = await self.get(path)
            return body if found == status and text in body else None

        return await eventually(look, f"{path} answers {status} and says {text}") or ""


class Parts(msgspec.Struct, frozen=True):
    """A cluster of the manager with a queue, a worker cluster and a job."""

    api: Api
    client: KubeClient
    kubeconfig: Path


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        for manifest in custom_resource_definitions():
            await client.create(CRDS, manifest)
        for name in (objects.NAMESPACE, SYSTEM):
            await client.create(NAMESPACES, objects.namespace(name))
        for resource, manifest in objects.quota(4):
            await client.create(resource, manifest)
        await client.create(WORKERCLUSTERS, objects.worker_cluster("east"))
        await client.create(JOBS, objects.job("sweep"))
        yield Parts(server.api, client, write_kubeconfig(tmp_path / "kubeconfig", server.url))


async def lead(client: KubeClient) -> None:
    spec = {"holderIdentity": "manager-1", "leaseDurationSeconds": 600, "renewTime": micro_time_text(now())}
    metadata = {"name": "slicebus-manager", "namespace": SYSTEM}
    await client.create(LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": spec})


@asynccontextmanager
async def browsing(parts: Parts, amqp_url: str | None = None) -> AsyncIterator[Browser]:
    jar = aiohttp.CookieJar(unsafe=True)  # It keeps cookies of addresses, as browsers do.
    quick = Timeouts(retry_s=0.2)
    async with (
        await KubeClient.connect(kubeconfig=str(parts.kubeconfig), timeouts=quick) as client,
        viewing(client, amqp_url=amqp_url) as view,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        async with session.get(view.address) as answer:
            assert str(answer.url) == f"{view.site}/", "the secret does not stay in the address"
        yield Browser(session, view)


async def test_every_page_answers_with_the_policy(parts: Parts) -> None:
    await lead(parts.client)
    async with browsing(parts) as browser:
        await browser.expect("/", "manager-1 leads")
        for path in PAGES:
            async with browser.session.get(browser.view.site + path) as answer:
                assert answer.status == 200, path
                assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
                assert "<script>" not in await answer.text()
        for file in ("view.css", "view.js", "chart.css", "icon.svg"):
            assert (await browser.get(f"/static/{file}"))[0] == 200


async def test_only_the_users_own_browser_gets_an_answer(parts: Parts) -> None:
    async with browsing(parts) as browser:
        for headers in ({"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}):
            status, text = await browser.get("/jobs", **headers)
            assert (status, "sweep" in text) == (403, False)
        async with aiohttp.ClientSession() as stranger, stranger.get(f"{browser.view.site}/jobs") as answer:
            assert (answer.status, "has printed" in await answer.text()) == (403, True)
        async with browser.session.post(f"{browser.view.site}/jobs") as answer:
            assert (answer.status, "changes nothing" in await answer.text()) == (403, True)
        elsewhere = f"{browser.view.site}//evil.example/?token={browser.view.address.partition('=')[2]}"
        async with browser.session.get(elsewhere, allow_redirects=False) as answer:
            assert answer.headers["Location"].startswith("/evil.example")


async def test_behind_a_proxy_its_name_takes_the_place_of_the_secret(parts: Parts) -> None:
    await lead(parts.client)
    name = "slicebus.example.com"
    async with (
        await KubeClient.connect(kubeconfig=str(parts.kubeconfig), timeouts=Timeouts(retry_s=0.2)) as client,
        viewing(client, public_name=name) as view,
        aiohttp.ClientSession() as session,
    ):

        async def get(path: str, **headers: str) -> tuple[int, str]:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            async with session.get(view.site + path, headers=named, allow_redirects=False) as answer:
                assert answer.headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
                assert "Set-Cookie" not in answer.headers
                return answer.status, await answer.text()

        async def look() -> str | None:
            status, text = await get("/", Host=name)
            return text if status == 200 and "manager-1 leads" in text else None

        assert view.address.startswith("http://127.0.0.1:")
        assert "token" not in view.address
        page = await eventually(look, "the page says who leads") or ""
        assert "own account: everybody sees the same" in page
        assert "your kubeconfig" not in page
        assert (await get("/jobs?token=x", Host=name))[0] == 200, "a word as any other"
        refused = ({}, {"Host": "evil.example"}, {"Host": name, "X_Forwarded_Host": "evil.example"})
        for headers in (*refused, {"Host": name, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "image"}):
            status, text = await get("/jobs", **headers)
            assert (status, "sweep" in text) == (403, False), headers
        assert await get("/healthz") == (200, "ok\n")
        async with session.get(f"{view.site}/events", headers={"Host": name}) as answer:
            assert answer.headers["X-Accel-Buffering"] == "no"


async def test_what_is_not_there_is_named_with_the_nearest(parts: Parts) -> None:
    async with browsing(parts) as browser:
        await browser.expect("/jobs", "team-a/sweep")
        for path, status, told in (
            ("/jobs/Job/team-a/sweeep", 404, "did you mean"),
            ("/jobs/Nothing/team-a/sweep", 404, "there is no job Nothing/team-a/sweep"),
            ("/queues/bacth", 404, "did you mean batch?"),
            ("/clusters/eats", 404, "did you mean east?"),
            ("/nowhere", 404, "the view has no page /nowhere"),
            ("/jobs?state=Runing", 400, "did you mean Running?"),
            ("/jobs?queue=bacth", 400, "did you mean batch?"),
            ("/jobs?page=0", 400, "use a number from 1"),
            ("/jobs?page=x", 400, "use a number from 1"),
            ("/messages?type=heartbaet", 400, "did you mean heartbeat?"),
        ):
            found, text = await browser.get(path)
            assert (found, told in text) == (status, True), (path, text)


async def test_without_a_manager_every_page_says_so(parts: Parts) -> None:
    async with browsing(parts) as browser:
        await browser.expect("/jobs", "no manager has ever led")
        assert "cluster east is unknown" in await browser.expect("/", "no manager has ever led")


async def test_without_a_broker_the_pages_say_so(parts: Parts) -> None:
    async with browsing(parts) as browser:
        for path in ("/messages", "/jobs/Job/team-a/sweep", "/"):
            await browser.expect(path, "no broker is named")
    async with browsing(parts, "amqp://nobody@127.0.0.1:1/") as browser:
        await browser.expect("/messages", "the journal cannot be read: ")


async def test_without_rights_the_pages_say_so(parts: Parts) -> None:
    with refusing(parts.api, FORBIDDEN, verbs="GET", path=r"^/(api/v1|apis/[^/]+/[^/]+)/."):
        async with browsing(parts) as browser:
            await browser.expect("/jobs", "forbidden", status=403)
            await browser.expect("/messages", "no broker is named")
    elsewhere = rf"^/(api/v1|apis/[^/]+/[^/]+)/(?!namespaces/{objects.NAMESPACE}/)."
    with refusing(parts.api, FORBIDDEN, verbs="GET", path=elsewhere):
        async with browsing(parts) as browser:
            browser.view.live.client.namespace = objects.NAMESPACE
            assert "team-a/sweep" in await browser.expect("/jobs", "you see jobs of namespace team-a only")
            assert "You may not see WorkerClusters" in (await browser.get("/"))[1]
            assert (await browser.get("/queues/batch"))[0] == 403


async def test_on_a_worker_it_names_the_worker(parts: Parts) -> None:
    lease = {"metadata": {"name": "slicebus-agent", "namespace": SYSTEM}, "spec": {}}
    await parts.client.create(LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease"} | lease)
    async with browsing(parts) as browser:
        await browser.expect("/jobs", "run it on the manager", status=400)


async def test_a_lost_stream_shows_how_old_the_state_is(parts: Parts) -> None:
    await lead(parts.client)
    async with browsing(parts) as browser, aclosing(listening(browser)) as told:
        await browser.expect("/", "manager-1 leads")
        assert (await anext(told))["lost"] == ""
        with refusing(parts.api, ApiError(503, "etcd is away", reason="ServiceUnavailable"), verbs="GET"):
            assert "team-a/sweep" in await browser.expect("/jobs", "<strong>stream lost</strong>: this was so at ")
            assert "cluster east is unknown" in (await browser.get("/"))[1]
            async with asyncio.timeout(30):
                while "etcd is away" not in (await anext(told))["lost"]:
                    pass
        await browser.expect("/", "manager-1 leads")
        async with asyncio.timeout(30):
            while (await anext(told))["lost"]:
                pass
        assert "stream lost" not in (await browser.get("/jobs"))[1]


async def listening(browser: Browser) -> AsyncGenerator[dict[str, str], None]:
    """What the stream says."""
    async with browser.session.get(f"{browser.view.site}/events") as answer:
        assert answer.content_type == "text/event-stream"
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield msgspec.json.decode(line.removeprefix(b"data: "))


async def test_the_stream_says_that_something_has_changed(parts: Parts) -> None:
    await lead(parts.client)
    async with browsing(parts) as browser:
        await browser.expect("/", "manager-1 leads")
        async with aclosing(listening(browser)) as told, asyncio.timeout(30):
            seen = await anext(told)
            await parts.client.create(JOBS, objects.job("later"))
            while await anext(told) == seen:
                pass
        await browser.expect("/jobs", "team-a/later")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--amqp-url", "http://broker"), "AMQP_URL"),
        (("--kubeconfig", "nowhere"), "nowhere"),
        (("--port", "70000"), "--port"),
        (("--behind-proxy", "https://slicebus.example.com"), "give a name as slicebus.example.com"),
        (("--behind-proxy", "localhost:4180"), "a proxy has a public name"),
    ],
)
def test_what_cannot_work_ends_the_command(arguments: tuple[str, ...], told: str, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    called = call("view", "--port", "0", "--kubeconfig", str(kubeconfig), *arguments)
    assert (called.status, called.out) == (2, "")
    assert told in called.err
