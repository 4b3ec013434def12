"""What a resize costs the manager while many wait in its tree of quota, by the processor time of its decisions.

One cohort of ten queues, whose quota all but a few cores are in use by; in each queue workloads of three sizes and
priorities wait for more than is free. A running job then grows by one pod again and again: its slice comes, a cycle
decides about the tree, and what that decides is turned into writes. No server takes part. Targets: each step costs at
most 1.3 times what it costs with the fewest that wait, and a resize has no more decisions.
"""

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import figures
from admission import CORES, an_object, workloads
from figures import Figure, Target

from slicebus.decisions.commands import Patch
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import admission_writes
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.state.store import ManagerStore
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.admission.cycle import Decision, Wait, cycle
from slicebus.slices.api import kueue
from slicebus.slices.api.conditions import with_findings
from slicebus.slices.workload.workload import SliceKey

Manifest = dict[str, Any]
_Result = TypeVar("_Result")
COHORT = "cohort/all"
QUEUES = 10
FREE = 8
"""Cores of the cohort that nobody uses. Each workload that waits wants more."""
SIZES = ((10, 50), (20, 100), (40, 200))
"""The cores of the workloads of each queue, and their priorities."""
NOW = "2026-01-01T06:00:00Z"
SINCE = "2026-01-01T00:00:00Z"
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
STEPS = ("take in", "snapshot", "cycle", "decision", "writes")
MOST_GROWTH, AS_MANY = Target(1.3, of_ratio=True), Target(1, of_ratio=True)


def a_store(pending: int, policies: Manifest) -> ManagerStore:
    """A tree in which so many wait, and show why."""
    store = ManagerStore()
    store.flavors.put(an_object("ResourceFlavor", "default", {}))
    cluster = an_object("WorkerCluster", "east", {"accepted": True, "capacity": "Unlimited"})
    store.clusters.put(cluster | {"status": {"conditions": [{"type": "Connected", "status": "True"}]}})
    for queue in range(QUEUES):
        quota = {"name": "cpu", "nominalQuota": str(CORES)}
        groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}]
        spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups} | policies
        store.cluster_queues.put(an_object("ClusterQueue", f"queue-{queue}", spec))
        store.local_queues.put(an_object("LocalQueue", f"queue-{queue}", {"clusterQueue": f"queue-{queue}"}, "team"))
    pattern = next(iter(workloads(0)))
    for number in range(CORES * QUEUES - FREE):
        store.workloads.put(running(pattern, number))
    for number in range(pending):
        cores, priority = SIZES[number // QUEUES % len(SIZES)]
        store.workloads.put(waiting(pattern, number, cores=cores, priority=priority))
    for decision in catalog.cycle(store, trees=[COHORT], preemption_cycles_since=SINCE, now=NOW):
        show(store, decision)
    return store


def named(pattern: Manifest, name: str, queue: int, spec: Manifest, number: int) -> Manifest:
    created = f"2026-01-01T{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    uid = {"uid": f"Workload-{name}", "name": name, "creationTimestamp": created}
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}]
    labels = {kueue.JOB_UID_LABEL: f"uid-{name}"}
    metadata = pattern["metadata"] | uid | {"labels": labels, "ownerReferences": owner}
    return pattern | {"metadata": metadata, "spec": pattern["spec"] | {"queueName": f"queue-{queue}"} | spec}


def waiting(pattern: Manifest, number: int, *, cores: int, priority: int) -> Manifest:
    pods = pattern["spec"]["podSets"][0] | {"count": cores}
    return named(pattern, f"wait-{number}", number % QUEUES, {"priority": priority, "podSets": [pods]}, number)


def running(pattern: Manifest, number: int) -> Manifest:
    workload = named(pattern, f"run-{number}", number % QUEUES, {"priority": 1000}, number)
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
    admission = {"clusterQueue": f"queue-{number % QUEUES}", "podSetAssignments": [assignment]}
    return workload | {"status": {"admission": admission, "clusterName": "east", "conditions": []}}


def grown(store: ManagerStore, number: int) -> Manifest:
    """The slice by which a running job grows by one pod."""
    old = store.workloads.get("team", f"run-{number}")
    assert old is not None
    metadata = old["metadata"] | {"name": f"next-{number}", "uid": f"Workload-next-{number}"}
    metadata["annotations"] = metadata["annotations"] | {kueue.REPLACEMENT_FOR_ANNOTATION: f"team/run-{number}"}
    pods = old["spec"]["podSets"][0] | {"count": 2}
    return old | {"metadata": metadata, "spec": old["spec"] | {"podSets": [pods]}, "status": {}}


def workload_of(store: ManagerStore, key: SliceKey) -> Manifest:
    namespace, _, name = key.partition("/")
    found = store.workloads.get(namespace, name)
    assert found is not None
    return found


def show(store: ManagerStore, decision: Decision) -> None:
    """Have a slice show that it waits, as after the write of that."""
    if isinstance(decision, Wait):
        workload = workload_of(store, decision.key)
        conditions = with_findings(workload, admission_writes.waiting_finding(decision), now=NOW)
        written(store, workload, {"status": {"conditions": conditions}})


def written(store: ManagerStore, workload: Manifest, body: Any) -> None:
    """Put an object as it is after a merge patch."""
    patched = merge_patch(workload, body)
    version = str(int(workload["metadata"]["resourceVersion"]) + 1)
    store.workloads.put(patched | {"metadata": patched["metadata"] | {"resourceVersion": version}})


def carry_out(store: ManagerStore, decided: Sequence[Decision]) -> None:
    """Decide the writes of decisions, and take them over."""
    for decision in decided:
        workload = workload_of(store, decision.key)
        version = workload["metadata"]["resourceVersion"]
        for command in catalog.apply_decision(store, decision=decision, version=version, in_turn=True, now=NOW):
            if isinstance(command, Patch):
                written(store, workload, command.body)


def timed(function: Callable[[], _Result]) -> tuple[float, _Result]:
    """The processor time of a call, and what it returns."""
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def resize(store: ManagerStore, number: int) -> tuple[dict[str, float], int]:
    """The seconds of each step of one resize, and how many decisions it has."""
    gc.collect()
    slice, since = grown(store, number), Since(preemption_cycles=SINCE, now=NOW)
    taken_in, _ = timed(lambda: store.workloads.put(slice))
    snapshot_s, snapshot = timed(lambda: snapshot_of(store, [COHORT], since, in_lines=True))
    cycle_s, _ = timed(lambda: cycle(snapshot))
    decision_s, decided = timed(lambda: catalog.cycle(store, trees=[COHORT], preemption_cycles_since=SINCE, now=NOW))
    writes_s, _ = timed(lambda: carry_out(store, decided))
    return dict(zip(STEPS, (taken_in, snapshot_s, cycle_s, decision_s, writes_s), strict=True)), len(decided)


def resizes(sizes: Sequence[int], policies: Manifest, how: str) -> list[Figure]:
    """The best of some resizes, by how many wait."""
    steps: dict[int, dict[str, float]] = {}
    decisions: dict[int, int] = {}
    for pending in sizes:
        store = a_store(pending, policies)
        rounds = [resize(store, number) for number in range(FREE)]
        steps[pending] = {step: min(took[step] for took, _ in rounds) for step in STEPS}
        decisions[pending] = max(count for _, count in rounds[1:])
    fewest, found = min(sizes), list[Figure]()
    for pending in sizes:
        for step in STEPS:
            name, beside = f"{step} of a resize{how}, {pending:,} pending", f"with {fewest:,}"
            value, target = 1e3 * steps[pending][step], MOST_GROWTH if pending == max(sizes) else None
            found.append(
                Figure.of(name, value, "ms", beside=beside, beside_value=1e3 * steps[fewest][step], target=target)
            )
        name, count = f"decisions of a resize{how}, {pending:,} pending", decisions[pending]
        target = AS_MANY if pending == max(sizes) else None
        found.append(
            Figure.of(
                name, count, "decisions", beside=f"with {fewest:,}", beside_value=decisions[fewest], target=target
            )
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pending", type=int, nargs="+", default=[500, 5_000, 50_000])
    figures.add_argument(parser)
    given = parser.parse_args()
    found = resizes(given.pending, {}, "")
    found += resizes(given.pending, {"preemption": PREEMPTION}, " with preemption")
    return figures.report(found, json=given.json)


if __name__ == "__main__":
    sys.exit(main())
