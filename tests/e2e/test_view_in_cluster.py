"""`slicebus view` as the manager's chart runs it: with the rights of its own account on a real API server, behind a
proxy that lets some people in."""

import asyncio
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web
from yarl import URL

from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    WORKERCLUSTERS,
    WORKLOADS,
    Resource,
)
from slicebus.proto.errors import ForbiddenError
from support.controlplane import Cluster, ControlPlane
from support.helm import NAMESPACE, Manifest, only, render
from support.installation import apply, kubeconfig_of, slicebus
from support.processes import COMMAND_S, START_S, Server
from support.scenario import Scenario, set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.helm, pytest.mark.real(only=True)]
"""An embedded API server has no RBAC."""

NAME = "slicebus.example.com"
ACCOUNT = "slicebus-manager-view"
SECRETS = Resource("", "v1", "secrets", "Secret")
VALUES: dict[str, Any] = {
    "amqp": {"existingSecret": {"name": "slicebus-amqp"}, "caSecret": {"name": "broker-ca"}},
    "networkPolicy": {"enabled": True},
    "view": {
        "enabled": True,
        "host": NAME,
        "proxy": {"image": "proxy"},
        "amqp": {"existingSecret": {"name": "slicebus-view-amqp"}},
    },
}
SESSION = {"Host": NAME, "Cookie": "session=jane"}
PAGES = {
    "/": "manager-1 leads",
    "/jobs": "team-a/sweep",
    "/jobs/Job/team-a/sweep": "Running",
    "/queues": "batch",
    "/queues/batch": "Nobody waits.",
    "/clusters/east": "Cluster east",
    "/messages": "no broker is named",
}


class ReverseProxy:
    """Passes requests on, and notes how they were answered."""

    def __init__(self, target: str, *, asks: bool = False, tls: ssl.SSLContext | None = None) -> None:
        """`asks`: let only requests with the session pass, as an auth proxy does. `tls`: for a target that has it."""
        self.url = ""
        self.answers: list[tuple[int, str]] = []
        """The status of each, and `VERB path`."""
        self._target = target
        self._asks = asks
        self._tls = tls

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ReverseProxy"]:
        """Serve on loopback until the context is left."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass)
        # Watches end with whoever has asked.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield self
        finally:
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if self._asks and request.cookies.get("session") != "jane":
            return web.Response(status=401)
        headers = {name: value for name, value in request.headers.items() if name not in ("Connection", "Host")}
        headers |= {"Accept-Encoding": "identity"}
        if self._asks:
            headers |= {"Host": request.host, "X-Forwarded-Host": request.host, "X-Forwarded-User": "jane"}
        url, data = URL(self._target + request.raw_path, encoded=True), await request.read()
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
            session.request(
                request.method, url, headers=headers, data=data or None, ssl=self._tls or True, allow_redirects=False
            ) as answer,
        ):
            self.answers.append((answer.status, f"{request.method} {request.path}"))
            stream = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]})
            with suppress(ConnectionError):  # Whoever has asked is gone.
                await stream.prepare(request)
                async for chunk in answer.content.iter_any():
                    await stream.write(chunk)
            return stream


def of_view(helm: Path) -> list[Manifest]:
    """What the chart makes for the view."""
    found = render(helm, "slicebus-manager", VALUES)
    return [each for each in found if each["metadata"].get("labels", {}).get("app.kubernetes.io/name") == ACCOUNT]


@pytest.fixture
async def account(helm: Path, world: World, control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Path]:
    """A kubeconfig with the token of the view's account, on the manager's cluster. Its objects are all accepted."""
    cluster, made = control_plane.clusters["manager"], of_view(helm)
    await asyncio.to_thread(apply, cluster, objects.namespace(NAMESPACE), *made)
    try:
        yield await asyncio.to_thread(kubeconfig_of, cluster, ACCOUNT, tmp_path / "account")
    finally:
        gone = ("delete", "--ignore-not-found", "--wait=false", "-f", "-")
        await asyncio.to_thread(cluster.kubectl, *gone, stdin=yaml.safe_dump_all(made))


def by_way_of(proxy: ReverseProxy, account: Path) -> Path:
    """The kubeconfig of an account, whose server is a proxy."""
    config = yaml.safe_load(account.read_text())
    config["clusters"][0]["cluster"] = {"server": proxy.url}
    path = account.with_suffix(".proxied")
    path.write_text(yaml.safe_dump(config))
    return path


def server_of(cluster: Cluster) -> tuple[str, ssl.SSLContext]:
    """The address of an API server, and whom to trust."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    return config["server"], ssl.create_default_context(cafile=config["certificate-authority"])


class Process:
    """The view's container without a container: its arguments on a free port."""

    def __init__(self, helm: Path, kubeconfig: Path, folder: Path) -> None:
        containers = only(of_view(helm), "Deployment")["spec"]["template"]["spec"]["containers"]
        [view] = [container for container in containers if container["name"] == "view"]
        arguments, self._probe = view["args"], view["livenessProbe"]["exec"]["command"]
        env = {"KUBECONFIG": str(kubeconfig), "SLICEBUS_NAMESPACE": NAMESPACE, "PYTHONUNBUFFERED": "1"}
        self.server = Server("view", [slicebus(), *arguments, "--port=0"], log=folder / "view.log", env=env)

    async def address(self) -> str:
        """Where it says that its proxy has to send requests."""
        self.server.start()

        def found() -> re.Match[str] | None:
            return re.search(rf"the proxy of {NAME} sends requests on to (http://127\.0\.0\.1:\d+)/", self.said())

        await asyncio.to_thread(self.server.wait_for, lambda: found() is not None, within_s=START_S)
        match = found()
        assert match is not None
        return match[1]

    def said(self) -> str:
        return self.server.log_text()

    def probe(self, port: str) -> int:
        """The exit status of its probe, which has another port than that of the chart here."""
        _, *arguments = (word.replace("8439", port) for word in self._probe)
        done = subprocess.run([sys.executable, *arguments], capture_output=True, timeout=COMMAND_S, check=False)
        return done.returncode


async def test_everybody_whom_the_proxy_lets_in_sees_what_the_account_may_see(
    helm: Path, world: World, account: Path, control_plane: ControlPlane, tmp_path: Path
) -> None:
    await set_quota(world, 4)
    job = Scenario(world, "Job", "sweep")
    await job.submit()
    await job.expect_pods(running=1)
    server, tls = server_of(control_plane.clusters["manager"])
    async with ReverseProxy(server, tls=tls).serving() as api:
        process = Process(helm, by_way_of(api, account), tmp_path)
        try:
            address = await process.address()
            port = address.rpartition(":")[2]
            assert await asyncio.to_thread(process.probe, port) == 0
            async with (
                ReverseProxy(address, asks=True).serving() as door,
                aiohttp.ClientSession() as session,
            ):

                async def get(path: str, **headers: str) -> tuple[int, str]:
                    async with session.get(door.url + path, headers=SESSION | headers) as answer:
                        return answer.status, await answer.text()

                async def shows(path: str, text: str) -> str | None:
                    status, page = await get(path)
                    return page if status == 200 and text in page else None

                assert await get("/jobs", Cookie="") == (401, "")
                assert await get("/healthz", Cookie="") == (401, "")
                for path, text in PAGES.items():

                    async def look(path: str = path, text: str = text) -> str | None:
                        return await shows(path, text)

                    page = await eventually(look, f"{path} says {text}") or ""
                    assert "you may not see" not in page.lower(), path
                    assert "everybody sees the same" in page
                await world.manager.create(JOBS, objects.job("later"))

                async def later() -> str | None:
                    return await shows("/jobs", "team-a/later")

                await eventually(later, "what comes later is there too")
                assert (await get("/jobs", Host="evil.example"))[0] == 403
                async with session.post(f"{door.url}/jobs", headers=SESSION) as answer:
                    assert (answer.status, "changes nothing" in await answer.text()) == (403, True)
            assert process.server.signal(signal.SIGTERM, within_s=COMMAND_S) == 0
            assert await asyncio.to_thread(process.probe, port) != 0
        finally:
            process.server.kill()
        assert not [answer for answer in api.answers if answer[0] in (401, 403)]
        assert {request.partition(" ")[0] for _, request in api.answers} == {"GET"}
        assert (200, f"GET {EVENTS.path('default')}") in api.answers


async def test_its_account_changes_nothing_and_reads_no_secret(account: Path) -> None:
    async with await KubeClient.from_kubeconfig(account) as client:
        assert await client.can_i("list", JOBS, namespace="")
        for resource in (JOBS, WORKLOADS, CLUSTERQUEUES, WORKERCLUSTERS, NAMESPACES, LEASES, EVENTS, PODS, SECRETS):
            for verb in ("create", "update", "patch", "delete", "deletecollection"):
                for namespace in ("", NAMESPACE, "default", objects.NAMESPACE):
                    assert not await client.can_i(verb, resource, namespace=namespace), (verb, resource, namespace)
        for resource in (SECRETS, PODS, LEASES):
            with pytest.raises(ForbiddenError):
                await client.list(resource)
        with pytest.raises(ForbiddenError):
            await client.create(JOBS, objects.job("mine"))
        with pytest.raises(ForbiddenError):
            await client.get(LEASES, "other", NAMESPACE)
