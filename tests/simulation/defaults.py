"""Workers that change what pods request without a webhook: by LimitRanges, RuntimeClasses and resizes in place.

The first two are known before there is a pod, and may come and go at any time.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from random import Random
from typing import Any

import msgspec

from simulation.later import OLD, with_later
from simulation.schedule import WORKERS, Moment, Schedule, Submit
from slicebus.cli.demo import objects
from slicebus.kube.client import JsonPatch, KubeClient, MergePatch
from slicebus.kube.resources import LIMITRANGES, PODS, RUNTIMECLASSES, WORKERCLUSTERS
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.errors import NotFoundError
from slicebus.slices.api import api_names
from slicebus.slices.workload.ungate import is_gated
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
NAME = "sandboxed"
"""Of the RuntimeClass, and of the LimitRange."""
TEMPLATE_CPU = "simulation/template-cpu"
"""On a pod: what its first container requests by its template; empty for nothing."""
_CPUS = ("250m", "500m", "1", "2")


class Limit(Moment):
    """A worker's LimitRange gives containers that request nothing so much cpu; empty for no LimitRange."""

    cluster: str
    cpu: str


class Overhead(Moment):
    """A worker's RuntimeClass adds so much cpu to each of its pods."""

    cluster: str
    cpu: str


class Resize(Moment):
    """Some pod that runs on a worker is resized in place."""

    cluster: str
    pick: int
    cpu: str


def with_defaults(schedule: Schedule) -> Schedule:
    """The same run, on one of five with such workers, and with jobs that leave their requests to them."""
    random = Random(f"{schedule.seed}/jobs without requests")
    if schedule.seed in OLD or random.random() > 1 / 5:
        return schedule
    items = [
        msgspec.structs.replace(item, bare=random.random() < 0.5, sandboxed=random.random() < 0.5)
        if isinstance(item, Submit)
        else item
        for item in schedule.items
    ]
    return with_later(schedule.with_items(tuple(items)), "defaults", _defaults)


def are_in(schedule: Schedule) -> bool:
    """Whether pods of a run may request more than their templates."""
    return any(isinstance(item, Limit | Overhead | Resize) for item in schedule.items)


def shape(job: Manifest, item: Submit) -> None:
    """Let the pods of a job request no cpu, or have the RuntimeClass."""
    for template in _templates(job) if item.bare or item.sandboxed else ():
        if item.sandboxed:
            template["spec"]["runtimeClassName"] = NAME
        if item.bare:
            template["metadata"] = template.get("metadata") or {}
            template["metadata"]["annotations"] = (template["metadata"].get("annotations") or {}) | {TEMPLATE_CPU: ""}
            template["spec"]["containers"] = [_with_cpu(one, "") for one in template["spec"]["containers"]]


def of_template(pod: Manifest) -> Manifest:
    """The spec of a pod as its template has it."""
    spec = {field: value for field, value in pod["spec"].items() if field != "overhead"}
    cpu = (pod["metadata"].get("annotations") or {}).get(TEMPLATE_CPU)
    if cpu is not None:
        first, *others = spec["containers"]
        spec["containers"] = [_with_cpu(first, cpu), *others]
    return spec


async def limit(client: KubeClient, item: Limit) -> None:
    """Play it."""
    limits = [{"type": "Container", "defaultRequest": {"cpu": item.cpu}}]
    manifest = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": NAME, "namespace": objects.NAMESPACE}}
    with suppress(NotFoundError):
        await client.delete(LIMITRANGES, NAME, objects.NAMESPACE)
    if item.cpu:
        await client.create(LIMITRANGES, manifest | {"spec": {"limits": limits}})


async def add_overhead(client: KubeClient, item: Overhead) -> None:
    """Play it."""
    manifest = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": NAME}, "handler": "vm"}
    with suppress(NotFoundError):
        await client.delete(RUNTIMECLASSES, NAME, None)
    await client.create(RUNTIMECLASSES, manifest | {"overhead": {"podFixed": {"cpu": item.cpu}}})


async def resize(client: KubeClient, item: Resize) -> None:
    """Play it, where a pod runs."""
    pods = [pod for pod in (await client.list(PODS, namespace=objects.NAMESPACE)).items if _is_resizable(pod)]
    if not pods:
        return
    pod = pods[item.pick % len(pods)]
    name, first = pod["metadata"]["name"], pod["spec"]["containers"][0]
    before = (pod["metadata"].get("annotations") or {}).get(TEMPLATE_CPU, _cpu(first))
    note = MergePatch({"metadata": {"uid": pod["metadata"]["uid"], "annotations": {TEMPLATE_CPU: before}}})
    await client.patch(PODS, name, objects.NAMESPACE, note)
    containers = [_with_cpu(first, item.cpu), *pod["spec"]["containers"][1:]]
    body = [
        {"op": "test", "path": "/metadata/uid", "value": pod["metadata"]["uid"]},
        {"op": "replace", "path": "/spec/containers", "value": containers},
    ]
    await client.patch(PODS, name, objects.NAMESPACE, JsonPatch(body))


async def charged(manager: KubeClient, slices: Iterable[Slice]) -> list[Slice]:
    """The slices with what each cluster has told that it adds to their pods."""
    known = [WorkerCluster.from_manifest(found) for found in (await manager.list(WORKERCLUSTERS)).items]
    return [reduce(lambda one, cluster: cluster.additions.charged(one), known, slice) for slice in slices]


def _defaults(random: Random, run_s: float) -> Iterator[Moment]:
    for cluster in random.sample(WORKERS, random.randint(1, len(WORKERS))):
        if random.random() < 0.7:
            yield Limit(at_s=_some_time(random, run_s), cluster=cluster, cpu=random.choice(_CPUS))
        if random.random() < 0.7:
            yield Overhead(at_s=_some_time(random, run_s), cluster=cluster, cpu=random.choice(_CPUS))
        if random.random() < 0.3:
            at_s = round(random.uniform(0, run_s), 2)
            yield Limit(at_s=at_s, cluster=cluster, cpu=random.choice((*_CPUS, "")))
        for _ in range(random.choice((0, 1, 3))):
            at_s, pick = round(random.uniform(0, run_s), 2), random.randrange(12)
            yield Resize(at_s=at_s, cluster=cluster, pick=pick, cpu=random.choice(_CPUS))


def _some_time(random: Random, run_s: float) -> float:
    """Before the first job in every second case: then it is known when that is admitted."""
    return 0.0 if random.random() < 0.5 else round(random.uniform(0, run_s), 2)


def _templates(node: object) -> Iterator[Manifest]:
    """Every pod template in a manifest."""
    if isinstance(node, dict):
        if isinstance(node.get("spec"), dict) and "containers" in node["spec"]:
            yield node
        for value in node.values():
            yield from _templates(value)
    elif isinstance(node, list):
        for value in node:
            yield from _templates(value)


def _is_resizable(pod: Manifest) -> bool:
    runs = pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    return runs and not is_gated(pod) and api_names.MANAGER_UID_LABEL in pod["metadata"].get("labels", {})


def _cpu(container: Manifest) -> str:
    return str(((container.get("resources") or {}).get("requests") or {}).get("cpu", ""))


def _with_cpu(container: Manifest, cpu: str) -> Manifest:
    """A container that requests so much cpu; empty for nothing."""
    resources = container.get("resources") or {}
    fields = {field: _without(resources.get(field) or {}, "cpu") for field in ("requests", "limits")}
    fields["requests"] |= {"cpu": cpu} if cpu else {}
    return container | {"resources": resources | fields}


def _without(amounts: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in amounts.items() if key != name}
