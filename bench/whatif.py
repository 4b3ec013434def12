"""How long `slicebus whatif` takes for a recorded day of 10,000 jobs on 10 clusters, on one core.

    python bench/whatif.py [--jobs 10000] [--clusters 10]

The journal is made here: jobs of six shapes come at random, more than there is quota for in the day's busy hours, and
get quota first come first served where it is enough. It is read, the unchanged policy is played, and one with 20% more.
"""

import argparse
import heapq
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import figures
import msgspec
from figures import Figure, Target

from slicebus.bus.contract import Record
from slicebus.journal.recording import (
    Decided,
    Gone,
    Put,
    Source,
    encode_batch,
    encode_record,
    encode_snapshot_part,
)
from slicebus.kube.times import time_text
from slicebus.manager.decide.whatif.answer import reproduction
from slicebus.manager.decide.whatif.hypotheses import QuotaChange, amount_change
from slicebus.manager.decide.whatif.play import Play
from slicebus.manager.decide.whatif.recorded_past import PastReader, RecordedPast

Manifest = dict[str, Any]
LIMIT = Target(120.0)
BEGAN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
DAY_S = 86_400.0
QUEUES = tuple(f"queue-{number}" for number in range(5))
_PODS = (1, 2, 4, 8, 16, 32)
_USE = 0.9
"""Of the quota, over the whole day."""
_WORKLOADS = "workloads.kueue.x-k8s.io"
_LEADER = Source(role="manager", cluster="", epoch=1)


class Job(msgspec.Struct):
    """A job of a day, in seconds from its beginning."""

    number: int
    arrives: float
    queue: str
    pods: int
    run_s: float


def jobs_of(random: Random, count: int) -> list[Job]:
    """The jobs of a day, in order. Twice as many come in each hour of its busy half."""
    jobs = []
    for number in range(count):
        busy = random.random() < 2 / 3
        arrives = random.uniform(0.25, 0.75) if busy else random.choice((-0.25, 0.75)) + random.random() / 2
        arrives = DAY_S * (arrives % 1.0)
        run_s = min(random.expovariate(1 / 1800), 14_400) + 30
        jobs.append(Job(number, arrives, random.choice(QUEUES), random.choice(_PODS), run_s))
    jobs.sort(key=lambda job: job.arrives)
    # Of those of one second the UID decides, which has the number.
    return [msgspec.structs.replace(job, number=number) for number, job in enumerate(jobs)]


def decided(jobs: list[Job], quota: int) -> list[tuple[float, str, Job]]:
    """What happens to them, in order: each queue has so much quota, and passes those that are too large."""
    free, waiting = dict.fromkeys(QUEUES, quota), {queue: list[Job]() for queue in QUEUES}
    events = [(job.arrives, 1, job.number, job) for job in jobs]
    happened = list[tuple[float, str, Job]]()
    heapq.heapify(events)
    while events:
        at, is_arrival, _, job = heapq.heappop(events)
        if is_arrival:
            happened.append((at, "arrives", job))
            waiting[job.queue].append(job)
        else:
            happened.append((at, "ends", job))
            free[job.queue] += job.pods
        for candidate in list(waiting[job.queue]) if free[job.queue] else ():
            if candidate.pods <= free[job.queue]:
                free[job.queue] -= candidate.pods
                waiting[job.queue].remove(candidate)
                happened.append((at, "admitted", candidate))
                heapq.heappush(events, (at + candidate.run_s, 0, candidate.number, candidate))
    return [each for each in happened if each[0] <= DAY_S]


def journal(jobs: list[Job], *, clusters: int, quota: int) -> Iterator[Record]:
    """The manager's recording of that day."""
    policies = [encode_record(Put(of=of, object=_stored(manifest))) for of, manifest in _policies(clusters, quota)]
    batches = [(0.0, [encode_snapshot_part(0, policies, last=True)])]
    for at, what, job in decided(jobs, quota):
        batches.append((at, [*map(encode_record, _changes(at, what, job)), encode_record(_decision(at))]))
    batches.append((DAY_S, [encode_record(_decision(DAY_S))]))
    for number, (at, records) in enumerate(batches):
        moment = datetime.fromtimestamp(BEGAN + at, UTC)
        message = encode_batch(_LEADER, number, records, user="manager", at=moment)
        yield Record(offset=number, message=message, timestamp=moment)


def _stored(manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"]
    return {**manifest, "metadata": {**metadata, "uid": metadata["name"], "resourceVersion": "1"}}


def _decision(at: float) -> Decided:
    return Decided(what="cycle", at=BEGAN + at, arguments=msgspec.Raw(b"{}"))


def _changes(at: float, what: str, job: Job) -> Iterator[Put | Gone]:
    name = f"job-{job.number}"
    if what == "ends":
        yield Gone(of=_WORKLOADS, namespace="team", name=name)
        return
    status: Manifest = {}
    if what == "admitted":
        shown = {"status": "True", "lastTransitionTime": _time(at), "reason": "QuotaReserved", "message": ""}
        usage = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": job.pods}, "count": job.pods}
        status = {
            "admission": {"clusterQueue": job.queue, "podSetAssignments": [usage]},
            "clusterName": "cluster-0",
            "conditions": [{"type": "QuotaReserved", **shown}],
        }
    containers = [{"name": "main", "image": "main", "resources": {"requests": {"cpu": "1"}}}]
    pod_set = {"name": "main", "count": job.pods, "template": {"spec": {"containers": containers}}}
    metadata = {
        "namespace": "team",
        "name": name,
        "uid": f"{job.number:08}",
        "creationTimestamp": _time(job.arrives),
        "labels": {"kueue.x-k8s.io/job-uid": f"job-{job.number:08}"},
    }
    manifest = {"metadata": metadata, "spec": {"queueName": job.queue, "podSets": [pod_set]}, "status": status}
    yield Put(of=_WORKLOADS, object=manifest)


def _policies(clusters: int, quota: int) -> Iterator[tuple[str, Manifest]]:
    yield "namespaces", {"metadata": {"name": "team"}}
    yield "resourceflavors.kueue.x-k8s.io", {"metadata": {"name": "default"}, "spec": {}}
    for queue in QUEUES:
        flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": quota}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [flavor]}]
        spec: Manifest = {"namespaceSelector": {}, "resourceGroups": groups}
        yield "clusterqueues.kueue.x-k8s.io", {"metadata": {"name": queue}, "spec": spec}
        metadata = {"namespace": "team", "name": queue}
        yield "localqueues.kueue.x-k8s.io", {"metadata": metadata, "spec": {"clusterQueue": queue}}
    for number in range(clusters):
        room = {"default": {"cpu": str(2 * quota * len(QUEUES) // clusters)}}
        conditions = [{"type": "Connected", "status": "True", "lastTransitionTime": _time(0)}]
        yield (
            "workerclusters.slicebus.dev",
            {
                "metadata": {"name": f"cluster-{number}"},
                "spec": {"accepted": True},
                "status": {"capacity": room, "conditions": conditions},
            },
        )


def _time(at: float) -> str:
    return time_text(datetime.fromtimestamp(BEGAN + at, UTC))


def measured(count: int, clusters: int) -> list[Figure]:
    """What reading and two plays take, in processor time."""
    jobs = jobs_of(Random(count), count)
    quota = max(max(_PODS), int(sum(job.pods * job.run_s for job in jobs) / DAY_S / len(QUEUES) / _USE))
    records = list(journal(jobs, clusters=clusters, quota=quota))
    began = time.process_time()
    past = past_of(records)
    read = time.process_time()
    unchanged = Play(past)
    unchanged.run()
    played = time.process_time()
    change = QuotaChange(text="+20%", queue=QUEUES[0], resource="cpu", amount=amount_change("+20%"))
    more = Play(past, [change])
    more.run()
    ended = time.process_time()
    found = reproduction(past.was, unchanged.chronicle)
    size = f"{count:,} jobs on {clusters} clusters"
    return [
        Figure.of(
            f"{size}: read, and two plays", ended - began, "s", beside="limit", beside_value=LIMIT.limit, target=LIMIT
        ),
        Figure.of(f"{size}: read", read - began, "s"),
        Figure.of(f"{size}: the unchanged policy", played - read, "s"),
        Figure.of(f"{size}: 20% more quota of one queue", ended - played, "s"),
        Figure.of(f"{size}: cycles", unchanged.cycles, "cycles"),
        Figure.of(f"{size}: most jobs that wait at once", _most_waiting(past), "jobs"),
        Figure.of(f"{size}: admissions within 5 s", 100 * found.share, "%", target=Target(95, is_least=True)),
    ]


def past_of(records: Iterable[Record]) -> RecordedPast:
    """What the records tell."""
    reader = PastReader(None)
    for record in records:
        reader.feed(record)
    past = reader.past()
    assert past is not None
    return past


def _most_waiting(past: RecordedPast) -> float:
    curves = [curve.means(past.until) for curve in past.was.waiting.values()]
    return max(map(sum, zip(*curves, strict=True)), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--clusters", type=int, default=10)
    figures.add_argument(parser)
    given = parser.parse_args()
    return figures.report(measured(given.jobs, given.clusters), json=given.json)


if __name__ == "__main__":
    sys.exit(main())
