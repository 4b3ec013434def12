"""A worker's request is written with the slice that waits for its size, where nothing else is to be written."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from slicebus.decisions.commands import Command, Create, Emit, Patch
from slicebus.decisions.decider import Incoming
from slicebus.manager.decide import catalog
from slicebus.manager.decide.messages import message_router
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.codec import Decoded
from slicebus.proto.messages import Report, ScaleRequest, Waits
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import NOW, REF, SPOT, a_job, a_workload, an_envelope, condition

Manifest = dict[str, Any]
CLUSTER = {
    "apiVersion": "slicebus.dev/v1alpha1",
    "kind": "WorkerCluster",
    "metadata": {"name": "east", "uid": "uid-east", "resourceVersion": "1"},
    "spec": {"accepted": True},
    "status": {"conditions": [condition("Connected")]},
}


class Fleet:
    """A manager's decisions about one job, and the objects that they write, without servers."""

    def __init__(self, *, size: int = 1) -> None:
        self.versions = itertools.count(100)
        self.store = ManagerStore()
        self.store.clusters.put(CLUSTER)
        self.store.flavors.put(SPOT)
        self._put(a_job(size))
        self._put(a_workload("w1", size, admitted=size))
        self.settle()

    @property
    def view(self) -> JobView:
        return self.store.view(REF)

    @property
    def requests(self) -> dict[str, tuple[int, int]]:
        """The size and the revision of the request on each Workload that has one, oldest first."""
        found = self.view.requests
        named = [slice.name for slice in self.view.slices]
        names = {name: f"w{number}" for number, name in enumerate(named, 1)}
        return {
            names[name]: (found[name].counts.get("main", 0), found[name].revision) for name in named if name in found
        }

    def ask(self, size: int, *, generation: int = 3, granted: int | None = None) -> list[str]:
        """Handle a worker's request; return what it writes."""
        commands = self.asked(size, generation=generation, granted=granted)
        self.write(commands)
        return writes(commands)

    def asked(self, size: int, *, generation: int = 3, granted: int | None = None) -> list[Command]:
        """The commands of a worker's request. `granted` is what its pods can use, by default all that is granted."""
        holder = self.view.holder
        assert holder is not None
        message = ScaleRequest(
            job=REF,
            workload="w1",
            worker_uid="w-1",
            worker_generation=generation,
            granted=holder.granted if granted is None else {"main": granted},
            wanted={"main": size},
        )
        decoded = Decoded[Report](an_envelope(type="scale-request", epoch=1, sequence=generation), message)
        incoming = Incoming[Report](1, decoded)
        return [*message_router.receive(self.store, incoming=incoming, now=NOW, passed_on=True)]

    def reconcile(self) -> list[str]:
        """Reconcile the job; return what is written."""
        commands = catalog.reconcile_job(self.store, job=REF, deletes_held=False, now=NOW)
        self.write(commands)
        return writes(commands)

    def settle(self) -> list[str]:
        """Reconcile until nothing is left, with a worker that applies each order."""
        all_written: list[str] = []
        for _ in range(20):
            if not (written := self.reconcile()):
                return all_written
            all_written += written
            outbox = self.view.outbox
            if outbox is not None and outbox.recorded_on is not None:
                body = {"metadata": {"annotations": {api_names.APPLIED_ANNOTATION: str(outbox.record.version)}}}
                self.change(outbox.recorded_on, body)
        raise AssertionError(f"the manager does not come to rest: {all_written}")

    def admit(self) -> None:
        """Give the newest slice its quota."""
        slice = self.view.slices[-1]
        admitted = a_workload(slice.name, admitted=slice.counts["main"])["status"]
        self.change(self.view.workload(slice), {"status": admitted})

    def delete(self, number: int) -> None:
        """A user deletes a Workload."""
        self.change(self.view.workload(self.view.slices[number - 1]), {"metadata": {"deletionTimestamp": NOW}})

    def write(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Create(manifest=manifest):
                    own = {"uid": f"uid-{next(self.versions)}", "creationTimestamp": NOW, "generation": 1}
                    self._put(manifest | {"metadata": manifest["metadata"] | own})
                case Patch(target=target, body=dict() as body):
                    self.change(target, body)

    def change(self, target: Manifest, body: Manifest) -> None:
        changed = merge_patch(target, body)
        if "deletionTimestamp" in changed["metadata"] and not changed["metadata"]["finalizers"]:
            self.store.workloads.remove(target)
        else:
            self._put(changed)

    def _put(self, manifest: Manifest) -> None:
        cache = self.store.workloads if manifest["kind"] == "Workload" else self.store.jobs["Job"]
        cache.put(manifest | {"metadata": manifest["metadata"] | {"resourceVersion": str(next(self.versions))}})


def writes(commands: Sequence[Command]) -> list[str]:
    """What commands write on the API server, in a few words."""
    found: list[str] = []
    for command in commands:
        match command:
            case Create(manifest=manifest):
                [pod_set] = manifest["spec"]["podSets"]
                found.append(f"create {pod_set['count']}")
            case Patch(target=target, body=dict() as body):
                parts = [
                    *body.get("spec", {}),
                    *body.get("status", {}),
                    *body.get("metadata", {}).get("annotations", {}),
                ]
                parts += ["finalizers"] * ("finalizers" in body.get("metadata", {}))
                found.append(f"patch {target['kind']}: {', '.join(sorted(parts))}")
    return found


ALONE = [f"patch Workload: {api_names.REQUESTED_ANNOTATION}"]


def test_a_larger_size_is_one_write() -> None:
    fleet = Fleet()
    assert fleet.ask(5) == ["create 5"]
    assert fleet.requests == {"w2": (5, 1)}
    assert fleet.view.desired.counts == {"main": 5}
    assert fleet.settle() == []


def test_its_event_follows_it() -> None:
    _, event, *_ = Fleet().asked(5)
    assert isinstance(event, Emit)
    assert event.reason == "CreatedWorkload"


def test_before_the_write_the_request_is_not_known_and_after_it_it_is_late() -> None:
    """The process dies on either side of it, and the message comes again."""
    fleet = Fleet()
    assert writes(fleet.asked(5)) == writes(fleet.asked(5)) == ["create 5"]
    fleet.ask(5)
    assert fleet.asked(5) == []


@pytest.mark.parametrize("wanted", [1, 2], ids=["as much", "less"])
def test_a_size_that_needs_no_slice_is_written_on_the_one_with_quota(wanted: int) -> None:
    fleet = Fleet(size=2)
    assert fleet.ask(wanted) == ALONE
    assert fleet.requests == {"w1": (wanted, 1)}


def test_a_newer_request_is_written_with_the_counts_of_the_slice_that_waits() -> None:
    fleet = Fleet()
    fleet.ask(5)
    assert fleet.ask(7, generation=4) == [f"patch Workload: podSets, {api_names.REQUESTED_ANNOTATION}"]
    assert fleet.requests == {"w2": (7, 2)}
    assert [slice.counts for slice in fleet.view.slices] == [{"main": 1}, {"main": 7}]
    assert fleet.asked(5) == fleet.asked(7, generation=4) == []
    assert fleet.settle() == []


def test_one_for_the_same_size_is_written_by_itself() -> None:
    fleet = Fleet()
    fleet.ask(5)
    assert fleet.ask(5, generation=4) == ALONE
    assert fleet.requests == {"w1": (5, 2), "w2": (5, 1)}


def test_one_that_needs_the_slice_no_more_ends_it_and_lasts() -> None:
    fleet = Fleet(size=2)
    fleet.ask(5)
    assert fleet.ask(1, generation=4) == ALONE
    fleet.settle()
    assert fleet.requests["w1"] == (1, 2)
    assert [slice.finished for slice in fleet.view.slices] == [False, True]
    assert fleet.view.slices[0].counts == {"main": 1}
    assert fleet.ask(6, generation=5) == ["create 6"]
    assert fleet.requests["w3"] == (6, 3)


def test_it_stays_with_the_slice_that_gets_the_quota() -> None:
    fleet = Fleet()
    fleet.ask(5)
    fleet.admit()
    fleet.settle()
    assert fleet.view.holder is not None
    assert fleet.view.holder.granted == {"main": 5}
    assert fleet.requests["w2"] == (5, 1)
    assert fleet.ask(8, generation=4) == ["create 8"]


def test_the_order_for_that_slice_answers_it() -> None:
    fleet = Fleet()
    fleet.ask(5)
    assert fleet.view.outbox is not None
    assert fleet.view.outbox.record.answers.worker_generation == 0
    fleet.admit()
    fleet.settle()
    assert fleet.view.outbox.record.answers.worker_generation == 3


@pytest.mark.parametrize("other", [(), ("example.com/keep",)], ids=["ours", "and one of somebody else"])
def test_when_a_user_deletes_that_slice_the_other_takes_the_request_over_before_it_goes(other: tuple[str, ...]) -> None:
    fleet = Fleet()
    fleet.ask(5)
    finalizers = [kueue.RESOURCE_IN_USE_FINALIZER, *other]
    fleet.change(fleet.view.workload(fleet.view.slices[1]), {"metadata": {"finalizers": finalizers}})
    fleet.delete(2)
    assert fleet.reconcile() == ALONE
    assert fleet.requests == {"w1": (5, 1), "w2": (5, 1)}
    fleet.settle()
    assert fleet.view.desired.counts == {"main": 5}
    assert fleet.requests["w1"] == (5, 1)
    assert [slice.counts for slice in fleet.view.slices if not (slice.finished or slice.deleting)] == [
        {"main": 1},
        {"main": 5},
    ]


def test_when_a_user_deletes_the_other_one_nothing_is_to_be_taken_over() -> None:
    fleet = Fleet()
    fleet.ask(5)
    fleet.delete(1)
    assert ALONE[0] not in fleet.settle()
    assert fleet.view.desired.counts == {"main": 5}


def test_what_only_a_deleted_slice_has_is_taken_over_by_one_that_waits() -> None:
    fleet = Fleet()
    fleet.ask(5)
    fleet.ask(5, generation=4)
    fleet.delete(1)
    assert fleet.reconcile() == ALONE
    assert fleet.requests == {"w1": (5, 2), "w2": (5, 2)}
    fleet.settle()
    assert fleet.view.requested is not None
    assert fleet.view.requested.worker_generation == 4


def test_an_eviction_ends_that_slice_and_the_evicted_one_takes_the_request_over() -> None:
    """The worker's report that no pod is left forgets it there."""
    fleet = Fleet()
    fleet.ask(5)
    [holder, _] = fleet.view.slices
    workload = fleet.view.workload(holder)
    conditions = [*workload["status"]["conditions"], condition("Evicted", reason="Preempted")]
    fleet.change(workload, {"status": {"conditions": conditions}})
    fleet.reconcile()
    assert [slice.finished for slice in fleet.view.slices] == [False, True]
    assert fleet.reconcile() == ALONE
    assert fleet.requests == {"w1": (5, 1), "w2": (5, 1)}


def test_an_edit_of_the_spec_ends_that_slice_and_the_other_takes_the_request_over() -> None:
    fleet = Fleet(size=2)
    fleet.ask(5)
    assert fleet.view.job is not None
    fleet.change(fleet.view.job, {"metadata": {"generation": 2}, "spec": {"parallelism": 1}})
    fleet.settle()
    assert fleet.requests == {"w1": (5, 1), "w2": (5, 1)}
    assert [slice.finished for slice in fleet.view.slices] == [False, True]
    assert fleet.view.desired.counts == {"main": 1}
    assert fleet.asked(5) == []


def test_a_request_waits_for_no_order_that_is_due() -> None:
    """The write of the order is on the slice with quota, and goes with its version."""
    fleet = Fleet(size=2)
    assert fleet.ask(3, granted=1) == ALONE
    assert fleet.view.desired.counts == {"main": 3}


def test_nor_for_edits_that_are_due() -> None:
    fleet = Fleet()
    assert fleet.view.job is not None
    fleet.change(fleet.view.job, {"metadata": {"annotations": {api_names.CLUSTER_SELECTOR_ANNOTATION: "zone=a"}}})
    assert fleet.ask(5) == ALONE


def test_what_a_job_shows_of_a_refused_request_is_taken_off_by_a_reconcile() -> None:
    """Nobody reconciles a job for the slice that this manager makes."""
    fleet = Fleet()
    refused = Waits(wanted={"main": 9}, reason="Refused", message="no", since=NOW)
    fleet.store.refused_requests[REF] = refused
    assert fleet.ask(5) == ALONE


def test_of_a_kind_that_is_not_served_nothing_is_made() -> None:
    fleet = Fleet()
    fleet.store.unserved["Job"] = "its definition is not there"
    assert fleet.ask(5) == ALONE


def test_a_refused_size_is_written_where_the_job_is_told_of_it() -> None:
    fleet = Fleet()
    request = ScaleRequest(
        job=REF, workload="w1", worker_uid="w-1", worker_generation=3, granted={"main": 1}, wanted={"other": 2}
    )
    incoming = Incoming[Report](1, Decoded[Report](an_envelope(type="scale-request"), request))
    commands = message_router.receive(fleet.store, incoming=incoming, now=NOW, passed_on=True)
    assert writes(commands) == ALONE


# --- a manager that stood still -------------------------------------------------------------------------------------


def test_a_slice_that_comes_late_with_an_older_request_changes_no_size() -> None:
    """Its manager had decided before the next one took the newer request in. The two requests have one revision."""
    fleet = Fleet()
    late = fleet.asked(3)
    fleet.ask(6, generation=4)
    fleet.write(late)
    assert fleet.requests == {"w2": (6, 1), "w3": (3, 1)} or fleet.requests == {"w2": (3, 1), "w3": (6, 1)}
    assert fleet.view.desired.counts == {"main": 6}
    fleet.settle()
    assert fleet.view.desired.counts == {"main": 6}
    assert [slice.counts for slice in fleet.view.slices if not slice.finished] == [{"main": 1}, {"main": 6}]


def test_so_does_one_that_comes_after_the_size_was_made_smaller() -> None:
    fleet = Fleet(size=2)
    late = fleet.asked(3)
    fleet.ask(1, generation=4)
    fleet.settle()
    fleet.write(late)
    fleet.settle()
    assert fleet.view.desired.counts == {"main": 1}
    assert [slice.counts for slice in fleet.view.slices if not slice.finished] == [{"main": 1}]


def test_the_same_request_that_is_carried_out_by_two_has_one_name() -> None:
    fleet = Fleet()
    [late, *_] = fleet.asked(5)
    fleet.ask(5)
    assert isinstance(late, Create)
    assert late.manifest["metadata"]["name"] == fleet.view.slices[1].name
