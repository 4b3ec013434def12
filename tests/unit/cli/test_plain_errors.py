"""What a command says that cannot connect: one plain line, the exit status 2, and no library's log beside it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trustme
import yaml

from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.broker_door import LIMIT, LOGIN, NO_RIGHT, VHOST, door
from support.installation import run_cli
from support.processes import free_port
from support.refusing import UNAUTHORIZED, refusing

Opened = Callable[[], AbstractAsyncContextManager[int]]
UNTRUSTED = "unable to get local issuer certificate"


def tls() -> ssl.SSLContext:
    """With the certificate of an authority that nobody trusts."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


@asynccontextmanager
async def nobody() -> AsyncIterator[int]:
    """A port that nobody listens on."""
    yield free_port()


async def told(*command: str, **env: str) -> str:
    """The one line that a command prints."""
    done = await asyncio.to_thread(run_cli, *command, env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr.removeprefix("slicebus: ").removesuffix("\n")


REFUSES = "the broker refuses the connection: "
BROKERS: dict[str, tuple[Opened, str, str]] = {
    "nobody answers": (nobody, "amqp", "Connection refused"),
    "no such vhost": (lambda: door(VHOST), "amqp", f"{REFUSES}vhost nowhere not found"),
    "no right": (lambda: door(NO_RIGHT), "amqp", f"{REFUSES}access to vhost 'nowhere' refused for user 'u'"),
    "a limit": (
        lambda: door(LIMIT),
        "amqp",
        f"{REFUSES}connection refused for user 'u': user connection limit (8) is reached",
    ),
    "a wrong password": (
        lambda: door(LOGIN),
        "amqp",
        "the broker refuses the login: the user or the password is wrong",
    ),
    "a certificate": (lambda: door(LOGIN, tls=tls()), "amqps", f"the broker's certificate is refused: {UNTRUSTED}"),
    "no TLS there": (lambda: door(LOGIN), "amqps", "it answers without TLS"),
    "TLS there": (lambda: door(LOGIN, tls=tls()), "amqp", "the server has closed the connection without a reason"),
}


async def test_a_broker_that_refuses_is_one_line() -> None:
    """All at a time: what may pass by itself is tried again for five seconds."""

    async def of(opened: Opened, scheme: str) -> str:
        async with opened() as port:
            line = await told("dead", "list", AMQP_URL=f"{scheme}://u:hunter2@127.0.0.1:{port}/nowhere")
            return line.removeprefix(f"connect to 127.0.0.1:{port}: ")

    lines = await asyncio.gather(*(of(opened, scheme) for opened, scheme, _ in BROKERS.values()))
    assert dict(zip(BROKERS, lines, strict=True)) == {name: why for name, (_, _, why) in BROKERS.items()}


@pytest.mark.parametrize(
    ("url", "why"),
    [("http://u:hunter2@broker/v", "http:// is no broker's address"), ("broker:5671", "it has no amqps://")],
)
async def test_an_address_of_another_scheme_is_one_line(url: str, why: str) -> None:
    use = "use amqps://USER:PASSWORD@HOST:5671/VHOST"
    assert await told("journal", "query", AMQP_URL=url) == f"AMQP_URL: {why}: {use}"


def kubeconfig(server: str = "https://127.0.0.1:1", context: str = "it") -> str:
    entries = {
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "contexts": [{"name": "it", "context": {"cluster": "it"}}],
    }
    return yaml.safe_dump({"current-context": context} | entries)


KUBECONFIGS: dict[str, tuple[str | None, str]] = {
    "missing": (None, "kubeconfig: there is no file FILE: KUBECONFIG names another"),
    "no YAML": ("clusters: [", "kubeconfig: FILE is no YAML, see line 1"),
    "text": ("some words", "kubeconfig: FILE is no kubeconfig: it has no clusters, contexts and users"),
    "no such context": (kubeconfig(context="other"), "kubeconfig: there is no 'other' among its contexts: it has 'it'"),
    "nobody answers": (kubeconfig(), "the API server 127.0.0.1:1 cannot be reached: Connection refused"),
    "a certificate": (
        kubeconfig("https://127.0.0.1:PORT"),
        f"the API server 127.0.0.1:PORT cannot be reached: its certificate is refused: {UNTRUSTED}",
    ),
    "a wrong token": (
        kubeconfig("URL"),
        "401: Unauthorized: the API server does not take these credentials",
    ),
}


async def test_an_api_server_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    async def of(name: str, content: str | None, port: int, url: str) -> str:
        file = tmp_path / name.replace(" ", "-")
        if content is not None:
            file.write_text(content.replace("PORT", str(port)).replace("URL", url))
        line = await told("explain", "sweep", KUBECONFIG=str(file))
        return line.replace(str(file), "FILE").replace(str(port), "PORT")

    async with door(LOGIN, tls=tls()) as port, EmbeddedApiServer() as server:
        with refusing(server.api, UNAUTHORIZED, verbs="GET"):
            lines = await asyncio.gather(
                *(of(name, content, port, server.url) for name, (content, _) in KUBECONFIGS.items())
            )
    assert dict(zip(KUBECONFIGS, lines, strict=True)) == {name: why for name, (_, why) in KUBECONFIGS.items()}
