"""Rendered charts."""

import subprocess
from base64 import b64decode
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from support.processes import COMMAND_S

CHARTS = Path(__file__).parents[2] / "charts"
NAMESPACE = "slicebus-system"

Manifest = dict[str, Any]


class HelmError(Exception):
    """Helm's refusal, in its words."""


def render(
    helm: Path, chart: str, values: Mapping[str, object], *more: str, release: str | None = None
) -> list[Manifest]:
    """What `helm template` makes of a chart for a release of its name, in the order of installation, without the pod of
    `helm test`. Raises HelmError."""
    text = _rendered(helm, chart, yaml.safe_dump(dict(values)), *(more or ("--skip-tests",)), release=release or chart)
    return [manifest for manifest in yaml.load_all(text, Loader=yaml.CSafeLoader) if manifest]


@cache
def _rendered(helm: Path, chart: str, values: str, *more: str, release: str) -> str:
    """Half a second of processor time, and many tests render the same."""
    command = [str(helm), "template", release, str(CHARTS / chart), "--namespace", NAMESPACE, "--values", "-", *more]
    done = subprocess.run(command, input=values, capture_output=True, text=True, timeout=COMMAND_S, check=False)
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def only(manifests: list[Manifest], kind: str) -> Manifest:
    """The one manifest of that kind."""
    (found,) = (manifest for manifest in manifests if manifest["kind"] == kind)
    return found


def values_of(secret: Manifest) -> dict[str, str]:
    """What a Secret holds."""
    decoded = {key: b64decode(value).decode() for key, value in secret.get("data", {}).items()}
    return decoded | secret.get("stringData", {})


def environment(manifests: list[Manifest]) -> dict[str, str]:
    """What the Deployment's container would see, with the one Secret that is there and a pod's own names filled in."""
    (container,) = only(manifests, "Deployment")["spec"]["template"]["spec"]["containers"]
    found = {}
    for variable in container["env"]:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            secret = only(manifests, "Secret")
            assert secret["metadata"]["name"] == source["secretKeyRef"]["name"]
            found[variable["name"]] = values_of(secret)[source["secretKeyRef"]["key"]]
        elif "fieldRef" in source:
            fields = {"metadata.namespace": NAMESPACE, "metadata.name": f"{container['name']}-pod"}
            found[variable["name"]] = fields[source["fieldRef"]["fieldPath"]]
        else:
            found[variable["name"]] = variable["value"]
    return found
