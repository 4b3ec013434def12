"""The roles as processes, where what they need is missing or wrong."""

import urllib.error
from pathlib import Path

import pytest
import yaml

from support.installation import Role, run_cli
from support.processes import free_port
from support.waiting import eventually

ROLES: dict[str, dict[str, str]] = {"manager": {}, "agent": {"SLICEBUS_CLUSTER": "east"}}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a server that is not there."""
    path = tmp_path / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{free_port()}"}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "users": [{"name": "test", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


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


@pytest.mark.parametrize(
    ("command", "variables", "told"),
    [
        ("manager", {}, "AMQP_URL is not set"),
        ("agent", {"AMQP_URL": "amqp://broker"}, "SLICEBUS_CLUSTER is not set"),
        ("agent", {"AMQP_URL": "amqp://broker", "SLICEBUS_CLUSTER": "Not A Name"}, "SLICEBUS_CLUSTER: "),
        ("manager", {"AMQP_URL": "http://broker"}, "AMQP_URL: "),
        ("manager", {"AMQP_URL": "amqp://broker", "SLICEBUS_WORKERS": "many"}, "SLICEBUS_WORKERS: "),
        ("manager", {"AMQP_URL": "amqp://broker", "SLICEBUS_HEALTH_ADDRESS": "nowhere"}, "SLICEBUS_HEALTH_ADDRESS"),
        ("manager", {"AMQP_URL": "amqp://broker", "KUBECONFIG": "/does/not/exist"}, "kubeconfig: "),
    ],
)
def test_a_setting_that_cannot_work_ends_it_with_its_name(command: str, variables: dict[str, str], told: str) -> None:
    unset = {"AMQP_URL": "", "SLICEBUS_CLUSTER": "", "KUBECONFIG": "", "SLICEBUS_HEALTH_ADDRESS": "127.0.0.1:0"}
    done = run_cli(command, env=unset | variables)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def events(role: Role, event: str) -> list[dict[str, object]]:
    return [line for line in role.log() if line["event"] == event]
