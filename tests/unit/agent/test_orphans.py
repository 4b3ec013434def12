"""Pods whose job somebody has deleted without them: they are told once, and not while the garbage collector deletes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from slicebus.agent.decide.job import orphans
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.decisions.commands import Publish
from slicebus.proto.messages import JobPhase, Status, Waits
from slicebus.slices.workload.ungate import Pod
from unit.agent.objects import EAST, NOW, REF, a_pod

Manifest = dict[str, Any]
GONE = Status(job=REF, workload="w1", spec_version=3, phase=JobPhase.GONE, seen=True)
LATER = "2026-01-31T12:30:00Z"


def told(
    *pods: Manifest, owners: Mapping[str, str] = MappingProxyType({}), last: Status | None = None, now: str = NOW
) -> Status | None:
    view = WorkerView(key=JobKey.of(REF), job=None, pods=tuple(map(Pod.from_manifest, pods)))
    known = (last, 0.0) if last is not None else None
    commands = orphans.report(view, GONE, EAST, owners=owners, last=known, now=now)
    published = [each for each in commands if isinstance(each, Publish)]
    assert len(published) <= 1
    message = published[0].message if published else None
    assert message is None or isinstance(message, Status)
    return message


def an_orphan(name: str, **more: Any) -> Manifest:
    return a_pod(name, of=REF, ready=True, **more)


def owned(pod: Manifest, *, kind: str = "Job", uid: str = "worker-uid") -> Manifest:
    owner = {"apiVersion": "batch/v1", "kind": kind, "name": "train", "uid": uid, "controller": True}
    return pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]}}


def test_they_are_told_once() -> None:
    first = told(an_orphan("a"), an_orphan("b"))
    assert first is not None
    assert (first.phase, first.spec_version, first.pods["main"].ready, first.pods["main"].total) == (
        JobPhase.RUNNING,
        3,
        2,
        2,
    )
    message = "somebody has deleted the Job without its pods: 2 pods run on and keep their quota to the end"
    assert first.waits == Waits(wanted={"main": 2}, reason="PodsOrphaned", message=message, since=NOW)
    assert told(an_orphan("a"), an_orphan("b"), last=first, now=LATER) is None
    fewer = told(an_orphan("a"), last=first, now=LATER)
    assert fewer is not None
    assert fewer.waits
    assert (fewer.waits.wanted, fewer.waits.since) == ({"main": 1}, NOW)


def test_what_was_known_of_the_job_stays() -> None:
    last = replace(GONE, phase=JobPhase.RUNNING, job_status={"active": 1})
    found = told(an_orphan("a"), last=last)
    assert found is not None
    assert found.job_status == {"active": 1}


@pytest.mark.parametrize(
    "pod",
    [owned(an_orphan("a")), an_orphan("a", phase="Succeeded"), an_orphan("a", gated=True), a_pod("a", of=None)],
    ids=["that has an owner yet", "that has ended", "with a gate", "of nobody"],
)
def test_no_other_pod_is_told(pod: Manifest) -> None:
    assert told(pod) is None


def test_so_are_those_of_a_cluster_that_is_left_alone() -> None:
    """Its pods name it as their owner, as before. It is nobody's, and its operator keeps it running."""
    pods = owned(an_orphan("a"), kind="RayCluster"), owned(an_orphan("b"), uid="other-uid")
    view = WorkerView(key=JobKey.of(REF), job=None, pods=tuple(map(Pod.from_manifest, pods)))
    alone = {"kind": "RayCluster", "metadata": {"uid": "worker-uid"}}
    of_another = {"kind": "Job", "metadata": {"uid": "other-uid", "ownerReferences": [{"uid": "x"}]}}
    made = {"RayCluster": alone, "Job": of_another}
    owners = orphans.owners_left(view, lambda key: made[key.kind])
    assert owners == {"worker-uid": "RayCluster"}
    first = told(owned(an_orphan("a"), kind="RayCluster"), owners=owners)
    assert first is not None
    assert first.waits
    assert "without its RayCluster: 1 pod" in first.waits.message
