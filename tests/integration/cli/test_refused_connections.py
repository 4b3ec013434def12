"""What a command says that RabbitMQ refuses: the same line as at the stand-in of `unit/cli/test_plain_errors.py`."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from slicebus.bus.access.address import CA_FILE
from support.installation import run_cli
from support.rabbitmq import RabbitBroker
from support.rabbitmq_releases import every_rabbitmq
from unit.cli.test_plain_errors import REFUSES

pytestmark = every_rabbitmq
STRANGER = "no-rights-here"
WITHIN_S = 20.0
"""On a busy machine. A refusal is not tried again; a certificate is, for five seconds."""


async def told(*command: str, **env: str) -> str:
    """The one line that a command prints."""
    began = time.monotonic()
    done = await asyncio.to_thread(run_cli, *command, env=env)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert time.monotonic() - began < WITHIN_S
    return done.stderr.removeprefix("slicebus: ").removesuffix("\n")


@pytest.fixture
def stranger(rabbitmq: RabbitBroker) -> Iterator[str]:
    """A user without rights in any vhost."""
    rabbitmq.api("PUT", f"users/{STRANGER}", {"password": STRANGER, "tags": ""})
    yield STRANGER
    rabbitmq.api("DELETE", f"users/{STRANGER}")


@pytest.mark.parametrize("command", [("dead", "list"), ("journal", "query"), ("trace", "sweep")], ids=" ".join)
async def test_a_vhost_that_is_not_there(rabbitmq: RabbitBroker, command: tuple[str, ...]) -> None:
    line = await told(*command, AMQP_URL=rabbitmq.url("nowhere", "guest"))
    assert line == f"connect to 127.0.0.1:{rabbitmq.port}: {REFUSES}vhost nowhere not found"


async def test_a_vhost_that_the_user_may_not_use(rabbitmq: RabbitBroker, vhost: str, stranger: str) -> None:
    line = await told("dead", "list", AMQP_URL=rabbitmq.url(vhost, stranger))
    why = f"{REFUSES}access to vhost '{vhost}' refused for user '{stranger}'"
    assert line == f"connect to 127.0.0.1:{rabbitmq.port}: {why}"


async def test_a_limit_that_is_reached(rabbitmq: RabbitBroker, vhost: str, stranger: str) -> None:
    rabbitmq.permit(vhost, stranger, configure="", write="", read="")
    rabbitmq.api("PUT", f"user-limits/{stranger}/max-connections", {"value": 0})
    line = await told("dead", "list", AMQP_URL=rabbitmq.url(vhost, stranger))
    assert line.startswith(f"connect to 127.0.0.1:{rabbitmq.port}: {REFUSES}connection refused for user '{stranger}'")


async def test_a_wrong_password(rabbitmq: RabbitBroker, vhost: str) -> None:
    line = await told("dead", "list", AMQP_URL=rabbitmq.url(vhost, "manager", "hunter2"))
    why = "the broker refuses the login: the user or the password is wrong"
    assert line == f"connect to 127.0.0.1:{rabbitmq.port}: {why}"


async def test_a_certificate_of_another_authority(rabbitmq: RabbitBroker, vhost: str, tmp_path: Path) -> None:
    url = rabbitmq.tls_url(vhost, "guest:guest")
    line = await told("dead", "list", AMQP_URL=url)
    assert ": the broker's certificate is refused: " in line
    other = tmp_path / "ca.pem"
    other.write_bytes(trustme.CA().cert_pem.bytes())
    line = await told("journal", "query", AMQP_URL=url, **{CA_FILE: str(other)})
    assert ": the broker's certificate is refused: " in line


async def test_the_doctor_says_the_same_in_its_line(rabbitmq: RabbitBroker) -> None:
    env = {"AMQP_URL": rabbitmq.url("nowhere", "guest"), "KUBECONFIG": "/nowhere", "COLUMNS": "300"}
    done = await asyncio.to_thread(run_cli, "doctor", "--role", "manager", env=env)
    assert (done.returncode, done.stderr) == (1, "")
    address = f"127.0.0.1:{rabbitmq.port}"
    assert done.stdout.splitlines() == [
        "manager",
        "  ✗ api server   kubeconfig: there is no file /nowhere: KUBECONFIG names another",
        "      → check KUBECONFIG, or the service account of the pod, and the network",
        f"  ✗ broker       amqp://{address}/nowhere: connect to {address}: {REFUSES}vhost nowhere not found",
        "      → see that the broker has the vhost, the user and the password of the address",
    ]
