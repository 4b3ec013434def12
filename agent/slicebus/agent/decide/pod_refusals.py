"""Finds out why granted pods are not made, from the Events of the job's controller."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.waiting import without_details, without_pod_names

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


def why(events: Iterable[Manifest], now: datetime, *, view: WorkerView) -> str:
    """What the newest of these Events about each object says about a pod that could not be made; empty where none says
    anything.

    The text is the same each time that the same is said: it has no names of pods, because every pod has another, and
    what is said about several objects comes in the order of the texts. Events from before this job are about an earlier
    one.
    """
    earliest = now - _RECENT
    if view.job is not None:
        earliest = max(earliest, _read_time(view.job["metadata"]["creationTimestamp"]))
    newest: dict[str, tuple[datetime, str]] = {}
    for event in events:
        at, about = _time_of(event), _object_of(event)
        is_newer = about not in newest or at > newest[about][0]
        if _is_refusal(event.get("reason", "")) and at >= earliest and is_newer:
            newest[about] = at, event.get("message") or ""
    names = [manifest["metadata"]["name"] for manifest in (view.job, *view.scale_targets) if manifest is not None]
    texts = [without_pod_names(message.partition(_FORBIDDEN)[2] or message, of=names) for _, message in newest.values()]
    different = {without_details(text): text for text in sorted(texts)}
    return "; ".join(different[told] for told in sorted(different))[:_LENGTH]


def says_same(text: str, other: str) -> bool:
    """Whether two of these texts say the same to a reader: what differs from pod to pod and from try to try is not
    compared."""
    return without_details(text) == without_details(other)


def _is_refusal(reason: str) -> bool:
    """`FailedCreate` of a Job, `FailedToCreateHeadPod` and `FailedToCreateWorkerPod` of a RayCluster."""
    return reason == "FailedCreate" or (reason.startswith("FailedToCreate") and reason.endswith("Pod"))


def _object_of(event: Manifest) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '')}/{about.get('name', '')}/{about.get('uid', '')}"


def _time_of(event: Manifest) -> datetime:
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return _read_time(text or event["metadata"]["creationTimestamp"])


def _read_time(text: str) -> datetime:
    """The time, in UTC where it names no zone; the earliest one where nobody can read it."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
