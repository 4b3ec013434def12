"""What queues show of themselves."""

from collections.abc import Iterable

import msgspec
import pytest

from slicebus.decisions.commands import Patch
from slicebus.kube.resources import CLUSTERQUEUES, LOCALQUEUES
from slicebus.manager.decide.admission.queue_status import fair_sharing_of, statuses
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.quota.quota import ClusterQueue, Cohort
from slicebus.slices.workload.workload import Slice
from unit.manager.objects import NOW, Manifest
from unit.slices.builders import a_slice, admitted, ledger_of


def a_cluster_queue(**spec: object) -> Manifest:
    resources = [{"name": "cpu", "nominalQuota": "10"}, {"name": "memory", "nominalQuota": "8Gi"}]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": resources}]}]
    return {"metadata": {"name": "cq", "generation": 1}, "spec": {"resourceGroups": groups} | spec}


def a_local_queue(**spec: object) -> Manifest:
    metadata = {"name": "lq", "namespace": "team", "generation": 1}
    return {"metadata": metadata, "spec": {"clusterQueue": "cq"} | spec}


def reported(
    cluster_queue: Manifest, local_queue: Manifest, *slices: Slice, cohorts: Iterable[Cohort] = ()
) -> tuple[Manifest, Manifest]:
    """The new status of both; empty for one that is left as it is."""
    found: dict[object, Manifest] = {CLUSTERQUEUES: {}, LOCALQUEUES: {}}
    try:
        readable = {"cq": ClusterQueue.from_manifest(cluster_queue)}
    except ValueError:
        readable = {}
    for command in statuses(readable, cohorts, [cluster_queue], [local_queue], ledger_of(*slices), now=NOW):
        assert isinstance(command, Patch)
        assert isinstance(command.body, dict)
        assert command.subresource == "status"
        found[command.resource] = command.body["status"]
    return found[CLUSTERQUEUES], found[LOCALQUEUES]


def test_a_chain_is_counted_once_and_its_workloads_each() -> None:
    old = admitted(a_slice("a", 3))
    waiting = a_slice("b", 2, job_uid="other")
    done = a_slice("c", 9, job_uid="third", finished=True)
    cluster_queue, local_queue = reported(a_cluster_queue(), a_local_queue(), old, waiting, done)
    counts = {"pendingWorkloads": 1, "reservingWorkloads": 1, "admittedWorkloads": 1}
    assert counts.items() <= cluster_queue.items()
    assert counts.items() <= local_queue.items()
    used = [{"name": "cpu", "total": "3"}, {"name": "memory", "total": "0"}]
    assert cluster_queue["flavorsUsage"] == [{"name": "default", "resources": used}]
    assert cluster_queue["flavorsReservation"] == cluster_queue["flavorsUsage"]


def test_a_local_queue_shows_what_its_own_workloads_use() -> None:
    own = admitted(a_slice("a", 12))
    other = msgspec.structs.replace(admitted(a_slice("b", 2, job_uid="other")), queue="theirs")
    cluster_queue, local_queue = reported(a_cluster_queue(cohortName="org"), a_local_queue(), own, other)
    assert cluster_queue["flavorsUsage"][0]["resources"][0] == {"name": "cpu", "total": "14", "borrowed": "4"}
    used = [{"name": "cpu", "total": "12"}, {"name": "memory", "total": "0"}]
    assert local_queue["flavorsUsage"] == [{"name": "default", "resources": used}]
    assert local_queue["flavorsReservation"] == local_queue["flavorsUsage"]


def test_a_local_queue_of_no_cluster_queue_shows_no_use() -> None:
    _, local_queue = reported(a_cluster_queue(), a_local_queue(clusterQueue="none"), admitted(a_slice("a", 3)))
    assert "flavorsUsage" not in local_queue


def test_what_is_used_past_the_quota_is_borrowed() -> None:
    status, _ = reported(a_cluster_queue(cohortName="org"), a_local_queue(), admitted(a_slice("a", 12)))
    [flavor] = status["flavorsReservation"]
    assert flavor["resources"][0] == {"name": "cpu", "total": "12", "borrowed": "2"}


def test_a_queue_of_cohorts_without_a_root_is_not_active() -> None:
    circle = [Cohort(name="a", parent="b"), Cohort(name="b", parent="a")]
    status, _ = reported(a_cluster_queue(cohortName="a"), a_local_queue(), cohorts=circle)
    [active] = status["conditions"]
    assert (active["status"], active["reason"]) == ("False", "CohortCycle")
    assert active["message"] == "Can't admit new workloads: the cohorts a and b are each other's parent"


def test_a_queue_too_far_below_the_root_is_not_active() -> None:
    chain = [Cohort(name=f"c{level}", parent=f"c{level - 1}" if level else "") for level in range(1000)]
    status, _ = reported(a_cluster_queue(cohortName="c999"), a_local_queue(), cohorts=chain)
    [active] = status["conditions"]
    assert (active["status"], active["reason"]) == ("False", "CohortTooDeep")
    assert active["message"] == "Can't admit new workloads: its cohort has more than 49 cohorts above it"


def test_a_status_that_is_right_is_left_alone() -> None:
    cluster_queue, local_queue = a_cluster_queue(), a_local_queue()
    cluster_queue["status"], local_queue["status"] = reported(cluster_queue, local_queue)
    assert reported(cluster_queue, local_queue) == ({}, {})


UNREADABLE = "not a quantity: 'many'"


@pytest.mark.parametrize(
    ("cluster_spec", "local_spec", "cluster_reason", "local_reason"),
    [
        pytest.param({}, {}, "Ready", "Ready", id="both ready"),
        pytest.param({"stopPolicy": "Hold"}, {}, "Stopped", "ClusterQueueIsInactive", id="cluster queue stopped"),
        pytest.param({}, {"stopPolicy": "Hold"}, "Ready", "Stopped", id="local queue stopped"),
        pytest.param({}, {"clusterQueue": "none"}, "Ready", "ClusterQueueDoesNotExist", id="no cluster queue"),
        pytest.param(
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "many"}]}],
                    }
                ]
            },
            {},
            "Unreadable",
            "ClusterQueueDoesNotExist",
            id="quota is no quantity",
        ),
        pytest.param(
            {"fairSharing": {"weight": "many"}}, {}, "Unreadable", "ClusterQueueDoesNotExist", id="nor is its weight"
        ),
        pytest.param(
            {"preemption": {"withinClusterQueue": "Youngest"}}, {}, "Ready", "Ready", id="a policy of a newer Kueue"
        ),
    ],
)
def test_active_shows_whether_and_why_not(
    cluster_spec: Manifest, local_spec: Manifest, cluster_reason: str, local_reason: str
) -> None:
    statuses = reported(a_cluster_queue(**cluster_spec), a_local_queue(**local_spec))
    conditions = [status["conditions"][0] for status in statuses]
    assert [condition["reason"] for condition in conditions] == [cluster_reason, local_reason]
    if cluster_reason == "Unreadable":
        assert conditions[0]["message"] == f"Can't admit new workloads: its spec has what is {UNREADABLE}"
    assert all((condition["status"] == "True") == (condition["reason"] == "Ready") for condition in conditions)


def test_with_fair_sharing_queues_and_cohorts_show_their_share() -> None:
    queue = a_cluster_queue(cohortName="team")
    cohort = {"metadata": {"name": "team", "generation": 1}, "spec": {"parentName": "org"}}
    readable, known = {"cq": ClusterQueue.from_manifest(queue)}, [Cohort.from_manifest(cohort)]
    ledger = ledger_of(admitted(a_slice("a", 12)))

    def written(fair_sharing: FairSharing) -> dict[str, object]:
        found = statuses(
            readable, known, [queue], [], ledger, now=NOW, fair_sharing=fair_sharing, cohort_objects=[cohort]
        )
        patches = [command for command in found if isinstance(command, Patch) and isinstance(command.body, dict)]
        return {
            patch.target["metadata"]["name"]: patch.body["status"].get("fairSharing", "unsaid") for patch in patches
        }

    assert written(FairSharing.OFF) == {"cq": "unsaid"}
    assert written(FairSharing.BOTH) == {"cq": {"weightedShare": 200}, "team": {"weightedShare": 200}}
    cohort["status"] = {"fairSharing": {"weightedShare": 200}}
    queue["status"] = {"fairSharing": {"weightedShare": 200}}
    assert written(FairSharing.BOTH) == {"cq": {"weightedShare": 200}}
    assert written(FairSharing.OFF) == {"cq": None}, "no longer true without fair sharing"


def test_a_queue_shows_by_which_strategies_shares_decide() -> None:
    queue = a_cluster_queue()
    readable = {"cq": ClusterQueue.from_manifest(queue)}
    for fair_sharing in (FairSharing.OFF, FairSharing.BOTH, FairSharing.INITIAL_SHARE, FairSharing.OFF):
        [patch] = statuses(readable, [], [queue], [], ledger_of(), now=NOW, fair_sharing=fair_sharing)
        assert isinstance(patch, Patch)
        queue = merge_patch(queue, patch.body)
        assert fair_sharing_of(queue) is fair_sharing
        assert statuses(readable, [], [queue], [], ledger_of(), now=NOW, fair_sharing=fair_sharing) == []
    assert [(entry["type"], entry["reason"]) for entry in queue["status"]["conditions"]] == [
        ("Active", "Ready"),
        ("slicebus.dev/FairSharing", "Off"),
    ]
