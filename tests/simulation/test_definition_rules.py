"""What went with the definition of its kind is not deleted where it runs, unless it had to go anyway."""

from contextlib import nullcontext
from typing import Any, Literal

import pytest

from simulation.definition_rules import DefinitionRules
from simulation.end_rules import EndRules
from simulation.violations import Violation
from slicebus.kube.resources import CRDS, JOB_RESOURCES, Resource
from slicebus.manager.state.outbox import Dispatch
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api import api_names

RESOURCE = JOB_RESOURCES["RayJob"]
DEFINITION = {"metadata": {"name": RESOURCE.definition}}
HELD, WITHDRAWN = Dispatch(version=2, hash="1"), Dispatch(version=2, hash=api_names.ABSENT)
ENDED = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}


def job_with(status: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "RayJob", "metadata": {"name": "rayjob-a", "uid": "1"}, "spec": {}, "status": status}


def order_of(version: int, *, reason: str = "JobDeleted") -> dict[str, Any]:
    return {"job": {"name": "rayjob-a", "uid": "1"}, "spec_version": version, "reason": reason}


def change_of(change: Literal["ADDED", "DELETED"], resource: Resource, manifest: dict[str, Any]) -> HistoryEntry:
    key = (resource.group, resource.plural, "", manifest["metadata"]["name"])
    return HistoryEntry(1, change, key, manifest, manifest)


def after_it_went(status: dict[str, Any], dispatch: Dispatch | None) -> DefinitionRules:
    rules = DefinitionRules(EndRules({"manager": Api()}))
    rules.see_definition("manager", change_of("DELETED", CRDS, DEFINITION), goes=True)
    rules.see_going("manager", change_of("DELETED", RESOURCE, job_with(status)), dispatch)
    return rules


@pytest.mark.parametrize(
    ("status", "dispatch", "order", "is_right"),
    [
        ({}, None, order_of(1), False),
        ({}, HELD, order_of(3), False),
        ({}, HELD, order_of(2), False),
        ({}, HELD, order_of(3, reason="WorkloadDeleted"), False),
        ({}, HELD, order_of(3, reason="ClusterLost"), True),
        ({}, HELD, order_of(3, reason="AdmittedElsewhere"), True),
        ({}, WITHDRAWN, order_of(2), True),
        ({}, WITHDRAWN, order_of(3), False),
        (ENDED, HELD, order_of(3, reason="JobFinished"), True),
        (ENDED, HELD, order_of(3), True),
    ],
    ids=[
        "never dispatched",
        "runs",
        "runs, no newer version",
        "its Workload went after it",
        "on a cluster that was given up",
        "decided before, for its next place",
        "its delete was recorded",
        "a newer delete",
        "had ended",
        "had ended, and another manager goes on",
    ],
)
def test_nothing_is_deleted_because_its_definition_went(
    status: dict[str, Any], dispatch: Dispatch | None, order: dict[str, Any], is_right: bool
) -> None:
    rules = after_it_went(status, dispatch)
    with nullcontext() if is_right else pytest.raises(Violation, match="rayjob-a went with its definition"):
        rules.check_order(order)


def test_what_is_missing_may_be_released_when_the_definition_is_back() -> None:
    rules = after_it_went({}, HELD)
    rules.see_definition("manager", change_of("ADDED", CRDS, DEFINITION), goes=False)
    rules.check_order(order_of(3))
