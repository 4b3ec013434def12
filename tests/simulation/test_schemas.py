"""Everything that slicebus writes of Kueue's kinds passes Kueue's own schemas, whatever a run brings.

They lie beside the checkout on some machines; elsewhere the project's subset of them is held.
"""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from simulation.fleet import Server
from simulation.outcome import play_seed
from slicebus.kube.transport import Answer, Request
from slicebus.sandbox.apiserver.schema import problems, unknown
from support.servers import SHARED_CRDS

Schema = dict[str, Any]
SEEDS = range(4)
PREFIX = "/apis/kueue.x-k8s.io/v1beta2/"


def definitions() -> Iterator[Schema]:
    """Kueue's, or the project's."""
    theirs = sorted(SHARED_CRDS.glob("kueue/*.yaml"))
    ours = [Path(str(path)) for path in files("slicebus.kube.crds").iterdir() if "kueue.x-k8s.io" in path.name]
    for path in theirs or ours:
        yield yaml.load(path.read_text(), yaml.CSafeLoader)


def schemas() -> dict[str, Schema]:
    """By plural."""
    return {
        definition["spec"]["names"]["plural"]: version["schema"]["openAPIV3Schema"]
        for definition in definitions()
        for version in definition["spec"]["versions"]
        if version["name"] == "v1beta2"
    }


def plural_of(path: str) -> str:
    """The resource of a path: with a namespace it is the third step."""
    steps = path.removeprefix(PREFIX).split("/")
    return steps[2] if steps[0] == "namespaces" else steps[0]


@pytest.mark.timeout(300)
def test_what_is_written_passes_the_schemas_of_kueue(monkeypatch: pytest.MonkeyPatch) -> None:
    known, answer = schemas(), Server.answer
    written: dict[str, int] = {}
    wrong: set[str] = set()

    def observed(server: Server, request: Request) -> Answer:
        answered = answer(server, request)
        if request.method in ("POST", "PUT", "PATCH") and request.path.startswith(PREFIX) and answered.status < 300:
            plural = plural_of(request.path)
            written[plural] = written.get(plural, 0) + 1
            body, stored = json.loads(request.body or b"null"), json.loads(answered.body)
            wrong.update(
                f"{plural}: unknown: {path}" for path in unknown(body, known[plural]) if isinstance(body, dict)
            )
            wrong.update(f"{plural}: {problem}" for problem in problems(stored, known[plural]))
        return answered

    monkeypatch.setattr(Server, "answer", observed)
    for seed in SEEDS:
        assert not play_seed(seed).problem
    assert not wrong
    assert written.keys() >= {"workloads", "clusterqueues", "localqueues"}
    assert written["workloads"] > 100
