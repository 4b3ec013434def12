"""What an image has is enough: the commands begin in an environment made from docker/requirements.lock alone."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from support.image import TOP
from support.installation import run_cli
from support.processes import COMMAND_S

pytestmark = [pytest.mark.index]

EXTRAS = re.compile(
    r"slicebus\.cli\.(trace\.protobuf lacks google"
    r"|((ledger|usage)\.[\w.]+|whatif\.ledger_reading) lacks (sqlalchemy|alembic|psycopg))"
)
"""What is imported where somebody uses it."""

IMPORT_ALL = """
import importlib, pkgutil, slicebus
for module in pkgutil.walk_packages(slicebus.__path__, "slicebus."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        print(module.name, "lacks", error.name)
    else:
        print(module.name)
"""


def test_its_command_line_describes_itself(image: Path) -> None:
    """What each command needs is imported by the test of every module."""
    done = run_cli("--help", env={}, program=image)
    assert done.returncode == 0, done.stderr
    assert "Usage: slicebus" in done.stdout


def test_an_image_says_what_is_in_it(image: Path) -> None:
    """By name, version and hash, as docker/requirements.lock has them."""
    said = json.loads((image.parents[1] / "sbom.cdx.json").read_text())
    assert said["bomFormat"] == "CycloneDX"
    assert said["metadata"]["component"]["name"] == "slicebus"
    lock = (TOP / "docker" / "requirements.lock").read_text()
    locked = set(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock, re.MULTILINE))
    assert {(component["name"], component["version"]) for component in said["components"]} == locked
    for component in said["components"]:
        (distribution,) = component["externalReferences"]
        assert {found["alg"] for found in distribution["hashes"]} == {"SHA-256"}, component["name"]
    python = image.with_name("python")
    listed = "from importlib.metadata import distributions as d; print(*sorted(x.name.lower() for x in d()))"
    done = subprocess.run([python, "-P", "-c", listed], capture_output=True, text=True, timeout=COMMAND_S, check=True)
    installed = {re.sub(r"[-_.]+", "-", name) for name in done.stdout.split()}
    # Before 3.12 a virtual environment begins with setuptools.
    assert installed - {"slicebus", "setuptools"} <= {re.sub(r"[-_.]+", "-", name.lower()) for name, _ in locked}


def test_every_module_can_be_imported_but_those_of_the_demo_and_of_an_extra(image: Path) -> None:
    python = image.with_name("python")
    done = subprocess.run(
        [python, "-P", "-c", IMPORT_ALL], capture_output=True, text=True, timeout=COMMAND_S, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {"slicebus.manager.app", "slicebus.agent.app", "slicebus.cli.replay.command"} <= set(lines)
    lacking = [line for line in lines if " lacks " in line]
    of_extras = [line for line in lacking if EXTRAS.fullmatch(line)]
    of_the_demo = [line for line in lacking if line not in of_extras]
    assert "slicebus.cli.trace.protobuf lacks google" in of_extras
    assert "slicebus.cli.ledger.database lacks psycopg" in of_extras
    assert of_the_demo
    assert all(re.fullmatch(r"slicebus\.cli\.demo\.\w+ lacks slicebus\.sandbox", line) for line in of_the_demo), lacking


def test_the_demo_says_what_is_missing(image: Path) -> None:
    done = run_cli("demo", env={"AMQP_URL": ""}, program=image)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the demo needs the package slicebus.sandbox" in done.stderr


@pytest.mark.parametrize("role", ["manager", "agent"])
def test_a_role_gets_as_far_as_its_settings(role: str, image: Path) -> None:
    done = run_cli(role, env={"AMQP_URL": ""}, program=image)
    assert done.returncode == 2
    assert "AMQP_URL is not set" in done.stderr


@pytest.mark.parametrize("variables", [{}, {"SLICEBUS_CLUSTER": "east"}], ids=["manager", "agent"])
def test_the_doctor_says_that_nothing_is_there(variables: dict[str, str], image: Path) -> None:
    nowhere = {"AMQP_URL": "amqp://127.0.0.1:1/", "KUBECONFIG": "/does/not/exist"}
    done = run_cli("doctor", env={**nowhere, **variables}, program=image)
    assert done.returncode == 1, done.stderr
    assert "✗ broker" in done.stdout
    assert "✗ api server" in done.stdout
