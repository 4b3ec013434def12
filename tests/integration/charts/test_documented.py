"""The commands that the documents give: what they install can be rendered, and has no password."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.helm import CHARTS, Manifest, only
from support.installation import SECRET
from support.processes import COMMAND_S

pytestmark = pytest.mark.helm

TOP = CHARTS.parent
DOCUMENTS = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
INSTALL = re.compile(r"^ *helm install (\S+) (\S+) (.*)$", re.MULTILINE)


def installs() -> Iterator[tuple[str, str]]:
    """Where each `helm install` stands, and its arguments."""
    for document in DOCUMENTS:
        joined = re.sub(r"\\\n\s*", "", document.read_text())
        yield from ((document.name, " ".join(found)) for found in INSTALL.findall(joined))


def test_the_readme_installs_both_charts() -> None:
    charts = [arguments.split()[1] for document, arguments in installs() if document == "README.md"]
    assert charts == ["charts/slicebus-manager", "charts/slicebus-agent"]


@pytest.mark.parametrize(("document", "arguments"), list(installs()))
def test_a_documented_install_renders(helm: Path, document: str, arguments: str) -> None:
    command = [str(helm), "template", *shlex.split(arguments)]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    assert done.returncode == 0, done.stderr
    manifests: list[Manifest] = [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]
    assert not [manifest for manifest in manifests if manifest["kind"] == "Secret"]
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": SECRET, "key": "url"}
    assert container["image"].startswith("REGISTRY/slicebus-")
