"""What a cluster adds to the requests of a slice's pods."""

from typing import Any

import pytest

from slicebus.slices.workload.pod_additions import PodAdditions, least
from slicebus.slices.workload.pod_sets import PodSet
from slicebus.slices.workload.workload import Slice
from unit.slices.builders import a_slice

Manifest = dict[str, Any]
GI = 2**30


def of(*containers: Manifest, **spec: Any) -> Slice:
    """A slice of pods with these containers."""
    template = {"spec": {"containers": [{"name": "c", "resources": resources} for resources in containers]} | spec}
    return a_slice("s1", pod_sets=(PodSet.from_manifest({"name": "main", "count": 2, "template": template}),))


ADDED = PodAdditions(
    container_defaults={"team": {"cpu": 4000, "memory": GI}},
    overheads={"kata": {"cpu": 250}},
)
BARE: Manifest = {}
CASES: dict[str, tuple[Slice, dict[str, int]]] = {
    "a container without requests": (of(BARE), {"cpu": 4000, "memory": GI}),
    "one with a request": (of({"requests": {"cpu": "1"}}), {"cpu": 1000, "memory": GI}),
    "one with a limit": (of({"limits": {"cpu": "2"}}), {"cpu": 2000, "memory": GI}),
    "each container gets them": (of(BARE, {"requests": {"cpu": "1"}}), {"cpu": 5000, "memory": 2 * GI}),
    "a runtime class": (
        of({"requests": {"cpu": "1", "memory": "1Gi"}}, runtimeClassName="kata"),
        {"cpu": 1250, "memory": GI},
    ),
    "one that adds nothing": (
        of({"requests": {"cpu": "1", "memory": "1Gi"}}, runtimeClassName="runc"),
        {"cpu": 1000, "memory": GI},
    ),
    "an overhead that the template says": (
        of({"requests": {"cpu": "1", "memory": "1Gi"}}, runtimeClassName="kata", overhead={"cpu": "1"}),
        {"cpu": 2000, "memory": GI},
    ),
    "an init container": (
        of({"requests": {"cpu": "1", "memory": "1Gi"}}, initContainers=[{"name": "i"}]),
        {"cpu": 4000, "memory": GI},
    ),
}


@pytest.mark.parametrize(("slice", "expected"), CASES.values(), ids=CASES.keys())
def test_what_its_pods_will_request(slice: Slice, expected: dict[str, int]) -> None:
    assert ADDED.charged(slice).pod_sets[0].charged == expected


def test_nothing_is_copied_where_nothing_is_added() -> None:
    full = of({"requests": {"cpu": "5", "memory": "2Gi"}})
    assert ADDED.charged(full) is full
    assert PodAdditions().charged(of(BARE)).pod_sets[0].charged == {}
    assert PodAdditions({"other": {"cpu": 4000}}).charged(of(BARE)).pod_sets[0].charged == {}


def test_the_least_of_several_clusters() -> None:
    slice = of(BARE)
    smaller = PodAdditions({"team": {"cpu": 500, "memory": 2 * GI}})
    common = least([ADDED.charged(slice), smaller.charged(slice)])
    assert common.pod_sets[0].charged == {"cpu": 500, "memory": GI}
    assert least([ADDED.charged(slice), slice]).pod_sets[0].charged == {}
    assert least([slice, slice]) is slice
