"""Pods of Jobs succeed one by one, while the rest of their Job goes on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from simulation.schedule import Moment, Seed, Submit, Succeed
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import PODS
from slicebus.slices.api import api_names
from slicebus.slices.jobs.batch import JOB_NAME_LABEL

Manifest = dict[str, Any]

_SIZES = (2, 3, 4)
_MORE = (0, 0, 1, 2)


def with_completions(seed: Seed, moments: Iterable[Moment]) -> Iterator[Moment]:
    """The same, but that most Jobs have completions, as many as pods or a few more, and several pods."""
    random = Random(f"{seed}/completions")
    for item in moments:
        if isinstance(item, Submit) and item.kind == "Job" and not item.ends and random.random() < 2 / 3:
            size = random.choice(_SIZES)
            yield msgspec.structs.replace(item, size=size, completions=size + random.choice(_MORE))
        else:
            yield item


def successes_of(seed: Seed, run_s: float) -> Iterator[Succeed]:
    """On every second run."""
    random = Random(f"{seed}/successes")
    if random.random() < 0.5:
        return
    for _ in range(random.randint(10, 40)):
        at_s = round(random.uniform(2, run_s), 2)
        yield Succeed(at_s=at_s, pick=random.randrange(12), count=random.choice((1, 1, 2, 3)))


async def succeed(clients: Iterable[KubeClient], item: Succeed) -> None:
    """Pods of some Job end well, if any run."""
    running: dict[str, list[tuple[KubeClient, Manifest]]] = {}
    for client in clients:
        for pod in (await client.list(PODS, namespace=objects.NAMESPACE)).items:
            labels, status = pod["metadata"].get("labels", {}), pod.get("status", {})
            if "deletionTimestamp" in pod["metadata"]:
                continue
            if JOB_NAME_LABEL in labels and status.get("phase") == "Running":
                running.setdefault(labels.get(api_names.MANAGER_UID_LABEL, ""), []).append((client, pod))
    running.pop("", None)
    # One that goes on without them, if there is one.
    chosen = [pods for pods in running.values() if len(pods) > item.count] or [*running.values()]
    if not chosen:
        return
    for client, pod in chosen[item.pick % len(chosen)][: item.count]:
        await end_well(client, pod)


async def end_due(
    client: KubeClient, run_s: Mapping[str, float], began: dict[str, float], *, clock: Callable[[], float]
) -> None:
    """End well the pods of each Job that have run for its time. `began` notes when the first pod of each was seen."""
    for pod in (await client.list(PODS, namespace=objects.NAMESPACE)).items:
        job = pod["metadata"]["labels"][JOB_NAME_LABEL]
        if pod.get("status", {}).get("phase") != "Running" or "deletionTimestamp" in pod["metadata"]:
            continue
        if clock() - began.setdefault(job, clock()) >= run_s[job]:
            await end_well(client, pod)


async def end_well(client: KubeClient, pod: Manifest) -> None:
    """A pod that runs succeeds."""
    metadata = pod["metadata"]
    body = {"metadata": {"uid": metadata["uid"]}, "status": {"phase": "Succeeded", "conditions": []}}
    await client.patch(PODS, metadata["name"], metadata["namespace"], MergePatch(body), subresource="status")
