"""Our AdmissionChecks: whether each can be answered, and how an answer is written onto a Workload."""

from typing import Any

import pytest

from slicebus.decisions.commands import Patch
from slicebus.manager.decide.kueue import kueue_checks
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import CheckState
from unit.manager.objects import NOW, shorts

Manifest = dict[str, Any]


def a_check(controller: str = api_names.CHECK_CONTROLLER, **spec: Any) -> Manifest:
    metadata = {"name": "slicebus", "resourceVersion": "3", "generation": 1}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": metadata,
        "spec": {"controllerName": controller} | spec,
    }


def a_cluster(name: str = "east", *, accepted: bool = True) -> WorkerCluster:
    return WorkerCluster.from_manifest({"metadata": {"name": name}, "spec": {"accepted": accepted}})


REPORTS: dict[str, tuple[Manifest, list[WorkerCluster], list[tuple[str, ...]]]] = {
    "a fleet, connected or not": (
        a_check(),
        [a_cluster()],
        [("slicebus", "Active=True Active"), ("event AdmissionCheck", "Active")],
    ),
    "no cluster that is accepted": (
        a_check(),
        [a_cluster(accepted=False)],
        [("slicebus", "Active=False NoWorkerCluster"), ("warn AdmissionCheck", "NoWorkerCluster")],
    ),
    "parameters": (
        a_check(parameters={"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "m"}),
        [a_cluster()],
        [("slicebus", "Active=False ParametersNotSupported"), ("warn AdmissionCheck", "ParametersNotSupported")],
    ),
    "of another controller": (a_check("kueue.x-k8s.io/multikueue"), [a_cluster()], []),
}


@pytest.mark.parametrize(("check", "clusters", "expected"), REPORTS.values(), ids=REPORTS.keys())
def test_a_check_shows_whether_it_can_be_answered(
    check: Manifest, clusters: list[WorkerCluster], expected: list[tuple[str, ...]]
) -> None:
    commands = kueue_checks.report(check, clusters, now=NOW)
    assert shorts(commands) == expected
    if commands:
        assert isinstance(commands[0], Patch)
        assert isinstance(commands[0].body, dict)
        shown = check | commands[0].body
        assert kueue_checks.report(shown, clusters, now=NOW) == []


def entry(name: str = "slicebus", state: str = "Pending", message: str = "") -> Manifest:
    return {"name": name, "state": state, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}


OURS = frozenset({"slicebus"})


def test_an_answer_changes_our_entry_and_no_other() -> None:
    workload = {"metadata": {"name": "w", "resourceVersion": "1"}, "status": {"admissionChecks": [entry("a"), entry()]}}
    [patch] = kueue_checks.answer(workload, OURS, CheckState.READY, "there", now=NOW)
    assert isinstance(patch, Patch)
    ready = {"name": "slicebus", "state": "Ready", "message": "there", "lastTransitionTime": NOW}
    assert patch.body == {"status": {"admissionChecks": [entry("a"), ready]}}
    assert patch.subresource == "status"


def test_another_message_is_no_transition_and_the_same_is_no_write() -> None:
    workload: Manifest = {"metadata": {"name": "w"}, "status": {"admissionChecks": [entry()]}}
    [patch] = kueue_checks.answer(workload, OURS, CheckState.PENDING, "why", now=NOW)
    assert isinstance(patch, Patch)
    assert patch.body == {"status": {"admissionChecks": [entry(message="why")]}}
    workload["status"]["admissionChecks"] = [entry(message="why")]
    assert kueue_checks.answer(workload, OURS, CheckState.PENDING, "why", now=NOW) == []


def test_of_several_of_ours_the_one_that_keeps_the_job_back_most_counts() -> None:
    known = [entry(state, state) for state in ("Ready", "Pending", "not known yet", "Retry", "Rejected")]
    ours = frozenset(each["name"] for each in known)
    for most in range(1, len(known) + 1):
        found = kueue_checks.entry_of({"status": {"admissionChecks": known[:most]}}, ours)
        assert found is not None
        assert found["state"] == ("Pending" if most == 3 else known[most - 1]["state"])
