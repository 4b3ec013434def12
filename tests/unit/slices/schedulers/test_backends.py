"""What each scheduler backend gives the pods, asks for, and refuses."""

import re
from typing import Any

import pytest

from slicebus.slices.api import kueue
from slicebus.slices.api.resource import Resource
from slicebus.slices.schedulers import NAMES, Gang, Profile, Synced, every_version, init
from slicebus.slices.schedulers.grove import POD_GANGS
from slicebus.slices.schedulers.kai import POD_GROUPS as KAI_POD_GROUPS
from slicebus.slices.schedulers.kai import QUEUES as KAI_QUEUES
from slicebus.slices.schedulers.volcano import POD_GROUPS as VOLCANO_POD_GROUPS
from slicebus.slices.schedulers.volcano import QUEUES as VOLCANO_QUEUES
from unit.slices.jobs.manifests import a_cluster, a_group, a_job, a_rayjob

Manifest = dict[str, Any]
Found = dict[tuple[Resource, str], Manifest]
KAI_QUEUE = {"kai.scheduler/queue": "research"}
OPEN = {"metadata": {"name": "default"}, "status": {"state": "Open"}}


def labelled(job: Manifest, **labels: str) -> Manifest:
    return job | {"metadata": job["metadata"] | {"labels": job["metadata"].get("labels", {}) | labels}}


def synced(
    name: str,
    job: Manifest,
    minimum: dict[str, int],
    *,
    found: Found | None = None,
    granted: dict[str, int] | None = None,
    pods: dict[str, tuple[str, ...]] | None = None,
    **profile: str,
) -> Synced:
    gang = Gang(
        job=job,
        minimum=minimum,
        granted=granted or minimum,
        pods=pods or {},
        find=lambda resource, name: (found or {}).get((resource, name)),
    )
    return init(Profile(name, **profile)).sync(gang)


def specs(done: Synced) -> dict[tuple[str, str], Manifest]:
    return {(made.resource.kind, made.name): made.spec for made in done.objects}


# --- kube ----------------------------------------------------------------------------------------------------------


def test_a_ray_cluster_gets_a_workload_and_a_pod_group_for_each_pod_set() -> None:
    done = synced("kube", a_cluster(a_group("small", minReplicas=2, maxReplicas=9)), {"head": 1, "small": 5})
    gang = {"gang": {"minCount": 5}}
    assert specs(done)["Workload", "raycluster-demo.small"] == {
        "controllerRef": {"apiGroup": "ray.io", "kind": "RayCluster", "name": "demo"},
        "podGroupTemplates": [{"name": "small", "schedulingPolicy": gang}],
    }
    assert specs(done)["PodGroup", "raycluster-demo.small"]["schedulingPolicy"] == gang
    assert [made.resource.kind for made in done.objects] == ["Workload", "PodGroup"] * 2
    assert done.together == {"head": 1, "small": 5}


@pytest.mark.parametrize(
    ("least", "hosts", "granted", "expected"),
    [(2, 1, 5, 2), (9, 1, 5, 5), (0, 1, 5, 1), (2, 4, 16, 8)],
    ids=["minReplicas", "no more than is granted", "at least one pod", "replicas of several hosts"],
)
def test_a_group_that_an_autoscaler_may_shrink_is_a_gang_of_its_least_size(
    least: int, hosts: int, granted: int, expected: int
) -> None:
    group = a_group("small", minReplicas=least, maxReplicas=9, numOfHosts=hosts)
    done = synced("kube", a_cluster(group, enableInTreeAutoscaling=True), {"head": 1, "small": granted})
    assert done.together["small"] == expected
    assert specs(done)["PodGroup", "raycluster-demo.small"]["schedulingPolicy"] == {"gang": {"minCount": expected}}


def test_a_job_gets_the_basic_policy_because_it_could_not_be_resized_in_a_gang() -> None:
    done = synced("kube", a_job(), {"main": 5})
    assert {spec["schedulingPolicy"] != {} for (kind, _), spec in specs(done).items() if kind == "PodGroup"} == {True}
    assert specs(done)["PodGroup", "job-demo.main"]["schedulingPolicy"] == {"basic": {}}
    assert done.together == done.minimum == {}


def test_no_two_jobs_have_objects_of_one_name() -> None:
    """A group of one job, and the job of a longer name: `a` with `b-c`, and `a-b` with `c`."""

    def names(name: str, group: str) -> set[str]:
        job = a_cluster(a_group(group))
        job["metadata"]["name"] = name
        return {made.name for made in synced("kube", job, {group: 1}).objects}

    assert names("a", "b-c").isdisjoint(names("a-b", "c"))


NAMED = {"workloadName": "raycluster-demo.small"}
VERSIONS: dict[str, tuple[Manifest, bool]] = {
    "v1beta1": ({"workloadRef": NAMED | {"templateName": "small"}}, False),
    "v1alpha2": ({"podGroupTemplateRef": {"workload": NAMED | {"podGroupTemplateName": "small"}}}, True),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_pod_group_names_its_template_as_its_version_does(version: str) -> None:
    """And only the older one cannot be changed: `minCount` is mutable in Kubernetes 1.37."""
    reference, is_fixed = VERSIONS[version]
    backend = init(Profile("kube"), served=lambda resource: resource.version == version)
    gang = Gang(job=a_cluster(), minimum={"small": 2}, granted={"small": 2}, pods={}, find=lambda *_: None)
    workload, pod_group = backend.sync(gang).objects
    assert pod_group.spec == reference | {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert (workload.is_fixed, pod_group.is_fixed) == (True, is_fixed)


def test_kube_takes_the_newest_version_that_is_served() -> None:
    newest, oldest = every_version(Profile("kube"))
    assert [each.makes[0].version for each in (newest, oldest)] == ["v1beta1", "v1alpha2"]
    found = init(Profile("kube"), served=lambda resource: resource.version == "v1alpha2")
    assert found.makes == oldest.makes
    assert init(Profile("kube"), served=lambda _: True).makes == newest.makes


# --- kai -----------------------------------------------------------------------------------------------------------


def test_kai_gets_a_pod_group_with_a_subgroup_for_each_pod_set() -> None:
    found = {(KAI_QUEUES, "research"): {"metadata": {"name": "research"}}}
    done = synced("kai", labelled(a_cluster(), **KAI_QUEUE), {"head": 1, "small": 3}, found=found)
    assert specs(done) == {
        ("PodGroup", "raycluster-demo"): {
            "minMember": 4,
            "queue": "research",
            "subGroups": [{"name": "head", "minMember": 1}, {"name": "small", "minMember": 3}],
        }
    }
    assert done.objects[0].annotations == {"kai.scheduler/skip-podgrouper": "true"}
    assert done.together == {"head": 1, "small": 3}


def test_the_queue_of_a_pod_group_of_kai_stays() -> None:
    found = {(KAI_POD_GROUPS, "job-demo"): {"spec": {"queue": "before"}}}
    done = synced("kai", labelled(a_job(), **KAI_QUEUE), {"main": 1}, found=found)
    assert specs(done)["PodGroup", "job-demo"]["queue"] == "before"


def test_kai_needs_a_queue() -> None:
    assert [problem.reason for problem in init(Profile("kai")).validate(a_job())] == ["QueueNotSet"]
    assert init(Profile("kai", queue="research")).validate(a_job()) == []
    annotated = a_job()
    annotated["metadata"]["annotations"] = KAI_QUEUE
    assert init(Profile("kai")).validate(annotated) == []
    blocked = synced("kai", a_job(), {"main": 1}, queue="research").blocked
    assert blocked is not None
    assert (blocked.reason, blocked.message) == ("QueueNotFound", "there is no Queue research (scheduling.run.ai)")


# --- volcano -------------------------------------------------------------------------------------------------------


def test_volcano_gets_a_pod_group_with_a_policy_for_each_pod_set() -> None:
    done = synced("volcano", a_cluster(), {"head": 1, "small": 3}, found={(VOLCANO_QUEUES, "default"): OPEN})
    assert specs(done)["PodGroup", "raycluster-demo"] == {
        "minMember": 4,
        "queue": "default",
        "subGroupPolicy": [
            {
                "name": name,
                "labelSelector": {"matchLabels": {kueue.POD_SET_LABEL: name}},
                "matchLabelKeys": [kueue.POD_SET_LABEL],
                "subGroupSize": size,
                "minSubGroups": 1,
            }
            for name, size in (("head", 1), ("small", 3))
        ],
    }


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        ({}, "QueueNotFound", "there is no Queue default (scheduling.volcano.sh)"),
        (
            {(VOLCANO_QUEUES, "default"): {"status": {"state": "Closed"}}},
            "QueueNotOpen",
            "Queue default (scheduling.volcano.sh) is Closed: it takes no PodGroup",
        ),
    ],
    ids=["missing", "closed"],
)
def test_volcano_takes_a_pod_group_into_an_open_queue_only(found: Found, reason: str, message: str) -> None:
    done = synced("volcano", a_job(), {"main": 1}, found=found)
    assert done.blocked is not None
    assert (done.blocked.reason, done.blocked.message) == (reason, message)
    goes_on = synced("volcano", a_job(), {"main": 1}, found=found | {(VOLCANO_POD_GROUPS, "job-demo"): {"spec": {}}})
    assert goes_on.blocked is None


# --- grove ---------------------------------------------------------------------------------------------------------


def gang_of(*named: str, initialized: bool = False) -> Found:
    condition = {"type": "Initialized", "status": "True" if initialized else "False"}
    references = [{"namespace": "team", "name": name} for name in named]
    groups = [{"name": "main", "minReplicas": 2, "podReferences": references}]
    return {(POD_GANGS, "job-demo"): {"spec": {"podgroups": groups}, "status": {"conditions": [condition]}}}


def references(done: Synced) -> list[str]:
    [group] = done.objects[0].spec["podgroups"]
    return [each["name"] for each in group["podReferences"]]


GROVE: dict[str, tuple[Found, tuple[str, ...], int, list[str], str, set[str]]] = {
    "it comes first, and names nobody": ({}, ("a", "b"), 2, [], "PodGangPodsCreationPending", set()),
    "it says first that it names nobody": (
        {(POD_GANGS, "job-demo"): {"spec": {"podgroups": []}}},
        ("a", "b"),
        2,
        [],
        "PodGangPodsCreationPending",
        set(),
    ),
    "it waits for every granted pod": (gang_of(), ("a",), 2, [], "PodGangPodsCreationPending", set()),
    "it names them": (gang_of(), ("a", "b"), 2, ["a", "b"], "PodGangPodsCreationPending", set()),
    "it is initialized": (gang_of("a", "b"), ("a", "b"), 2, ["a", "b"], "PodGangPodsCreated", set()),
    "they start": (gang_of("a", "b", initialized=True), ("a", "b"), 2, ["a", "b"], "PodGangPodsCreated", {"a", "b"}),
    "growth": (
        gang_of("a", "b", initialized=True),
        ("a", "b", "c"),
        5,
        ["a", "b", "c"],
        "PodGangPodsCreated",
        {"a", "b"},
    ),
    "a pod that is made again": (
        gang_of("a", "b", initialized=True),
        ("a", "c"),
        2,
        ["a", "c"],
        "PodGangPodsCreated",
        {"a", "b"},
    ),
    "nothing is known of the pods": (
        gang_of("a", "b", initialized=True),
        (),
        2,
        ["a", "b"],
        "PodGangPodsCreated",
        {"a", "b"},
    ),
    "nor before it is initialized": (gang_of("a", "b"), (), 2, ["a", "b"], "PodGangPodsCreationPending", set()),
}


@pytest.mark.parametrize(("found", "pods", "granted", "named", "reason", "starts"), GROVE.values(), ids=GROVE.keys())
def test_a_pod_gang(
    found: Found, pods: tuple[str, ...], granted: int, named: list[str], reason: str, starts: set[str]
) -> None:
    done = synced("grove", a_job(), {"main": 2}, found=found, granted={"main": granted}, pods={"main": pods})
    assert references(done) == named
    assert [condition.reason for condition in done.objects[0].conditions] == [reason]
    assert done.starts == starts


def test_a_pod_gang_of_a_job_that_is_suspended_keeps_its_names_until_its_pods_are_gone() -> None:
    done = synced("grove", a_job(), {"main": 2}, found=gang_of("a", "b"), granted={"other": 1}, pods={"main": ("a",)})
    assert references(done) == ["a"]


def test_a_pod_set_whose_pods_are_made_again_keeps_its_names_until_they_are_there() -> None:
    groups = [
        {"name": name, "minReplicas": 1, "podReferences": [{"namespace": "team", "name": pod}]}
        for name, pod in (("head", "h"), ("small", "a"))
    ]
    present = {"spec": {"podgroups": groups}, "status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    pods = {"head": (), "small": ("b",)}
    found = {(POD_GANGS, "raycluster-demo"): present}
    done = synced("grove", a_cluster(), {"head": 1, "small": 1}, found=found, pods=pods)
    named = {
        group["name"]: [each["name"] for each in group["podReferences"]] for group in done.objects[0].spec["podgroups"]
    }
    assert named == {"head": ["h"], "small": ["b"]}


MINIMUMS: dict[str, Found] = {
    "kube": {},
    "kai": {(KAI_QUEUES, "research"): {}},
    "volcano": {(VOLCANO_QUEUES, "research"): OPEN},
    "grove": {},
}


@pytest.mark.parametrize(("name", "found"), MINIMUMS.items(), ids=MINIMUMS.keys())
def test_a_backend_says_how_many_pods_its_scheduler_keeps_together(name: str, found: Found) -> None:
    minimum = {"head": 1, "small": 2}
    done = synced(name, a_cluster(a_group("small")), minimum, found=found, queue="research")
    assert done.minimum == minimum
    assert (synced(name, a_cluster(), minimum, queue="research").minimum is None) is bool(found)


@pytest.mark.parametrize(("version", "kept"), [("v1beta1", 2), ("v1alpha2", 4)])
def test_a_pod_group_that_cannot_be_changed_keeps_the_pods_of_its_beginning(version: str, kept: int) -> None:
    backend = init(Profile("kube"), served=lambda resource: resource.version == version)
    present = {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}
    shrunk = Gang(
        job=a_cluster(),
        minimum={"head": 1, "small": 2},
        granted={"head": 1, "small": 2},
        pods={},
        find=lambda _, name: present if name.endswith("small") else None,
    )
    assert backend.sync(shrunk).minimum == {"head": 1, "small": kept}


# --- all of them ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name != "default"])
@pytest.mark.parametrize("label", ["ray.io/gang-scheduling-enabled", "ray.io/scheduler-name"])
def test_no_backend_beside_kuberays_own_gangs(name: str, label: str) -> None:
    [problem] = init(Profile(name, queue="research")).validate(labelled(a_cluster(), **{label: "volcano"}))
    assert problem.reason == "GangSchedulingByKubeRay"
    assert label in problem.message


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_that_comes_when_others_run_is_in_no_gang(name: str) -> None:
    backend = init(Profile(name, queue="research", scheduler_name="mine"))
    submitter = backend.prepare(a_rayjob(), "submitter")
    assert submitter.scheduler_name == "mine"
    assert not submitter.pod_group
    assert not any("group" in key for key in (*submitter.annotations, *submitter.labels))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "default"])
def test_a_group_that_is_called_as_a_submitter_is_in_the_gang(name: str) -> None:
    job = a_rayjob(submissionMode="HTTPMode")
    job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"] = "submitter"
    backend = init(Profile(name, queue="research"))
    group, other = backend.prepare(job, "submitter"), backend.prepare(job, "small")
    assert group.annotations.keys() == other.annotations.keys()
    assert group.labels.keys() == other.labels.keys()
    assert bool(group.pod_group) == bool(other.pod_group)


PREPARED: dict[str, tuple[str, dict[str, str], dict[str, str], str]] = {
    "default": ("", {}, {}, ""),
    "kube": ("", {}, {}, "job-demo.main"),
    "kai": (
        "kai-scheduler",
        KAI_QUEUE | {"kai.scheduler/subgroup-name": "main"},
        {"pod-group-name": "job-demo", "kai.scheduler/skip-podgrouper": "true"},
        "",
    ),
    "volcano": (
        "volcano",
        {},
        {"scheduling.volcano.sh/group-name": "job-demo", "scheduling.k8s.io/group-name": "job-demo"},
        "",
    ),
    "grove": ("", {"grove.io/podgang": "job-demo"}, {}, ""),
}


@pytest.mark.parametrize(("name", "expected"), PREPARED.items(), ids=PREPARED.keys())
def test_what_a_template_gets(name: str, expected: tuple[str, dict[str, str], dict[str, str], str]) -> None:
    given = init(Profile(name, queue="research")).prepare(a_job(), "main")
    assert (given.scheduler_name, given.labels, given.annotations, given.pod_group) == expected


@pytest.mark.parametrize("name", ["a" * 63, f"{'a' * 49}.{'b' * 13}"], ids=["long", "cut at a dot"])
def test_a_long_name_of_a_job_fits_the_label_of_its_pods(name: str) -> None:
    job, other = a_job(), a_job()
    job["metadata"] |= {"name": name}
    other["metadata"] |= {"name": name[:-1] + "c"}
    [label] = init(Profile("grove")).prepare(job, "main").labels.values()
    assert re.fullmatch(r"job-[a-z0-9.]+-[0-9a-f]{8}", label)
    assert len(label) <= 63
    assert [made.name for made in synced("grove", job, {"main": 1}).objects] == [label]
    assert init(Profile("grove")).prepare(other, "main").labels != {"grove.io/podgang": label}


def test_a_template_keeps_what_it_has() -> None:
    given = init(Profile("kai", queue="research")).prepare(a_job(), "main")
    template = {"metadata": {"labels": {"own": "label"}}, "spec": {"containers": [], "schedulerName": "other"}}
    made = given.applied_to(template)
    assert made["metadata"]["labels"] == {"own": "label"} | given.labels
    assert made["metadata"]["annotations"] == given.annotations
    assert made["spec"] == {"containers": [], "schedulerName": "kai-scheduler"}
    assert given.lost_in(made) == []


def test_what_a_pod_has_lost_is_named() -> None:
    given = init(Profile("kube", scheduler_name="mine")).prepare(a_job(), "main")
    assert given.lost_in({"metadata": {}, "spec": {}}) == ["schedulerName", "schedulingGroup"]
    kai = init(Profile("kai", queue="research")).prepare(a_job(), "main")
    assert kai.lost_in({"metadata": {}, "spec": {"schedulerName": "default-scheduler"}}) == [
        "label kai.scheduler/queue",
        "label kai.scheduler/subgroup-name",
        "annotation kai.scheduler/skip-podgrouper",
        "annotation pod-group-name",
        "schedulerName",
    ]


def test_a_pod_has_the_queue_and_the_scheduler_of_the_time_when_its_job_was_made() -> None:
    before = init(Profile("kai", queue="research", scheduler_name="old")).prepare(a_job(), "main")
    pod = before.applied_to({"spec": {"containers": []}})
    assert init(Profile("kai", queue="other")).prepare(a_job(), "main").lost_in(pod) == []
    plain = init(Profile("kube", scheduler_name="default-scheduler")).prepare(a_job(), "main")
    assert plain.lost_in(plain.applied_to({"spec": {"containers": []}})) == []
