"""What LocalQueues have used: what their status keeps, and who comes first for it."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from slicebus.decisions.commands import Patch
from slicebus.kube.resources import LOCALQUEUES
from slicebus.kube.times import time_text
from slicebus.manager.decide import catalog
from slicebus.manager.decide.explain import explain
from slicebus.manager.state.settings import LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Admit
from slicebus.slices.api import api_names
from unit.manager.objects import REF, a_job, a_workload
from unit.manager.test_budgets import put
from unit.manager.test_explain import a_store, an_object, of_another

Manifest = dict[str, Any]
BEGAN = datetime.fromisoformat("2026-06-01T00:00:00Z")
BY_USE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
HALF_LIFE_S = 1000.0


def a_world(*workloads: Manifest, weight: object = 1, **spec: Any) -> ManagerStore:
    """A job with two of the five cores, and a second LocalQueue."""
    store = a_store(a_job(2), a_workload(count=2, admitted=2, dispatched=1, applied=1), *workloads, **spec)
    other = {"clusterQueue": "cq", "fairSharing": {"weight": weight}}
    store.local_queues.put(an_object("other", other, metadata={"namespace": "team"}))
    store.configure(LeaderSettings(usage_half_life_s=HALF_LIFE_S))
    return store


def report(store: ManagerStore, after_s: float) -> dict[str, Manifest]:
    """The status of the LocalQueues that is written then."""
    found = {}
    for command in catalog.report_queues(store, now=time_text(BEGAN + timedelta(seconds=after_s))):
        if isinstance(command, Patch) and command.resource == LOCALQUEUES:
            assert isinstance(command.body, dict)
            name = command.target["metadata"]["name"]
            found[name] = command.body["status"]
            present = store.local_queues.get("team", name)
            assert present is not None
            put(store.local_queues, merge_patch(present, command.body))
    return found


def of_queue(workload: Manifest, queue: str) -> Manifest:
    return merge_patch(workload, {"spec": {"queueName": queue}})


def waiting(name: str, queue: str, count: int = 3) -> Manifest:
    return of_queue(of_another(name, count), queue)


def admitted(store: ManagerStore, after_s: float) -> list[str]:
    now = time_text(BEGAN + timedelta(seconds=after_s))
    decided = catalog.cycle(store, trees=None, preemption_cycles_since="", now=now)
    return [each.key.partition("/")[2] for each in decided if isinstance(each, Admit)]


def test_the_account_is_written_with_what_changes_anyway() -> None:
    store = a_world(**BY_USE)
    first = report(store, 0)
    assert first["queue"]["fairSharing"] == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {"consumedResources": {}, "lastUpdate": "2026-06-01T00:00:00Z"},
    }
    assert report(store, HALF_LIFE_S) == {}, "time alone writes nothing"
    put(store.workloads, a_workload(count=1, admitted=1, dispatched=1, applied=1))
    written = report(store, HALF_LIFE_S)["queue"]["fairSharing"]["admissionFairSharingStatus"]
    assert written["consumedResources"]["cpu"] == "1"
    assert written["lastUpdate"] == time_text(BEGAN + timedelta(seconds=HALF_LIFE_S))


def test_a_queue_that_does_not_go_by_use_has_none() -> None:
    assert "fairSharing" not in report(a_world(), 0)["queue"]
    store = a_world(**BY_USE)
    report(store, 0)
    [queue] = store.cluster_queues.all()
    put(store.cluster_queues, queue | {"spec": queue["spec"] | {"admissionScope": None}})
    assert report(store, 1)["queue"]["fairSharing"] is None
    assert report(store, 2) == {}


@pytest.mark.parametrize(("spec", "first"), [(BY_USE, "theirs"), ({}, "mine")], ids=["by use", "by age"])
def test_who_used_less_comes_first(spec: Manifest, first: str) -> None:
    store = a_world(waiting("mine", "queue"), waiting("theirs", "other"), **spec)
    report(store, 0)
    assert admitted(store, 600) == [first]


@pytest.mark.parametrize(
    ("weight", "first"), [(1, "mine"), ("4", "theirs"), (0, "mine"), ("-1", "mine"), ("much", "mine")]
)
def test_use_counts_by_the_weight_of_the_queue(weight: object, first: str) -> None:
    """The other LocalQueue uses three cores, this one two. A weight that is none counts as 1."""
    theirs = of_queue(of_another("running", 3, admitted=3), "other")
    store = a_world(
        theirs, waiting("mine", "queue", 1), waiting("theirs", "other", 1), weight=weight, **BY_USE | quota("6")
    )
    report(store, 0)
    assert admitted(store, 600)[:1] == [first]


def quota(cores: str) -> Manifest:
    resources = [{"name": "cpu", "nominalQuota": cores}, {"name": "memory", "nominalQuota": "1Gi"}]
    flavors = [{"name": "spot", "resources": resources}]
    return {"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}


def test_explain_shows_the_place_in_that_order() -> None:
    store = a_world(a_workload("w2", 9, replaces="w1"), waiting("theirs", "other", 9), **BY_USE)
    report(store, 0)
    [wait] = explain(store, REF, moment=BEGAN + timedelta(seconds=600)).waiting
    assert (wait.position, wait.ahead) == (2, ("team/theirs",))


def test_both_fields_are_honored() -> None:
    store = a_world(weight="2", **BY_USE)
    conditions = [entry["type"] for status in report(store, 0).values() for entry in status["conditions"]]
    assert api_names.HONORED_CONDITION not in conditions
