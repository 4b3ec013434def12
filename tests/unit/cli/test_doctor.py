"""What the doctor says about settings with which a role does not start."""

from pathlib import Path

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


@pytest.mark.parametrize(
    ("profiles", "told"),
    [
        ("", "✓ schedulers   enabled: default"),
        ('[{"name": "kai"}, {"name": "default"}]', "✓ schedulers   enabled: kai, default"),
        ('[{"name": "slurm"}]', "✗ schedulers   there is no scheduler backend 'slurm', only default, kube, kai"),
        ('[{"name": "kai"}, {"name": "kai"}]', "✗ schedulers   the scheduler backend 'kai' has two profiles"),
        ('[{"name": "kai", "que": "a"}]', "✗ schedulers   Object contains unknown field `que`"),
        ("kai", "✗ schedulers   JSON is malformed"),
    ],
)
def test_the_doctor_reads_the_profiles_of_schedulers(profiles: str, told: str) -> None:
    variables = AGENT | {"SLICEBUS_SCHEDULERS": profiles, "AMQP_URL": "", "COLUMNS": "400"}
    assert told in CliRunner().invoke(app, ["doctor"], env=NOWHERE | variables).stdout


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "✓ policy       the default"),
        ("{}", "✓ policy       FILE is valid; jobs are created as the agent"),
        ("createAs: jobs", "✓ policy       FILE is valid; jobs are created as the service account jobs"),
        ("createAs: Jobs_1", "✗ policy       the policy FILE is invalid: createAs: "),
        ("podSecurity: [", "✗ policy       the policy FILE cannot be read: "),
    ],
)
def test_the_doctor_reads_the_policy(content: str | None, told: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    if content is not None:
        file.write_text(content)
    variables = {"SLICEBUS_POLICY_FILE": str(file)} if content is not None else {}
    done = CliRunner().invoke(app, ["doctor"], env=NOWHERE | AGENT | variables | {"AMQP_URL": "", "COLUMNS": "400"})
    assert told.replace("FILE", str(file)) in done.stdout
