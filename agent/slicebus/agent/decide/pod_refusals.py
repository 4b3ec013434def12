"""Finds out why granted pods are not made, from the Events of the job's controller."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import itemgetter

from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS

_FORBIDDEN = " is forbidden: "
_LENGTH = 500
_MOST_BETWEEN = 8
"""The most objects between a job and its pods that are read: the Events of each cost a request."""
_RECENT = timedelta(minutes=15)
"""Older Events do not count. A controller tries again, and repeats its Event, after pauses of some minutes."""


def lacking(view: WorkerView) -> int:
    """How many of the wanted pods are not there, gated or not."""
    job = view.reading
    if job is None or not job.runs or view.scale_target is None:
        return 0
    present = {name: len(members.gated) + len(members.running) for name, members in view.pod_sets.items()}
    return sum(max(0, count - present.get(name, 0)) for name, count in view.desired.items())


def selectors(view: WorkerView) -> list[str]:
    """The field selectors of the Events on objects whose controllers say why they make no pods: the job, its scale
    targets, and some of those that have made pods of it, as the ReplicaSet of a Deployment has.

    The Job that submits a RayJob is known by its name only.
    """
    if view.job is None:
        return []
    uids = dict.fromkeys(manifest["metadata"]["uid"] for manifest in (view.job, *view.scale_targets))
    between = sorted({pod.owner_uid for pod in view.pods if pod.owner_uid} - uids.keys())
    names = KINDS[view.key.kind].own_jobs(view.job)
    about = [f"uid={uid}" for uid in (*uids, *between[:_MOST_BETWEEN])]
    about += [f"kind=Job,involvedObject.name={name}" for name in names]
    return [f"involvedObject.{fields},type=Warning" for fields in about]


def why(events: Iterable[Manifest], now: datetime, *, job: Manifest | None = None) -> str:
    """What the newest of these Events says about a pod that could not be made; empty where none says anything.

    Names of pods are left out, because every pod has another. Events from before this job are about an earlier one.
    """
    earliest = now - _RECENT
    if job is not None:
        earliest = max(earliest, datetime.fromisoformat(job["metadata"]["creationTimestamp"]))
    refusals = [
        (at, event.get("message", ""))
        for event in events
        if _is_refusal(event.get("reason", "")) and (at := _time_of(event)) >= earliest
    ]
    message = max(refusals, key=itemgetter(0), default=(now, ""))[1]
    return (message.partition(_FORBIDDEN)[2] or message)[:_LENGTH]


def _is_refusal(reason: str) -> bool:
    """`FailedCreate` of a Job, `FailedToCreateHeadPod` and `FailedToCreateWorkerPod` of a RayCluster."""
    return reason == "FailedCreate" or (reason.startswith("FailedToCreate") and reason.endswith("Pod"))


def _time_of(event: Manifest) -> datetime:
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    try:
        return datetime.fromisoformat(text or event["metadata"]["creationTimestamp"])
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
