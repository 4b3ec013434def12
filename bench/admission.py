"""What an admission cycle costs, and how much memory the manager's caches take.

The load has the shape of Kueue's scheduler benchmark (v0.19.2, test/performance/scheduler): queues of ten cohorts with
a nominal quota of 20 cores and a borrowing limit of 100, and in each queue 35 workloads of 1 core, 11 of 5 and 4 of 20.
Targets: a decision over 50,000 pending workloads costs at most 1.3 times what it costs over 5,000; at least 1,000
decisions a second of one core; a change of one quota looks at its cohort only; a resize among 50,000 workloads that
have quota costs at most 1.3 times what it costs among 500; 100,000 workloads in under 1 GB.
"""

import argparse
import gc
import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import figures
import orjson
from figures import Figure, Target

from slicebus.manager.decide import catalog
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.cycle import Wait
from slicebus.slices.api import kueue

Manifest = dict[str, Any]
COHORTS = 10
A_QUEUE = ((35, 1, 50), (11, 5, 100), (4, 20, 200))
"""How many workloads, of how many cores, with what priority."""
CORES = 20
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
COHORT = "cohort/cohort-3"
MOST_GROWTH, LEAST_RATE = Target(1.3, of_ratio=True), Target(1_000, is_least=True)
MOST_MB, ONLY_ITS_COHORT = Target(1_000), Target(1, of_ratio=True)


def an_object(kind: str, name: str, spec: Manifest, namespace: str = "") -> Manifest:
    metadata = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "1", "generation": 1}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        "spec": spec,
    }


def a_queue(number: int, policies: Manifest, *, cores: int = CORES) -> Manifest:
    quota = {"name": "cpu", "nominalQuota": str(cores), "borrowingLimit": "100"}
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}]
    spec = {"cohortName": f"cohort-{number % COHORTS}", "namespaceSelector": {}, "resourceGroups": groups}
    spec |= policies
    return an_object("ClusterQueue", f"queue-{number}", spec)


def workloads(queue: int) -> Iterator[Manifest]:
    """What waits in a queue, each as it comes from an API server: no part is shared."""
    for count, cores, priority in A_QUEUE:
        for number in range(count):
            name = f"job-{queue}-{cores}-{number}"
            container = {"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": str(cores)}}}
            template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
            spec = {
                "active": True,
                "queueName": f"queue-{queue}",
                "priority": priority,
                "podSets": [{"name": "main", "count": 1, "template": template}],
            }
            found = an_object("Workload", name, spec, namespace="team")
            found["metadata"] |= {
                "creationTimestamp": f"2026-01-01T00:{number:02}:00Z",
                "labels": {"kueue.x-k8s.io/job-uid": f"uid-{name}"},
                "annotations": {"kueue.x-k8s.io/elastic-job": "true"},
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{name}", "controller": True}
                ],
            }
            yield orjson.loads(orjson.dumps(found))


def holders(queue: int) -> Iterator[Manifest]:
    """What has all of a queue's quota, at a lower priority than whatever waits."""
    for number, workload in enumerate(workloads(queue)):
        if number == CORES:
            return
        workload["metadata"] |= {"name": f"low-{queue}-{number}", "uid": f"Workload-low-{queue}-{number}"}
        workload["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": f"uid-low-{queue}-{number}"}
        workload["spec"]["priority"] = 0
        assignment = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
        admission = {"clusterQueue": f"queue-{queue}", "podSetAssignments": [assignment]}
        workload["status"] = {"admission": admission, "clusterName": "east", "conditions": []}
        yield workload


def a_store(pending: int, *, preempting: bool = False) -> ManagerStore:
    store = ManagerStore()
    policies = {"preemption": PREEMPTION} if preempting else {}
    store.flavors.put(an_object("ResourceFlavor", "default", {}))
    cluster = an_object("WorkerCluster", "east", {"accepted": True, "capacity": "Unlimited"})
    store.clusters.put(cluster | {"status": {"conditions": [{"type": "Connected", "status": "True"}]}})
    for queue in range(pending // sum(count for count, _, _ in A_QUEUE)):
        store.cluster_queues.put(a_queue(queue, policies))
        store.local_queues.put(an_object("LocalQueue", f"queue-{queue}", {"clusterQueue": f"queue-{queue}"}, "team"))
        for workload in (*workloads(queue), *(holders(queue) if preempting else ())):
            store.workloads.put(workload)
    return store


def timed(store: ManagerStore, trees: list[str] | None) -> tuple[float, int, int]:
    """Seconds of CPU of one cycle, its decisions, and how many of them admit or evict."""
    gc.collect()
    began = time.process_time()
    decided = catalog.cycle(store, trees=trees, preemption_cycles_since="2026-01-01T00:00:00Z")
    took = time.process_time() - began
    return took, len(decided), sum(not isinstance(decision, Wait) for decision in decided)


def cycles(sizes: Sequence[int]) -> list[Figure]:
    """Cycles over so many pending workloads each, by the processor time of the best of three."""
    found, costs = [], {}
    for pending in sizes:
        store = a_store(pending)
        took, count, admitted = min(timed(store, None) for _ in range(3))
        of_part_s, of_part, _ = min(timed(store, [COHORT]) for _ in range(3))
        costs[pending] = took / count
        found += [
            Figure.of(f"decisions over {pending:,} pending", count / took, "/s", target=LEAST_RATE),
            Figure.of(f"admitted of {pending:,} pending", admitted, "workloads"),
            Figure.of(
                f"cycle over one cohort of {pending:,} pending", of_part_s, "s", beside="over all", beside_value=took
            ),
            Figure.of(
                f"decisions of that cycle, of {pending:,} pending",
                of_part,
                "decisions",
                beside="in one cohort",
                beside_value=count / COHORTS,
                target=ONLY_ITS_COHORT,
            ),
        ]
    return [*found, growth("a decision", costs)]


def preempting(sizes: Sequence[int]) -> list[Figure]:
    """Cycles that evict, by the processor time of the better of two."""
    found, costs = [], {}
    for pending in sizes:
        took, count, evicted = min(timed(a_store(pending, preempting=True), None) for _ in range(2))
        costs[pending] = took / count
        found += [
            Figure.of(f"decisions with preemption over {pending:,} pending", count / took, "/s", target=LEAST_RATE),
            Figure.of(f"evicted for {pending:,} pending", evicted, "workloads"),
        ]
    return [*found, growth("a decision with preemption", costs)]


def one_resize(sizes: Sequence[int]) -> list[Figure]:
    """What follows from one resize among so many workloads that have all of one cohort's quota, and from its cycle."""
    cycle_s, report_s = {}, {}
    for running in sizes:
        store = a_store_of_running(running)
        cycle_s[running] = min(timed(store, [COHORT])[0] for _ in range(50))
        report_s[running] = min(timed_report(store) for _ in range(50))
    return [growth("a resize", cycle_s, "running"), growth("the statuses of the queues", report_s, "running")]


def a_store_of_running(count: int) -> ManagerStore:
    """So many workloads of one core with quota in one cohort of ten queues, and a slice that is to replace one."""
    store = a_store(0)
    for queue in range(3, 10 * COHORTS, COHORTS):
        store.cluster_queues.put(a_queue(queue, {}, cores=1 + count // 10))
        store.local_queues.put(an_object("LocalQueue", f"queue-{queue}", {"clusterQueue": f"queue-{queue}"}, "team"))
        [holder, *_] = holders(queue)
        for number in range(count // 10):
            metadata = holder["metadata"] | {"name": f"run-{queue}-{number}", "uid": f"Workload-run-{queue}-{number}"}
            metadata["labels"] = {"kueue.x-k8s.io/job-uid": f"uid-run-{queue}-{number}"}
            store.workloads.put(holder | {"metadata": metadata})
    old = store.workloads.get("team", "run-3-0")
    assert old is not None
    metadata = old["metadata"] | {"name": "next", "uid": "Workload-next"}
    metadata["annotations"] = metadata["annotations"] | {kueue.REPLACEMENT_FOR_ANNOTATION: "team/run-3-0"}
    pod_sets = [old["spec"]["podSets"][0] | {"count": 2}]
    store.workloads.put(old | {"metadata": metadata, "spec": old["spec"] | {"podSets": pod_sets}, "status": {}})
    return store


def timed_report(store: ManagerStore) -> float:
    """Seconds of CPU until the statuses of all queues are known."""
    began = time.process_time()
    catalog.report_queues(store, now="2026-01-01T00:00:00Z")
    return time.process_time() - began


def growth(what: str, costs: Mapping[int, float], state: str = "pending") -> Figure:
    """The processor time of something by how many workloads there are: with the most, beside that with the fewest."""
    most, fewest = max(costs), min(costs)
    name, beside = f"{what} over {most:,} {state}", f"over {fewest:,}"
    return Figure.of(name, 1e6 * costs[most], "us", beside=beside, beside_value=1e6 * costs[fewest], target=MOST_GROWTH)


def memory(workloads: int) -> Figure:
    """The most memory that this process has had, with a cache of so many."""
    store = a_store(workloads)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return Figure.of(f"memory with {len(store.workloads):,} workloads cached", peak_mb, "MB", target=MOST_MB)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pending", type=int, nargs="+", default=[5_000, 15_000, 50_000])
    parser.add_argument("--running", type=int, nargs="+", default=[500, 50_000])
    parser.add_argument("--cached", type=int, default=100_000)
    figures.add_argument(parser)
    given = parser.parse_args()
    ends = sorted({min(given.pending), max(given.pending)})
    found = [*one_resize(given.running), *cycles(given.pending), *preempting(ends), memory(given.cached)]
    return figures.report(found, json=given.json)


if __name__ == "__main__":
    sys.exit(main())
