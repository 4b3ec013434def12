"""Tenants of the manager's cluster who write our annotations onto their jobs, to have quota freed while their pods run.

Nothing follows from them: the rule on quota holds, and every job has the size in the end that its worker and its spec
say.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any

import msgspec

from simulation.later import with_later
from simulation.schedule import WORKERS, Moment, Schedule
from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.slices.api import api_names
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]
_FAR = 1_000_000
_OFTEN = (3, 6, 12)
_BYTES = ("", "{", "null", "[]", "0", "-1", "\u0000", '{"counts":{"":1}}', '{"version":"x"}', "9" * 40)


class Forged(Moment):
    """A tenant writes annotations of ours onto a job of its own."""

    kind: str
    pick: int
    lie: str
    text: str = ""
    """What it writes into all of them, where it has no better lie."""


def with_tenants(schedule: Schedule) -> Schedule:
    """The same run, on one of six with such tenants."""
    return with_later(schedule, "tenants", _lies)


async def forge(manager: KubeClient, item: Forged) -> None:
    """Play it."""
    resource = JOB_RESOURCES[item.kind]
    if jobs := (await manager.list(resource)).items:
        job = jobs[item.pick % len(jobs)]
        own = KINDS[item.kind].counts(job, job)
        notes = dict.fromkeys(_ALL, item.text) if item.lie == "bytes" else LIES[item.lie](own)
        body = MergePatch({"metadata": {"annotations": notes}})
        await manager.patch(resource, job["metadata"]["name"], objects.NAMESPACE, body)


def has_bytes(job: Manifest) -> bool:
    """Whether a tenant's text stands where the manager notes what a job cannot show. The next report puts it right."""
    return (job["metadata"].get("annotations") or {}).get(api_names.UNSHOWN_ANNOTATION) in _BYTES


def _lies(random: Random, run_s: float) -> Iterator[Forged]:
    if random.random() > 1 / 6:
        return
    for _ in range(random.choice(_OFTEN)):
        at_s, kind = round(random.uniform(0, run_s), 2), random.choice(("Job", "RayCluster", "RayJob"))
        lie, pick, text = random.choice((*LIES, "bytes")), random.randrange(100), random.choice(_BYTES)
        yield Forged(at_s=at_s, kind=kind, pick=pick, lie=lie, text=text if lie == "bytes" else "")


def _request(own: Mapping[str, int], counts: Mapping[str, int], **more: Any) -> dict[str, str]:
    record = {"counts": counts, "worker_uid": "forged", "worker_generation": _FAR, "baseline": own, "revision": _FAR}
    record |= {"correlation": "forged", "epoch": _FAR, "sequence": _FAR, "granted": counts} | more
    return {api_names.REQUESTED_ANNOTATION: msgspec.json.encode(record).decode()}


def _order(applied: int, **record: Any) -> dict[str, str]:
    text = msgspec.json.encode({"version": _FAR, "hash": api_names.ABSENT, "cluster": WORKERS[0]} | record).decode()
    return {api_names.DISPATCHED_ANNOTATION: text, api_names.APPLIED_ANNOTATION: str(applied)}


LIES: dict[str, Callable[[Mapping[str, int]], dict[str, str]]] = {
    "no pods": lambda own: _request(own, dict.fromkeys(own, 0)),
    "one pod": lambda own: _request(own, dict.fromkeys(own, 1)),
    "many pods": lambda own: _request(own, dict.fromkeys(own, 50)),
    "ended pods": lambda own: _request(own, dict.fromkeys(own, 0), finished=dict.fromkeys(own, 50)),
    "other pods": lambda own: _request(own, {"other": 1}),
    "withdrawn": lambda own: _order(_FAR),
    "on its way": lambda own: _order(0, hash="forged"),
    "suspended": lambda own: _order(_FAR, hash="forged", suspended=True),
    "an unknown end": lambda own: _order(_FAR, unknown_end=True),
    "vanished": lambda own: _order(_FAR, hash="forged", vanished=True),
    "copies left": lambda own: _order(_FAR, behind=dict.fromkeys(WORKERS, _FAR)),
}
"""What such a tenant writes, by the counts of its job's spec."""
_ALL = (
    api_names.REQUESTED_ANNOTATION,
    api_names.DISPATCHED_ANNOTATION,
    api_names.APPLIED_ANNOTATION,
    api_names.UNSHOWN_ANNOTATION,
    api_names.WAITING_ANNOTATION,
    api_names.UNHEEDED_ANNOTATION,
)
