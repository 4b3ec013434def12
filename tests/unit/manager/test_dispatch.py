"""The outbox: an order has a version before it is published, and is published until it is applied."""

from typing import Any

import pytest

from slicebus.decisions.commands import Patch, Publish
from slicebus.manager.decide.order import dispatch, record_copies
from slicebus.manager.state.outbox import Dispatch, applied_version
from slicebus.proto.messages import ClusterName, PodSetFlavor, WorkloadSpec
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import spec_hash
from unit.manager.objects import NOW, WEST, a_job, a_view, a_workload, shorts, withdrawn

Manifest = dict[str, Any]


def held(view: Any) -> list[tuple[Any, ...]]:
    return shorts(dispatch.hold(view, view.holder))


def hash_of(name: str = "w1", granted: int = 1, job: int = 1, cluster: str = "east") -> str:
    return spec_hash(ClusterName(cluster), name, {"main": granted}, {"main": job})


WRITE_AND_PUBLISH = [("w1", "version 4 is held"), ("workload-spec to east", 4)]
PUBLISH = [("workload-spec to east", 3)]
OUTBOX: dict[str, tuple[dict[str, Any], int, list[tuple[Any, ...]]]] = {
    "never dispatched": ({}, 0, [("w1", "version 1 is held"), ("workload-spec to east", 1)]),
    "dispatched, not published since the start": ({"dispatched": 3}, 0, PUBLISH),
    "an older version was published": ({"dispatched": 3}, 2, PUBLISH),
    "published, no answer yet": ({"dispatched": 3}, 3, []),
    "an older version is applied": ({"dispatched": 3, "applied": 2}, 2, PUBLISH),
    "applied": ({"dispatched": 3, "applied": 3}, 0, []),
    "another content was dispatched": ({"dispatched": 3, "applied": 3, "hash": "other"}, 3, WRITE_AND_PUBLISH),
    "it was withdrawn": ({"dispatched": 3, "applied": 3, "hash": api_names.ABSENT}, 3, WRITE_AND_PUBLISH),
}


@pytest.mark.parametrize(("state", "published", "expected"), OUTBOX.values(), ids=OUTBOX.keys())
def test_hold(state: dict[str, Any], published: int, expected: list[tuple[Any, ...]]) -> None:
    workload = a_workload(admitted=1, **({"hash": hash_of()} | state))
    assert held(a_view(a_job(), workload, published=published)) == expected


CHANGES: dict[str, tuple[Manifest, Manifest]] = {
    "the granted counts": (a_job(), a_workload(count=1, admitted=2)),
    "the cluster": (a_job(), a_workload(admitted=1, cluster="west")),
    "the counts of the manager's spec": (a_job(4), a_workload(admitted=1)),
}


@pytest.mark.parametrize(("job", "workload"), CHANGES.values(), ids=CHANGES.keys())
def test_what_makes_a_new_version(job: Manifest, workload: Manifest) -> None:
    record = Dispatch(3, hash_of(granted=2 if job["spec"]["parallelism"] == 1 else 1))
    workload["metadata"]["annotations"] |= {
        api_names.DISPATCHED_ANNOTATION: record.to_annotation(),
        api_names.APPLIED_ANNOTATION: "3",
    }
    assert held(a_view(job, workload))[0] == ("w1", "version 4 is held")


def test_versions_grow_over_all_slices_of_a_job() -> None:
    old = a_workload(admitted=1, dispatched=7, applied=7)
    new = a_workload("w2", 5, admitted=5, replaces="w1")
    assert held(a_view(a_job(), old, new)) == [
        ("w2", "version 8 is held"),
        ("workload-spec to east", 8),
        ("relabel to east", 8),
    ]


def test_versions_grow_over_what_the_job_remembers() -> None:
    remembered = {
        api_names.DISPATCHED_ANNOTATION: Dispatch(9, api_names.ABSENT).to_annotation(),
        api_names.APPLIED_ANNOTATION: "9",
    }
    assert held(a_view(a_job(annotations=remembered), a_workload(admitted=1)))[0] == ("w1", "version 10 is held")


@pytest.mark.parametrize("job", [None], ids=["the job is gone"])
def test_nothing_is_held_for(job: None) -> None:
    assert held(a_view(job, a_workload(admitted=1))) == []


WITHDRAW: dict[str, tuple[list[Manifest], int, list[tuple[Any, ...]], bool]] = {
    "no slice": ([], 0, [], True),
    "never dispatched": ([a_workload(admitted=1)], 0, [], True),
    "dispatched": (
        [a_workload(admitted=1, dispatched=1)],
        1,
        [("w1", "version 2 is absent"), ("delete to east", 2)],
        False,
    ),
    "dispatched and applied": (
        [a_workload(admitted=1, dispatched=1, applied=1)],
        1,
        [("w1", "version 2 is absent"), ("delete to east", 2)],
        False,
    ),
    "the delete is written, not published": ([withdrawn(applied=1)], 1, [("delete to east", 2)], False),
    "the delete is published": ([withdrawn(applied=1)], 2, [], False),
    "the delete is reported": ([withdrawn()], 2, [], True),
    "the newest of two was dispatched": (
        [a_workload(admitted=1, dispatched=1, applied=1), a_workload("w2", admitted=1, dispatched=2, replaces="w1")],
        2,
        [("w2", "version 3 is absent"), ("delete to east", 3)],
        False,
    ),
}


@pytest.mark.parametrize(("workloads", "published", "expected", "over"), WITHDRAW.values(), ids=WITHDRAW.keys())
def test_withdraw(workloads: list[Manifest], published: int, expected: list[tuple[Any, ...]], over: bool) -> None:
    view = a_view(None, *workloads, published=published)
    assert shorts(dispatch.withdraw(view, reason="JobDeleted")) == expected
    assert view.is_withdrawn is over


def test_a_cluster_that_has_left_the_fleet_is_not_waited_for() -> None:
    view = a_view(None, a_workload(admitted=1, dispatched=1, applied=1), in_fleet=False)
    assert view.is_withdrawn
    assert dispatch.withdraw(view, reason="JobDeleted") == []


def test_the_newest_dispatch_is_copied_to_the_job_once() -> None:
    job, workload = a_job(), withdrawn()
    [patch] = record_copies.copies(a_view(job, workload))
    assert isinstance(patch, Patch)
    written = patch.body["metadata"]["annotations"]
    job["metadata"]["annotations"] |= written
    assert Dispatch.from_manifest(job) == Dispatch(2, api_names.ABSENT)
    assert applied_version(job) == 2
    assert record_copies.copies(a_view(job, workload)) == []
    assert record_copies.copies(a_view(None, workload)) == []
    assert record_copies.copies(a_view(a_job())) == []


def test_the_newest_dispatch_is_copied_to_replaced_workloads_that_stay() -> None:
    former, deleted = a_workload("a", admitted=1, dispatched=1, applied=1), withdrawn()
    deleted["metadata"] |= {"name": "b", "deletionTimestamp": NOW}
    patch, _ = record_copies.copies(a_view(a_job(), former, deleted))
    assert isinstance(patch, Patch)
    former["metadata"]["annotations"] |= patch.body["metadata"]["annotations"]
    after = a_view(a_job(), former)
    assert after.outbox is not None
    assert (after.outbox.record, after.is_withdrawn) == (Dispatch(2, api_names.ABSENT), True)


FLAVOR: Manifest = {
    "metadata": {"name": "spot"},
    "spec": {
        "nodeLabels": {"pool": "spot"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
    },
}


def test_a_spec_says_where_the_pods_may_run_and_what_they_may_use() -> None:
    workload = a_workload(count=3, admitted=5)
    view = a_view(a_job(3), workload, flavors={"spot": FLAVOR})
    [_, _, publish] = dispatch.hold(view, view.slices[0])
    assert isinstance(publish, Publish)
    spec = publish.message
    assert isinstance(spec, WorkloadSpec)
    assert spec.granted == {"main": 3}
    assert spec.flavors == {"main": PodSetFlavor({"pool": "spot"}, [{"key": "spot", "operator": "Exists"}])}
    assert "resourceVersion" not in spec.workload["metadata"]
    assert "status" in spec.workload
    assert "status" not in spec.manifest


def test_a_spec_does_not_say_where_no_pods_run() -> None:
    workload = a_workload(count=0, admitted=0)
    workload["status"]["admission"]["podSetAssignments"][0] |= {"flavors": {}, "resourceUsage": {}}
    view = a_view(a_job(0), workload, flavors={"spot": FLAVOR})
    [_, _, publish] = dispatch.hold(view, view.slices[0])
    assert isinstance(publish, Publish)
    assert publish.message.flavors == {}


def test_a_flavor_that_is_gone_places_nothing() -> None:
    view = a_view(a_job(), a_workload(admitted=1), flavors={})
    [_, _, publish] = dispatch.hold(view, view.slices[0])
    assert publish.message.flavors == {}, "pods of a copy that is made of it all the same stay gated"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version":"x"}', "null", '{"hash":"x"}'])
def test_a_dispatch_that_cannot_be_read_is_none(text: str) -> None:
    assert Dispatch.from_manifest({"metadata": {"annotations": {api_names.DISPATCHED_ANNOTATION: text}}}) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, 0), ("", 0), ("3", 3), ("-3", 0), ("x", 0), ("\u00b2", 0)],
    ids=["none", "empty", "3", "-3", "x", "superscript"],
)
def test_an_applied_version_that_cannot_be_read_is_0(text: str | None, expected: int) -> None:
    annotations = {} if text is None else {api_names.APPLIED_ANNOTATION: text}
    assert applied_version({"metadata": {"annotations": annotations}}) == expected


class TestLeaving:
    """A cluster that was given up, and the copy that it may still have."""

    @staticmethod
    def view(left_copies: dict[str, int] | None = None, **changes: Any) -> Any:
        record = Dispatch(3, "other", cluster="east", left_copies=left_copies or {})
        workload = a_workload(admitted=1)
        workload["metadata"]["annotations"] |= {api_names.DISPATCHED_ANNOTATION: record.to_annotation()}
        return a_view(a_job(), workload, left_copies=left_copies or {}, **changes)

    def test_it_counts_as_holding_nothing_and_its_copy_is_recorded(self) -> None:
        [patch] = dispatch.abandon(self.view(given_up=True))
        assert isinstance(patch, Patch)
        after = merge_patch(patch.target, patch.body)
        record = Dispatch.from_manifest(after)
        assert record is not None
        assert (record.version, record.hash, record.left_copies) == (4, api_names.ABSENT, {"east": 4})
        assert applied_version(after) == 4
        view = a_view(a_job(), after, given_up=True)
        assert view.is_withdrawn
        assert dispatch.abandon(view) == []

    def test_a_copy_that_is_newer_than_the_manager_is_recalled_above_its_version(self) -> None:
        [patch] = dispatch.abandon(self.view(given_up=True))
        assert isinstance(patch, Patch)
        left = a_view(a_job(), merge_patch(patch.target, patch.body), left_copies={"east": 4}, given_up=True)
        [patch] = dispatch.renew(left, above=9, has_copy=True)
        assert isinstance(patch, Patch)
        after = merge_patch(patch.target, patch.body)
        assert a_view(a_job(), after).is_withdrawn
        record = Dispatch.from_manifest(after)
        assert record is not None
        assert record.left_copies == {"east": 10}

    @pytest.mark.parametrize(
        ("recalled", "expected"), [({}, [("delete to west", 2)]), ({WEST: 1}, [("delete to west", 2)]), ({WEST: 2}, [])]
    )
    def test_its_copy_is_recalled_once(self, recalled: dict[ClusterName, int], expected: list[Any]) -> None:
        assert shorts(dispatch.recall(self.view(left_copies={WEST: 2}, recalled=recalled))) == expected

    def test_the_next_dispatch_still_knows_it(self) -> None:
        view = self.view(left_copies={"west": 2})
        [write, *_] = dispatch.hold(view, view.holder)
        assert isinstance(write, Patch)
        record = Dispatch.from_manifest(merge_patch(write.target, write.body))
        assert record is not None
        assert record.left_copies == {"west": 2}
