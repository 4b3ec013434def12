"""What KubeRay would refuse on the worker is refused at submission, in its words; what it takes is taken."""

from typing import Any

import pytest

from slicebus.slices.jobs import KINDS, Problem
from unit.slices.jobs.manifests import a_cluster, a_group
from unit.slices.jobs.ray_cases import (
    ACCEPTED_CLUSTERS,
    ACCEPTED_RAYJOBS,
    ACCEPTED_RAYSERVICES,
    REFUSED_CHILDREN,
    REFUSED_CLUSTERS,
    REFUSED_RAYJOBS,
    REFUSED_RAYSERVICES,
)

Manifest = dict[str, Any]
WITHOUT_CONTAINERS = {
    "a head": (a_cluster(head={"spec": {"containers": []}}), ["headGroupSpec should have at least one container"]),
    "a group": (
        a_cluster(a_group(template={"spec": {}})),
        ["workerGroupSpec small should have at least one container"],
    ),
}
"""No API server with KubeRay's definition takes these."""
REFUSED = {
    f"{kind}: {name}": (kind, *case)
    for kind, cases in (
        ("RayCluster", REFUSED_CLUSTERS | WITHOUT_CONTAINERS),
        ("RayJob", REFUSED_RAYJOBS | REFUSED_CHILDREN),
        ("RayService", REFUSED_RAYSERVICES),
    )
    for name, case in cases.items()
}
ACCEPTED = {
    f"{kind}: {name}": (kind, job)
    for kind, cases in (
        ("RayCluster", ACCEPTED_CLUSTERS),
        ("RayJob", ACCEPTED_RAYJOBS),
        ("RayService", ACCEPTED_RAYSERVICES),
    )
    for name, job in cases.items()
}


@pytest.mark.parametrize(("kind", "job", "messages"), REFUSED.values(), ids=REFUSED.keys())
def test_what_kuberay_would_refuse_is_refused_in_its_words(kind: str, job: Manifest, messages: list[str]) -> None:
    assert [problem.message for problem in KINDS[kind].problems(job)] == messages


@pytest.mark.parametrize(("kind", "job"), ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_kuberay_takes_is_taken(kind: str, job: Manifest) -> None:
    assert KINDS[kind].problems(job) == []


def test_the_reason_says_whose_rule_it_is() -> None:
    job, messages = REFUSED_RAYJOBS["negative retries"]
    assert KINDS["RayJob"].problems(job) == [Problem("InvalidRayJob", message) for message in messages]
    job, messages = REFUSED_RAYJOBS["a cluster that KubeRay would refuse"]
    assert KINDS["RayJob"].problems(job) == [Problem("InvalidRayCluster", message) for message in messages]
    cluster, messages = REFUSED_CLUSTERS["no minimum"]
    assert KINDS["RayCluster"].problems(cluster) == [Problem("InvalidRayCluster", message) for message in messages]


def test_a_job_hears_of_its_own_problems_and_of_its_clusters() -> None:
    job, _ = REFUSED_RAYJOBS["a cluster that KubeRay would refuse"]
    both = job | {"spec": job["spec"] | {"backoffLimit": -1}}
    assert [problem.reason for problem in KINDS["RayJob"].problems(both)] == ["InvalidRayJob", "InvalidRayCluster"]
