"""What the manager writes beside a Kueue passes Kueue's own schemas, where they lie beside the checkout."""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.decisions.commands import Command, Patch
from slicebus.manager.decide.kueue import kueue_checks
from slicebus.sandbox.apiserver.schema import problems, unknown
from unit.manager.objects import NOW
from unit.manager.test_beside_kueue import asking, evicted, kueues_job, kueues_workload, places, reconcile
from unit.manager.test_kueue_checks import a_check, a_cluster

Manifest = dict[str, Any]
RECONCILED: dict[str, list[Command]] = {
    "placed": reconcile(kueues_job(suspended=True), kueues_workload(cluster=None)),
    "no place": reconcile(kueues_job(suspended=True), kueues_workload(cluster=None), at=places()),
    "dispatched": reconcile(kueues_job(suspended=True), kueues_workload()),
    "rejected": reconcile(
        kueues_job(annotations={"kueue.x-k8s.io/job-min-parallelism": "1"}), kueues_workload(cluster=None)
    ),
    "retried": reconcile(kueues_job(), kueues_workload(dispatched=1, cluster="lost"), in_fleet=False),
    "suspended": reconcile(
        kueues_job(2, annotations=asking({"main": 2})), evicted(kueues_workload(dispatched=1, applied=1, admitted=True))
    ),
    "a check that cannot be answered": kueue_checks.report(a_check(), [], now=NOW),
    "a check that can": kueue_checks.report(a_check(), [a_cluster()], now=NOW),
}


def merged(target: Manifest, patch: Manifest) -> Manifest:
    """The object after a merge patch."""
    done = copy.deepcopy(target)
    for name, value in patch.items():
        if value is None:
            done.pop(name, None)
        elif isinstance(value, dict) and isinstance(done.get(name), dict):
            done[name] = merged(done[name], value)
        else:
            done[name] = value
    return done


@cache
def schema_of(kind: str, folder: Path) -> Manifest:
    definition = yaml.load((folder / f"kueue.x-k8s.io_{kind.lower()}s.yaml").read_text(), yaml.CSafeLoader)
    [found] = [v["schema"]["openAPIV3Schema"] for v in definition["spec"]["versions"] if v["name"] == "v1beta2"]
    schema: Manifest = found
    return schema


@pytest.mark.parametrize("commands", RECONCILED.values(), ids=RECONCILED.keys())
def test_every_write_passes_the_schema_of_its_kind(shared_dir: Path, commands: list[Command]) -> None:
    patches = [
        command
        for command in commands
        if isinstance(command, Patch) and command.resource.group == "kueue.x-k8s.io" and isinstance(command.body, dict)
    ]
    assert patches
    for patch in patches:
        assert isinstance(patch.body, dict)
        schema, after = schema_of(patch.resource.kind, shared_dir / "crds" / "kueue"), merged(patch.target, patch.body)
        assert list(unknown(patch.body, schema)) == []
        # The tests' own objects leave out what Kueue would have written.
        assert set(problems(after, schema)) <= set(problems(patch.target, schema))


def test_a_state_that_kueue_does_not_know_would_be_noticed(shared_dir: Path) -> None:
    schema = schema_of("Workload", shared_dir / "crds" / "kueue")
    workload = kueues_workload(state="Unheard")
    assert any("admissionChecks[0].state" in problem for problem in problems(workload, schema))
