"""A published chart names its image by digest."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from support.helm import CHARTS, only
from support.processes import COMMAND_S

pytestmark = pytest.mark.helm

DIGEST = "sha256:" + "0123456789abcdef" * 4
REQUIRED = ("--set=amqp.existingSecret.name=slicebus-amqp", "--set=cluster=east", "--set=managerUser=manager")


@pytest.mark.parametrize(("chart", "needed"), [("slicebus-manager", REQUIRED[:1]), ("slicebus-agent", REQUIRED)])
def test_a_package_installs_the_image_that_was_published_with_it(
    chart: str, needed: tuple[str, ...], helm: Path, tmp_path: Path
) -> None:
    def run(*command: str | Path) -> str:
        env = os.environ | {"PATH": f"{helm.parent}:{os.environ['PATH']}"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    script = CHARTS.parent / ".ci" / "package-chart"
    package = run(script, chart, f"registry.example/team/{chart}", DIGEST, tmp_path / "packages").strip()
    manifests = [manifest for manifest in yaml.safe_load_all(run(helm, "template", "x", package, *needed)) if manifest]
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example/team/{chart}@{DIGEST}"
