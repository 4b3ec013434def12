"""What the doctor says about settings with which a role does not start."""

import pytest
from typer.testing import CliRunner

from slicebus.cli.main import app

NOWHERE = {"KUBECONFIG": "/does/not/exist", "SLICEBUS_CLUSTER": "", "SLICEBUS_MANAGER_USER": "", "COLUMNS": "200"}
AGENT = {"SLICEBUS_CLUSTER": "east"}


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"AMQP_URL": ""}, "✗ broker       AMQP_URL is not set"),
        ({"AMQP_URL": "amqp://u:hunter2@broker/v"}, "✗ broker       AMQP_URL: plain amqp:// to broker"),
        ({"AMQP_URL": "amqps://u:hunter2@broker/v?no_verify_ssl=1"}, "✗ broker       AMQP_URL: no_verify_ssl"),
        ({"AMQP_URL": "amqps://u:hun/ter2@broker/v"}, "✗ broker       AMQP_URL: its host and port"),
        ({"AMQP_URL": "", **AGENT}, "✗ manager user SLICEBUS_MANAGER_USER is not set"),
        ({"AMQP_URL": "", "SLICEBUS_MANAGER_USER": "boss", **AGENT}, "✓ manager user orders have to come from boss"),
    ],
)
def test_the_doctor_names_the_setting(variables: dict[str, str], told: str) -> None:
    done = CliRunner().invoke(app, ["doctor"], env=NOWHERE | variables)
    assert done.exit_code == 1
    assert told in done.stdout
    assert "ter2" not in done.stdout
