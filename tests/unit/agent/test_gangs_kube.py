"""Gangs of Kubernetes' own scheduler, whose objects cannot be changed while pods use them: what is made, replaced and
told. Pure: a store in which the test puts what an API server would have."""

import re
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from slicebus.agent.decide.job import gangs
from slicebus.agent.decide.order import orders
from slicebus.agent.state import annotations
from slicebus.agent.state.schedulers import name_of
from slicebus.agent.state.settings import AgentDecisionSettings
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, WorkerJobReading, WorkerView
from slicebus.decisions.commands import Command, Create, Patch, Remove
from slicebus.proto.errors import ConflictError
from slicebus.proto.messages import JobRef, Relabel
from slicebus.slices.api import api_names
from slicebus.slices.api.resource import Resource
from slicebus.slices.schedulers import Profile
from slicebus.slices.schedulers.kube import VERSIONS, pod_groups, workloads
from slicebus.slices.workload.ungate import Pod, pod_set_of
from unit.agent.objects import EAST, NOW, a_copy, a_pod, short, shorts
from unit.slices.jobs.manifests import a_cluster, a_group

Manifest = dict[str, Any]
NEWEST, OLDEST = VERSIONS
KEY = JobKey("RayCluster", "team", "demo")
REF = JobRef("ray.io/v1", "RayCluster", "team", "demo", "manager-uid")


class Worker:
    """What an agent has in its caches: a RayCluster with a head and one group, and the objects of its gangs."""

    def __init__(self, *served: str, granted: int) -> None:
        self.store = AgentStore()
        self.store.configure(AgentDecisionSettings(profiles=(Profile("default"), Profile("kube"))))
        for version in set(VERSIONS) - set(served):
            for resource in (workloads(version), pod_groups(version)):
                self.store.unserved_objects[name_of(resource)] = "it is not served"
        self._served = served
        self._versions = count(100)
        self.job = a_cluster(a_group())
        self.job["spec"]["suspend"] = False
        self.job["metadata"] |= annotations.job_metadata(REF, workload="w1", version=1, grant={})
        self.pods: list[Manifest] = []
        self.copy = a_copy(of=REF, pod_sets=("head", "small"))
        self._note(api_names.SCHEDULER_ANNOTATION, "kube")
        self.grant(granted)

    def _note(self, name: str, value: str | None) -> None:
        metadata = self.job["metadata"]
        self.job |= {"metadata": metadata | {"annotations": metadata["annotations"] | {name: value}}}

    def grant(self, workers: int) -> None:
        """So many workers, beside the head."""
        self._note(api_names.GRANTED_ANNOTATION, annotations.encode_counts({"head": 1, "small": workers}))

    def suspend(self) -> None:
        self.job |= {"spec": self.job["spec"] | {"suspend": True}}
        self._note(api_names.GRANTED_ANNOTATION, "{}")

    def runs(self, workers: int, *, gated: int = 0) -> None:
        """The head, and so many workers: running on nodes, and behind their gates."""
        running = [a_pod("head", pod_set="head"), *(a_pod(f"w{number}", pod_set="small") for number in range(workers))]
        for pod in running:
            pod["spec"] = pod["spec"] | {"nodeName": "n"}
        waiting = [self.gated_pod(f"g{number}") for number in range(gated)]
        self.pods = [*map(self._prepared, running), *waiting]

    def gated_pod(self, name: str) -> Manifest:
        """A worker that was made by the template, and waits."""
        return self._prepared(a_pod(name, pod_set="small", gated=True, phase="Pending"))

    def _prepared(self, pod: Manifest) -> Manifest:
        backend = self.store.schedulers.backend("kube")
        assert backend is not None
        return backend.prepare(self.job, pod_set_of(pod)).applied_to(pod)

    def view(self) -> WorkerView:
        return WorkerView(
            key=KEY,
            job=self.job,
            reading=WorkerJobReading.from_manifest(self.job),
            scale_target=self.job,
            copies=(self.copy,),
            pods=tuple(map(Pod.from_manifest, self.pods)),
            schedulers=self.store.schedulers,
        )

    def order(self, workers: int) -> list[Command]:
        """What the agent does first with the order to run with so many."""
        job, version = WorkerJobReading.from_manifest(self.job), 2
        assert job is not None
        granted = {"head": 1, "small": workers}
        order = Relabel(job=REF, to_workload="w2", from_workload="w1", spec_version=version, granted=granted)
        return list(orders.next_step(orders.relabel(order, EAST), 0, self.view()).commands)

    def follow(self) -> list[Command]:
        """What the agent does until it has nothing to do, as the API server does it: without finalizers."""
        done = list[Command]()
        while commands := self._next():
            for command in commands:
                self._do(command)
            done += commands
            assert len(done) < 30, shorts(done)
        return done

    def _next(self) -> Sequence[Command]:
        return gangs.reconcile(self.view(), now=NOW, now_s=0.0) or gangs.removes(self.view())

    def _do(self, command: Command) -> None:
        version = str(next(self._versions))
        match command:
            case Create(resource=resource, manifest=manifest):
                self.put(resource, manifest | {"metadata": manifest["metadata"] | {"uid": version}})
            case Remove(resource=resource, target=target):
                for each in self._in_every_version(resource):
                    self._cache(each).remove(target)
            case Patch(target=target, body={"metadata": {"annotations": {api_names.GANG_ANNOTATION: gang}}}):
                assert target is self.job
                self._note(api_names.GANG_ANNOTATION, gang)
            case Patch(resource=resource, target=target, body=dict(body)):
                self.put(resource, target | {"spec": body["spec"], "metadata": target["metadata"] | body["metadata"]})

    def put(self, resource: Resource, manifest: Manifest) -> None:
        """As the watches bring it, in every version that is served."""
        metadata = manifest["metadata"] | {"resourceVersion": str(next(self._versions))}
        for each in self._in_every_version(resource):
            self._cache(each).put(manifest | {"metadata": metadata})

    def mark_deleted(self, resource: Resource, name: str) -> None:
        """Somebody has deleted it, and a finalizer keeps it."""
        found = self._cache(resource).get("team", name)
        assert found is not None
        self.put(resource, found | {"metadata": found["metadata"] | {"deletionTimestamp": NOW}})

    def put_away(self, resource: Resource, name: str) -> None:
        """Its finalizer is off."""
        found = self._cache(resource).get("team", name)
        self._cache(resource).remove(found)

    def least(self, version: str) -> dict[str, int]:
        """The `minCount` of each PodGroup."""
        found = self._cache(pod_groups(version)).all()
        return {each["metadata"]["name"]: each["spec"]["schedulingPolicy"]["gang"]["minCount"] for each in found}

    def let_go(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in gangs.allowed(self.view())]

    def _in_every_version(self, resource: Resource) -> list[Resource]:
        make = workloads if resource.kind == "Workload" else pod_groups
        return [make(version) for version in self._served]

    def _cache(self, resource: Resource) -> Any:
        return self.store.cache_of(resource)


HEAD, SMALL = "raycluster-demo.head", "raycluster-demo.small"
PAIR = [("create Workload", SMALL), ("create PodGroup", SMALL)]


def made(commands: Sequence[Command]) -> list[tuple[Any, ...]]:
    """Without notes on the job."""
    return [each for each in shorts(commands) if each[0] != "demo"]


def test_what_is_served_in_two_versions_is_made_once_and_stays() -> None:
    worker = Worker(*VERSIONS, granted=2)
    assert made(worker.follow()) == [("create Workload", HEAD), ("create PodGroup", HEAD), *PAIR]
    assert worker.follow() == []


def test_the_newer_version_lowers_the_minimum_of_a_gang_that_runs() -> None:
    worker = Worker(NEWEST, granted=4)
    worker.follow()
    worker.runs(4)
    worker.grant(2)
    worker.follow()
    assert worker.least(NEWEST) == {HEAD: 1, SMALL: 2}
    assert worker.follow() == []


def test_a_gang_of_its_least_size_has_whole_replicas() -> None:
    worker = Worker(OLDEST, granted=8)
    worker.job["spec"]["workerGroupSpecs"][0]["numOfHosts"] = 2
    worker.copy["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = "small=3"
    worker.follow()
    assert worker.least(OLDEST) == {HEAD: 1, SMALL: 4}
    assert gangs.reported(worker.view()) == {"head": 1, "small": 4}


def test_a_group_that_had_no_pods_gets_a_gang_of_its_new_size() -> None:
    """The PodGroup of four would keep two pods waiting for ever. That of the head stays: its pod runs."""
    worker = Worker(OLDEST, granted=4)
    worker.follow()
    worker.runs(4)
    worker.grant(0)
    assert made(worker.follow()) == [], "its pods still use it"
    worker.runs(0)
    assert made(worker.follow()) == [("remove PodGroup", SMALL), ("remove Workload", SMALL)]
    worker.grant(2)
    assert made(worker.follow()) == PAIR
    assert worker.least(OLDEST) == {HEAD: 1, SMALL: 2}
    worker.runs(0, gated=2)
    assert worker.let_go() == ["g0", "g1"]


def test_a_gang_that_no_pod_uses_yet_is_replaced_where_it_starts_smaller() -> None:
    worker = Worker(OLDEST, granted=4)
    worker.follow()
    worker.grant(3)
    assert made(worker.follow()) == [("remove PodGroup", SMALL), ("remove Workload", SMALL), *PAIR]
    assert worker.least(OLDEST) == {HEAD: 1, SMALL: 3}


def test_what_somebody_has_deleted_is_used_as_long_as_it_stays() -> None:
    """The finalizer keeps it for the pods that run, and for those that come."""
    worker = Worker(OLDEST, granted=2)
    worker.follow()
    worker.runs(2, gated=1)
    worker.grant(3)
    worker.mark_deleted(pod_groups(OLDEST), SMALL)
    assert made(worker.follow()) == []
    assert worker.let_go() == ["g0"]
    worker.pods = worker.pods[:1]
    assert worker.let_go() == []
    assert made(worker.follow()) == []


def test_a_suspended_job_comes_back_when_its_gang_has_gone() -> None:
    worker = Worker(OLDEST, granted=4)
    worker.follow()
    worker.runs(4)
    worker.suspend()
    assert made(worker.follow()) == [], "its pods are there"
    worker.pods = []
    worker.mark_deleted(pod_groups(OLDEST), SMALL)
    worker.follow()
    with pytest.raises(ConflictError, match=f"PodGroup {re.escape(SMALL)} of the gang before is still there"):
        worker.order(2)
    worker.put_away(pod_groups(OLDEST), SMALL)
    [resumed] = worker.order(2)
    assert short(resumed)[-1] == "resumed"


@pytest.mark.parametrize(
    ("version", "granted", "is_lost", "expected"),
    [
        (OLDEST, 3, True, "GangTooLarge"),
        (OLDEST, 3, False, None),
        (OLDEST, 4, True, None),
        (NEWEST, 3, True, None),
    ],
    ids=[
        "a shrunk gang has lost a pod",
        "it has lost none",
        "it has its first size again",
        "its minimum has shrunk too",
    ],
)
def test_a_gang_that_has_shrunk_tells_that_its_pod_group_has_not(
    version: str, granted: int, is_lost: bool, expected: str | None
) -> None:
    worker = Worker(version, granted=4)
    worker.follow()
    worker.runs(4)
    worker.grant(granted)
    worker.follow()
    worker.runs(granted)
    if is_lost:
        # It was made anew and let go, and is on no node.
        worker.pods[-1] |= {"spec": worker.pods[-1]["spec"] | {"nodeName": None}}
    problem = gangs.problem(worker.view())
    assert (problem.reason if problem is not None else None) == expected
    if problem is not None:
        assert "was made for 4 pods and cannot be changed, 3 are granted" in problem.message


def test_a_gang_that_is_too_large_holds_up_no_growth() -> None:
    worker = Worker(OLDEST, granted=4)
    worker.follow()
    worker.runs(2, gated=1)
    worker.pods[2] |= {"spec": worker.pods[2]["spec"] | {"nodeName": None}}
    worker.grant(3)
    worker.follow()
    problem = gangs.problem(worker.view())
    assert problem is not None
    assert problem.reason == "GangTooLarge"
    assert worker.let_go() == ["g0"]
