"""The recipe "add a scheduler backend": each backend has everything that it asks for."""

import re
from pathlib import Path

import pytest

from slicebus.kube.crds import custom_resource_definitions
from slicebus.sandbox import schedulers as scheduler_crds
from slicebus.slices.schedulers import NAMES, Profile, every_version
from slicebus.slices.workload.waiting import SCHEDULING
from unit.slices.schedulers.test_backends import PREPARED

REPOSITORY = Path(__file__).parents[4]
DEFINED = {each["metadata"]["name"]: each["spec"] for each in custom_resource_definitions(scheduler_crds.__name__)}


def text_of(path: str) -> str:
    return (REPOSITORY / path).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_a_backend_is_defined_documented_and_in_the_values(name: str) -> None:
    for backend in every_version(Profile(name)):
        for resource in filter(lambda each: each.is_custom, (*backend.makes, *backend.reads)):
            spec = DEFINED[resource.definition]
            assert resource.version in [version["name"] for version in spec["versions"]]
            assert (spec["scope"] == "Namespaced") is resource.namespaced
            assert spec["names"]["kind"] == resource.kind
    assert f"| `{name}` |" in text_of("docs/schedulers.md")
    [values] = re.findall(r"# \{name: ([a-z|]+)\};", text_of("charts/slicebus-agent/values.yaml"))
    assert name in values.split("|")
    assert name in PREPARED


@pytest.mark.parametrize("reason", SCHEDULING)
def test_a_reason_is_documented(reason: str) -> None:
    for page in ("docs/schedulers.md", "docs/operations.md"):
        assert f"`{reason}`" in text_of(page)


def test_every_definition_is_that_of_a_backend() -> None:
    needed = {
        resource.definition
        for name in NAMES
        for backend in every_version(Profile(name))
        for resource in (*backend.makes, *backend.reads)
    }
    assert DEFINED.keys() <= needed
