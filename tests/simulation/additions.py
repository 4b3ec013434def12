"""Workers whose webhooks inject containers that no template shows, and the rule on what their pods are charged for.

A manager learns of them when the first pod is seen. From then on what the pods of a job request is never more than what
the job is charged for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

from simulation import defaults
from simulation.later import with_later
from simulation.queues import flavor_of
from simulation.schedule import WORKERS, Moment, Schedule
from simulation.violations import Violation
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import NAMESPACES
from slicebus.sandbox.apiserver.pod_admission import SIDECAR_ANNOTATION, SIDECAR_NAME
from slicebus.slices.quota.quota import FlavorResource, Usage
from slicebus.slices.workload.pod_requests import pod_requests
from slicebus.slices.workload.workload import FlavorName

Manifest = dict[str, Any]
_SIDECARS = ("250m", "500m", "1", "")


class Inject(Moment):
    """From now on a worker's webhook injects a container that requests so much cpu; empty for none."""

    cluster: str
    cpu: str


def with_additions(schedule: Schedule) -> Schedule:
    """The same run, on one of six with such a worker."""
    return with_later(schedule, "additions", _additions)


def _additions(random: Random, run_s: float) -> Iterator[Inject]:
    if random.random() > 1 / 6:
        return
    cluster = random.choice(WORKERS)
    yield Inject(at_s=round(random.uniform(0, run_s / 2), 2), cluster=cluster, cpu=random.choice(_SIDECARS[:-1]))
    if random.random() < 0.5:
        yield Inject(at_s=round(random.uniform(run_s / 2, run_s), 2), cluster=cluster, cpu=random.choice(_SIDECARS))


def are_in(schedule: Schedule) -> bool:
    """Whether pods of a run may request more than their templates."""
    return defaults.are_in(schedule) or any(isinstance(item, Inject) for item in schedule.items)


async def inject(client: KubeClient, item: Inject) -> None:
    """Play it."""
    body = MergePatch({"metadata": {"annotations": {SIDECAR_ANNOTATION: item.cpu or None}}})
    await client.patch(NAMESPACES, objects.NAMESPACE, "", body)


def of_template(pod: Manifest) -> Usage:
    """What a pod requests of its flavor by its template, without what its cluster has added."""
    spec = defaults.of_template(pod)
    own = [container for container in spec["containers"] if container["name"] != SIDECAR_NAME]
    return _in_flavor(pod, spec | {"containers": own})


def check_charge(name: str, pods: Iterable[Manifest], charged: Usage) -> None:
    """Once the manager has seen the pods, they request no more than their job is charged for. Pods whose templates
    request nothing were given no flavor: any may be charged for them."""
    used = Counter[FlavorResource]()
    for pod in pods:
        used.update(_in_flavor(pod, pod["spec"]))
    past = {key: value for key, value in used.items() if key[0] and value > charged.get(key, 0)}
    if past or any(_of(used, resource) > _of(charged, resource) for _, resource in used):
        raise Violation(f"converged: the pods of {name} request {dict(used)}, it is charged for {charged}")


def _of(usage: Usage, resource: str) -> int:
    """What is used of a resource in all flavors."""
    return sum(value for (_, one), value in usage.items() if one == resource)


def _in_flavor(pod: Manifest, spec: Manifest) -> Usage:
    flavor = FlavorName(flavor_of(pod["spec"].get("nodeSelector") or {}))
    return {(flavor, resource): value for resource, value in pod_requests(spec).items()}
