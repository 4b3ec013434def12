"""The roles as processes, where what they need is missing or wrong."""

import urllib.error
from pathlib import Path

import pytest

from support.installation import Role
from support.kubeconfig import write_kubeconfig
from support.processes import free_port
from support.rabbitmq import RabbitBroker
from support.waiting import eventually

ROLES: dict[str, dict[str, str]] = {
    "manager": {},
    "agent": {"SLICEBUS_CLUSTER": "east", "SLICEBUS_MANAGER_USER": "manager"},
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a server that is not there."""
    return write_kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{free_port()}")


@pytest.mark.parametrize("command", ROLES)
async def test_a_role_waits_for_its_broker_alive_and_not_ready(command: str, kubeconfig: Path, tmp_path: Path) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{free_port()}/"
    variables = {"AMQP_URL": url, "KUBECONFIG": str(kubeconfig), **ROLES[command]}
    role = Role(command, command, variables, log=tmp_path / "log")
    role.launch()
    try:

        async def tries_again() -> bool:
            return len(events(role, "bus.unreachable")) > 1

        await eventually(tries_again, "it tries again")
        assert role.probe("/healthz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            role.probe("/readyz")
        assert role.terminate() == 0
    finally:
        role.kill()


REFUSED = "the broker refuses the login"


@pytest.mark.rabbitmq
@pytest.mark.parametrize("command", ROLES)
async def test_a_role_whose_login_is_refused_waits_until_it_is_not(
    command: str, kubeconfig: Path, tmp_path: Path, rabbitmq: RabbitBroker, vhost: str
) -> None:
    password = tmp_path / "password"
    password.write_text("of yesterday")
    access = {
        "AMQP_URL": rabbitmq.url(vhost, "manager").replace(":manager@", "@"),
        "SLICEBUS_AMQP_PASSWORD_FILE": str(password),
    }
    role = Role(command, command, {"KUBECONFIG": str(kubeconfig), **access, **ROLES[command]}, log=tmp_path / "log")
    role.launch()

    async def not_ready() -> str:
        try:
            return role.probe("/readyz")
        except urllib.error.HTTPError as error:
            return error.read().decode()
        except OSError:
            return ""

    async def refused() -> bool:
        return REFUSED in await not_ready()

    async def connected() -> bool:
        reason = await not_ready()
        return reason != "" and REFUSED not in reason

    try:
        await eventually(refused, "it says that the broker refuses it")
        assert role.probe("/healthz") == "ok\n"
        password.write_text("manager")
        await eventually(connected, "it has connected")
        assert not events(role, "process.failed")
    finally:
        role.kill()


def events(role: Role, event: str) -> list[dict[str, object]]:
    return [line for line in role.log() if line["event"] == event]
