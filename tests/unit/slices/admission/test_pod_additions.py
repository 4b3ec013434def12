"""Jobs are admitted with what their pods will request on the cluster that takes them."""

import msgspec

from slicebus.slices.admission.cycle import Admit, Wait, cycle
from slicebus.slices.placement.fleet import Cluster
from slicebus.slices.workload.pod_additions import PodAdditions
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Slice
from unit.slices.builders import WORKER, a_queue, a_slice, admits, admitted, replacement, snapshot

DEFAULTS = PodAdditions(container_defaults={"team": {"cpu": 4000}})
ADDING = msgspec.structs.replace(WORKER, name="adding", additions=DEFAULTS)
PLAIN = msgspec.structs.replace(WORKER, name="plain")
LITTLE = msgspec.structs.replace(WORKER, name="little", additions=PodAdditions({"team": {"cpu": 1000}}))


def bare(name: str, count: int, **changes: object) -> Slice:
    """A slice of pods that request nothing."""
    manifest = {"name": "main", "count": count, "template": {"spec": {"containers": [{"name": "c"}]}}}
    return a_slice(name, pod_sets=(PodSet.from_manifest(manifest),), **changes)


def admission_of(slice: Slice, *clusters: Cluster, cpu: str = "10") -> tuple[str, dict[str, int]]:
    [admit] = admits(snapshot(slice, queues=[a_queue(quotas={"default": {"cpu": cpu}})], clusters=clusters))
    return admit.cluster, admit.admission.pod_sets[0].usage


def test_a_job_is_admitted_with_what_its_cluster_adds() -> None:
    assert admission_of(bare("s1", 2), ADDING) == ("adding", {"cpu": 8000})
    assert admission_of(bare("s1", 2), PLAIN) == ("plain", {})


def test_it_goes_where_the_quota_has_what_is_added() -> None:
    assert admission_of(bare("s1", 3), ADDING, PLAIN) == ("plain", {})
    assert admission_of(bare("s1", 3), ADDING, LITTLE) == ("little", {"cpu": 3000})
    assert admission_of(bare("s1", 2), ADDING, LITTLE) == ("adding", {"cpu": 8000})


def test_no_cluster_has_another_ones_additions_hold_its_jobs_up() -> None:
    lies = msgspec.structs.replace(ADDING, additions=PodAdditions({"team": {"cpu": 10**12}}))
    assert admission_of(bare("s1", 2), lies, LITTLE) == ("little", {"cpu": 2000})


def test_it_waits_where_no_quota_has_what_every_cluster_adds() -> None:
    [wait] = cycle(snapshot(bare("s1", 3), clusters=[ADDING]))
    assert isinstance(wait, Wait)
    assert "insufficient quota for cpu in flavor default, request > maximum capacity (12 > 10)" in wait.message
    world = snapshot(bare("s1", 3), queues=[a_queue(quotas={"default": {"cpu": "2"}})], clusters=[ADDING, LITTLE])
    [wait] = cycle(world)
    assert isinstance(wait, Wait)
    assert "(3 > 2)" in wait.message


def test_it_grows_with_what_its_own_cluster_adds() -> None:
    old = admitted(bare("s1", 2), cluster="adding")
    grown = msgspec.structs.replace(replacement(old, "s2", 3), pod_sets=bare("s2", 3).pod_sets)
    [wait] = cycle(snapshot(old, grown, clusters=[ADDING, PLAIN]))
    assert isinstance(wait, Wait)
    assert "cpu in flavor default" in wait.message
    [admit] = cycle(snapshot(old, grown, queues=[a_queue(quotas={"default": {"cpu": "12"}})], clusters=[ADDING]))
    assert isinstance(admit, Admit)
    assert admit.admission.pod_sets[0].usage == {"cpu": 12000}


def test_what_is_added_and_not_covered_is_not_charged() -> None:
    memory = msgspec.structs.replace(ADDING, additions=PodAdditions({"team": {"memory": 2**30}}))
    assert admission_of(bare("s1", 2), memory) == ("adding", {})
