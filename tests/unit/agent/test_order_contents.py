"""What an order may bring: the objects that its job reference names, and nothing that only an agent or a user gives."""

from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicebus.agent.decide.order import orders
from slicebus.agent.decide.order.order_contents import OTHER_OBJECT, ensure_readable
from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.decisions.commands import Create
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import JobRef, Manifest, Refused, WorkloadSpec
from slicebus.slices.api import api_names, kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.template_shape import INVALID_POD_TEMPLATE
from unit.agent.objects import EAST, REF, a_spec, a_view
from unit.agent.test_inbox import Manager, receiving
from unit.agent.worker import Worker
from unit.proto.strategies import VALUES
from unit.slices.jobs.declared import DECLARED, a_deployment
from unit.slices.jobs.manifests import ODD_NAMES, a_cluster, a_group, a_job, a_rayjob, a_template

WORKLOAD, MANIFEST = "workload", "manifest"


def changed(of: str, path: str, value: Any, order: WorkloadSpec | None = None) -> WorkloadSpec:
    """The order with a value at a path of one of its objects, `/` between keys; None removes it."""
    order = deepcopy(order or a_spec(1))
    target: Any = getattr(order, of)
    *parents, last = path.split("|")
    for key in parents:
        target = target.setdefault(key, {}) if isinstance(target, dict) else target[int(key)]
    if value is None:
        target.pop(last)
    else:
        target[last] = value
    return order


OWNER = {"kind": "Job", "name": "train", "uid": "manager-uid", "controller": True}
OTHERS: dict[str, WorkloadSpec] = {
    "a job of another namespace": changed(MANIFEST, "metadata|namespace", "kube-system"),
    "a job of another name": changed(MANIFEST, "metadata|name", "other"),
    "another kind": changed(MANIFEST, "kind", "CronJob"),
    "a kind of another group": changed(MANIFEST, "apiVersion", "evil.example/v1"),
    "a job with another UID": changed(MANIFEST, "metadata|uid", "another"),
    "a Workload of another namespace": changed(WORKLOAD, "metadata|namespace", "kube-system"),
    "another kind in the Workload's place": changed(WORKLOAD, "kind", "ClusterQueue"),
    "a Workload of another group": changed(WORKLOAD, "apiVersion", "evil.example/v1"),
    "a Workload that another job controls": changed(
        WORKLOAD, "metadata|ownerReferences", [OWNER | {"name": "other", "uid": "other"}]
    ),
    "a Workload that names another job": changed(
        WORKLOAD, "metadata|annotations", {api_names.JOB_ANNOTATION: "Job/other"}
    ),
    "a Workload with another job's UID": changed(WORKLOAD, "metadata|labels", {kueue.JOB_UID_LABEL: "another"}),
    "no UID": msgspec.structs.replace(a_spec(1), job=msgspec.structs.replace(REF, uid="")),
}


@pytest.mark.parametrize("order", OTHERS.values(), ids=OTHERS.keys())
def test_an_order_that_brings_another_object_is_refused(order: WorkloadSpec) -> None:
    ensure_readable(order)
    with pytest.raises(RefusedOrder, match="order names") as raised:
        orders.workload_spec(order, EAST)[0].decide(a_view(None))
    assert raised.value.reason == OTHER_OBJECT


def test_an_order_for_another_version_of_a_kind_is_refused() -> None:
    order = msgspec.structs.replace(a_spec(1), job=msgspec.structs.replace(REF, api_version="batch/v2"))
    with pytest.raises(RefusedOrder, match=r"batch/v2.*batch/v1") as raised:
        orders.workload_spec(order, EAST)[0].decide(a_view(None))
    assert raised.value.reason == "KindNotServed"


NAMED: dict[str, WorkloadSpec] = {
    "as the manager sends it": a_spec(1),
    "a job without a UID": changed(MANIFEST, "metadata|uid", None),
    "a Workload that the job controls": changed(WORKLOAD, "metadata|ownerReferences", [OWNER]),
    "a Workload that somebody else owns too": changed(
        WORKLOAD, "metadata|ownerReferences", [OWNER, {"kind": "Other", "name": "x", "uid": "y"}]
    ),
    "an older Kueue": changed(WORKLOAD, "apiVersion", f"{kueue.GROUP}/v1beta1"),
}


@pytest.mark.parametrize("order", NAMED.values(), ids=NAMED.keys())
def test_an_order_that_brings_what_it_names_is_carried_out(order: WorkloadSpec) -> None:
    ensure_readable(order)
    assert orders.next_step(orders.workload_spec(order, EAST), 0, a_view(None)).commands


def pods_of(**container: Any) -> list[Manifest]:
    """The pod sets of a Workload with one container, which lacks what is None."""
    fields = {key: value for key, value in ({"name": "main"} | container).items() if value is not None}
    return [{"name": "main", "template": {"spec": {"containers": [fields]}}}]


UNREADABLE: dict[str, tuple[WorkloadSpec, str]] = {
    "no metadata": (changed(MANIFEST, "metadata", None), "manifest: .*metadata"),
    "no name": (changed(WORKLOAD, "metadata|name", None), r"workload: .*name.*\$.metadata"),
    "labels that are no text": (changed(MANIFEST, "metadata|labels", {"a": 1}), r"\$.metadata.labels"),
    "no labels but null": (changed(MANIFEST, "metadata|labels", [None]), r"\$.metadata.labels"),
    "no spec": (changed(MANIFEST, "spec", None), "manifest: .*spec"),
    "no pod template": (changed(MANIFEST, "spec|template", None), "no Job that can be read"),
    "a template that is a list": (changed(MANIFEST, "spec|template", []), "no Job that can be read"),
    "a size that is text": (changed(MANIFEST, "spec|parallelism", "many"), "no Job that can be read"),
    "no pod sets": (changed(WORKLOAD, "spec|podSets", None), r"workload.spec: .*podSets"),
    "a pod set without a template": (changed(WORKLOAD, "spec|podSets", [{"name": "main"}]), "template"),
    "containers without a name": (changed(WORKLOAD, "spec|podSets", pods_of(name=None)), "workload.spec: KeyError"),
    "a number of resources": (changed(WORKLOAD, "spec|podSets", pods_of(resources=4)), "workload.spec: AttributeError"),
    "a number of requests": (
        changed(WORKLOAD, "spec|podSets", pods_of(resources={"requests": 4})),
        "workload.spec: TypeError",
    ),
    "a request that is a list": (
        changed(WORKLOAD, "spec|podSets", pods_of(resources={"requests": {"cpu": [1]}})),
        "workload.spec: TypeError",
    ),
    "a negative request": (
        changed(WORKLOAD, "spec|podSets", pods_of(resources={"requests": {"cpu": -1}})),
        "workload.spec: .*negative request",
    ),
    "a status that is a list": (changed(WORKLOAD, "status", []), "workload.status"),
}


@pytest.mark.parametrize(("order", "detail"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_order_that_cannot_be_read_is_malformed(order: WorkloadSpec, detail: str) -> None:
    with pytest.raises(ProtocolError, match=detail) as raised:
        ensure_readable(order)
    assert raised.value.reason is DeadReason.MALFORMED


@pytest.mark.parametrize(("odd", "path"), ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_a_pod_template_that_no_policy_can_read_is_refused_in_words(
    odd: Manifest, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "Deployment", DECLARED["Deployment"])
    order = an_order(a_deployment(template=a_template(**odd)))
    ensure_readable(order)
    with pytest.raises(RefusedOrder) as raised:
        orders.workload_spec(order, EAST)[0].decide(WorkerView(key=JobKey.of(order.job), job=None))
    assert raised.value.reason == INVALID_POD_TEMPLATE
    assert f"$.spec.{path}`" in str(raised.value)


def an_order(job: Manifest) -> WorkloadSpec:
    kind = KINDS[job["kind"]]
    metadata = {"name": "demo", "namespace": "team", "uid": "u1"}
    workload = {
        "apiVersion": kueue.API_VERSION,
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {"podSets": kind.pod_sets(job)},
    }
    ref = JobRef(kind.resource.api_version, kind.resource.kind, "team", "demo", "u1")
    granted = kind.counts(job, job)
    return WorkloadSpec(
        job=ref, spec_version=1, workload=workload, manifest=job | {"metadata": metadata}, granted=granted
    )


ORDERS = [an_order(job) for job in (a_job(), a_cluster(enableInTreeAutoscaling=True), a_rayjob())]


@st.composite
def broken(draw: st.DrawFn) -> WorkloadSpec:
    """An order with some value at any place of its objects."""
    order = deepcopy(draw(st.sampled_from(ORDERS)))
    target: Any = getattr(order, draw(st.sampled_from([WORKLOAD, MANIFEST])))
    while True:
        key = draw(st.sampled_from(sorted(target) if isinstance(target, dict) else range(len(target))))
        if not isinstance(target[key], dict | list) or not target[key] or draw(st.integers(0, 3)) == 0:
            target[key] = draw(VALUES)
            return order
        target = target[key]


BY_A_LIST, BY_A_NUMBER = (
    an_order(a_cluster(a_group() | {"groupName": name}, enableInTreeAutoscaling=True)) for name in (["a"], 7)
)


@settings(max_examples=300)
@example(BY_A_LIST)
@example(BY_A_NUMBER)
@given(broken())
def test_whatever_an_order_brings_nothing_but_a_refusal_is_raised(order: WorkloadSpec) -> None:
    view = WorkerView(key=JobKey.of(order.job), job=None)
    try:
        ensure_readable(order)
        for step in orders.workload_spec(order, EAST):
            step.decide(view)
    except (ProtocolError, RefusedOrder):
        pass


SMUGGLED = {
    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
    "finalizers": ["example.com/never"],
    "generateName": "train-",
    "deletionTimestamp": "2026-01-31T12:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "managedFields": [{"manager": "x"}],
    "selfLink": "/x",
    "resourceVersion": "1",
}
OURS = dict.fromkeys(api_names.AGENTS_OWN, "forged")
QUEUES = {kueue.QUEUE_NAME_LABEL: "q", kueue.PRIORITY_CLASS_LABEL: "high", kueue.POD_SET_LABEL: "other"}


def smuggling(order: WorkloadSpec) -> WorkloadSpec:
    """An order whose objects have everything that a copy must not take over."""
    metadata = SMUGGLED | {"labels": OURS | QUEUES | {"team": "a"}, "annotations": OURS | QUEUES | {"note": "b"}}
    order = deepcopy(order)
    order.manifest["metadata"] |= metadata
    order.manifest["status"] = {"active": 5}
    annotations = {name: value for name, value in OURS.items() if name != api_names.JOB_ANNOTATION}
    order.workload["metadata"] |= SMUGGLED | {"annotations": annotations}
    for template in templates(order.manifest["spec"]):
        template["metadata"] = metadata | {"name": "pod", "namespace": "kube-system"}
        template["spec"]["schedulingGates"] = []
    return order


def templates(value: Any) -> list[Manifest]:
    """Every pod template in a job, and every group that has labels of its own."""
    if isinstance(value, list):
        return [found for entry in value for found in templates(entry)]
    if not isinstance(value, dict):
        return []
    if "containers" in value.get("spec", {}):
        return [value]
    return [found for entry in value.values() for found in templates(entry)]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.job.kind)
def test_a_copy_takes_over_names_labels_annotations_and_spec_only(order: WorkloadSpec) -> None:
    brought = smuggling(order)
    ensure_readable(brought)
    view = WorkerView(key=JobKey.of(order.job), job=None)
    commands = [command for step in orders.workload_spec(brought, EAST) for command in step.decide(view)]
    job, copy = (command.manifest for command in commands if isinstance(command, Create))
    for made in (copy, job):
        assert made.keys() == {"apiVersion", "kind", "metadata", "spec"}
        assert made["metadata"].keys() == {"name", "namespace", "labels", "annotations"}
        assert "forged" not in {*made["metadata"]["labels"].values(), *made["metadata"]["annotations"].values()}
        assert not made["metadata"]["labels"].keys() & {kueue.QUEUE_NAME_LABEL, kueue.PRIORITY_CLASS_LABEL}
    assert (job["metadata"]["labels"]["team"], job["metadata"]["annotations"]["note"]) == ("a", "b")
    pod_sets = {each["name"] for each in KINDS[order.job.kind].pod_sets(order.manifest)}
    for template in templates(job["spec"]):
        metadata = template["metadata"]
        assert metadata.keys() <= {"labels", "annotations"}
        assert "forged" not in {*metadata["labels"].values(), *metadata.get("annotations", {}).values()}
        assert kueue.QUEUE_NAME_LABEL not in metadata["labels"]
        assert metadata["labels"][kueue.POD_SET_LABEL] in pod_sets
        assert template["spec"]["schedulingGates"] == [{"name": kueue.ELASTIC_GATE}]


def test_a_ray_group_gives_its_pods_no_label_of_ours() -> None:
    cluster = a_cluster()
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        group["labels"] = OURS | QUEUES | {"zone": "a"}
    spec = KINDS["RayCluster"].worker_copy(cluster, {})["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert group["labels"] == {"zone": "a"}


async def test_a_refusal_is_reported_and_a_malformed_order_is_a_dead_letter(worker: Worker) -> None:
    manager = Manager(worker)
    async with receiving(worker):
        await manager.order(OTHERS["a job of another namespace"])
        [refused] = worker.published
        assert isinstance(refused, Refused)
        assert (refused.job, refused.reason) == (REF, OTHER_OBJECT)
        assert manager.dead == []
        await manager.order(UNREADABLE["no pod template"][0])
        [(reason, detail)] = manager.dead
        assert (reason, detail) == ("malformed", "manifest: no Job that can be read: KeyError: 'template'")
    assert await worker.copies() == []
    assert await worker.job() is None


def test_an_order_for_a_kind_without_a_package_is_read_too() -> None:
    """The answer to it names its Workload."""
    job = JobRef("train.example/v1", "TrainJob", "team", "train", "manager-uid")
    order = changed(WORKLOAD, "metadata|name", None, a_spec(1, job=job))
    with pytest.raises(ProtocolError, match="name"):
        ensure_readable(order)
