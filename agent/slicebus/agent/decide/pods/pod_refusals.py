"""Finds out why granted pods are not made, from the Events and the conditions of the job's controllers."""

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from slicebus.agent.state.views import PodsRefusal, WorkerView
from slicebus.proto.messages import Manifest
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.names import group_of
from slicebus.slices.workload.waiting import (
    CONTROLLER_REFUSED,
    PODS_REFUSED,
    SPEC_REFUSED,
    without_details,
    without_pod_names,
)

_FORBIDDEN = " is forbidden: "
_INVALID = re.compile("Invalid|Validation")
"""Reasons of conditions and Events by which controllers refuse a spec: KubeRay's `InvalidRayClusterSpec` and
`ValidationFailed`, and their like."""
_FAILS = re.compile("Fail|Error|Reject|Refus|Denied|Forbidden|Timeout")
"""The same of a job that has no pods: KubeRay deletes those of a RayService past its `ray.io/initializing-timeout`, and
makes no others (`InitializingTimeout`)."""
_SAYS_SO = re.compile("Stalled|Degraded|Invalid|Fail|Error|Reject")
"""Conditions that say by `True` that a job without pods is refused: kstatus' `Stalled`, and their like."""
_ACCEPTED = "Accepted"
"""A condition that says so by `False`, whatever its reason."""
_OF_PODS, _NOT_MADE = "ReplicaFailure", "FailedCreate"
"""The condition about a pod, and its reason as a Deployment has it from its ReplicaSet. KubeRay writes that condition
for other reasons, such as `FailedCreateHeadPod`, with an Event about the pod that it could not make."""
OF_MAKERS = f"reason={_NOT_MADE},type=Warning"
"""The field selector of the Events that `of_makers` reads: a selector knows whole names only."""
_ADVICE = " spec warning "
"""In KubeRay's Event `InvalidRayClusterSpec` about a cluster that it runs all the same."""
_OWN_COMPONENTS = "slicebus-"
_EVER = datetime.min.replace(tzinfo=UTC)
_LENGTH = 500
_READ_LENGTH = 4 * _LENGTH
"""Of a message, what is read: the API server bounds none, and a tenant may write Events about its job."""
_MOST_BETWEEN = 8
"""The most objects between a job and its pods that are read: the Events of each cost a request."""
_BY_TURNS = timedelta(minutes=2)
"""A controller may say two things by turns of one object, at each try. Both count for so long."""
_RECENT = timedelta(minutes=15)
"""Older Events do not count. A controller tries again, and repeats its Event, after pauses of some minutes."""


def lacking(view: WorkerView) -> int:
    """How many of the wanted pods are not there, gated or not. A RayJob or a RayService without a cluster yet wants
    those that it was granted."""
    job = view.reading
    if job is None or not job.runs:
        return 0
    wanted = view.desired if view.scale_target is not None else job.granted
    present = {name: len(members.gated) + len(members.running) for name, members in view.pod_sets.items()}
    return sum(max(0, count - present.get(name, 0)) for name, count in wanted.items())


def is_without_pods(view: WorkerView) -> bool:
    """Whether no pod of the job is there, gated or not."""
    return not any(members.gated or members.running for members in view.pod_sets.values())


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


def of_makers(
    events: Iterable[Manifest],
    view: WorkerView,
    *,
    has_job: Callable[[str], bool],
    namesakes: Iterable[WorkerView] = (),
) -> list[Manifest]:
    """Those of the Events of `OF_MAKERS` about objects that are named after the job, as the ReplicaSet of a Deployment,
    the Jobs of a JobSet and the StatefulSets of a LeaderWorkerSet are: the newest of them, some at most. Without a pod
    nothing else tells whose they are.

    An object is of the job that has the longest name: `train-2-x7k2p` is of `train-2` where there is one. `has_job`
    says whether there is, in the job's namespace. Of `namesakes`, the jobs of other kinds with the same name, an object
    is by its kind or by its UID.
    """
    about: dict[str, list[Manifest]] = {}
    others = [_known_objects(other) for other in namesakes]
    for event in events:
        name = (event.get("involvedObject") or {}).get("name") or ""
        if _named_after(name, view.key.name, has_job) and not any(_is_about(event, known) for known in others):
            about.setdefault(_object_of(event), []).append(event)
    newest = sorted(about.values(), key=lambda of_one: max(map(_time_of, of_one)), reverse=True)
    return [event for of_one in newest[:_MOST_BETWEEN] for event in of_one]


def shortened(event: Manifest) -> Manifest:
    """An Event with as much of its message as is read."""
    message = event.get("message") or ""
    return event if len(message) <= _READ_LENGTH else event | {"message": message[:_READ_LENGTH]}


def why(events: Iterable[Manifest], now: datetime, *, view: WorkerView) -> PodsRefusal:
    """What the newest of these Events about each object say: about a pod that could not be made, or of a controller
    that makes none at all.

    The text is the same each time that the same is said: it has no names of pods, because every pod has another, and
    what is said about several objects comes in the order of the texts. Events from before this job are about an earlier
    one. A controller may refuse a job once, and tries to make a pod again and again.
    """
    created = _read_time(view.job["metadata"]["creationTimestamp"]) if view.job is not None else _EVER
    recent = max(created, now - _RECENT)
    said: dict[str, dict[str, list[tuple[datetime, str]]]] = {}
    for event in events:
        at, reason = _time_of(event), _refusal_of(event, view)
        if reason and at >= (recent if reason == PODS_REFUSED else created):
            of_object = said.setdefault(reason, {}).setdefault(_object_of(event), [])
            of_object.append((at, _text_of(event, reason, view)))
    if not said:
        return PodsRefusal()
    newest_of = {reason: max(at for texts in said[reason].values() for at, _ in texts) for reason in said}
    # What a controller has said of the job before it made pods is over.
    reason = max(newest_of, key=newest_of.__getitem__)
    present = {text for texts in said[reason].values() for text in _said_last(texts)}
    different = {without_details(text): text for text in sorted(present)}
    return PodsRefusal(reason, "; ".join(different[told] for told in sorted(different))[:_LENGTH])


def by_status(view: WorkerView) -> PodsRefusal:
    """What the conditions of the job, and of the objects made of it, say of a controller that refuses it, or of a pod
    that could not be made."""
    if view.job is None:
        return PodsRefusal()
    lacks = lacking(view) > 0
    is_without = lacks and is_without_pods(view)
    for manifest in (view.job, *view.scale_targets):
        for condition in conditions_of(manifest):
            reason, message = condition.get("reason") or "", (condition.get("message") or "")[:_READ_LENGTH]
            if lacks and condition.get("status") == "True" and (condition.get("type"), reason) == (_OF_PODS, _NOT_MADE):
                return PodsRefusal(PODS_REFUSED, _text_of_pod(message, view)[:_LENGTH])
            if _refuses(condition, is_without=is_without):
                return PodsRefusal(CONTROLLER_REFUSED if is_without else SPEC_REFUSED, f"{reason}: {message}"[:_LENGTH])
    return PodsRefusal()


def _refuses(condition: Manifest, *, is_without: bool) -> bool:
    """Whether a condition says that its job is refused. Of a job with pods only one about its spec does."""
    type, reason = condition.get("type") or "", condition.get("reason") or ""
    if type == _OF_PODS:
        return False
    if condition.get("status") == "False":
        is_meant = _INVALID.search(reason) or (is_without and (_FAILS.search(reason) or type == _ACCEPTED))
        return bool(is_meant)
    return is_without and condition.get("status") == "True" and _SAYS_SO.search(type) is not None


def _said_last(texts: list[tuple[datetime, str]]) -> Iterator[str]:
    """The texts of the Events about one object that are no older than the newest but for `_BY_TURNS`."""
    newest = max(at for at, _ in texts)
    return (text for at, text in texts if at > newest - _BY_TURNS)


def says_same(refusal: PodsRefusal, other: PodsRefusal | None) -> bool:
    """Whether two of these say the same to a reader: what differs from pod to pod and from try to try is not
    compared."""
    if other is None or refusal.reason != other.reason:
        return False
    return without_details(refusal.text) == without_details(other.text)


def _refusal_of(event: Manifest, view: WorkerView) -> str:
    """The reason of `REFUSED_THERE` that an Event stands for; empty for none.

    `FailedCreate` of a Job, `FailedToCreateHeadPod` and `FailedToCreateWorkerPod` of a RayCluster are about pods. Any
    other warning of a job without pods says why there are none; with pods only one about its spec does.
    """
    reason = event.get("reason") or ""
    if reason == _NOT_MADE or (reason.startswith("FailedToCreate") and reason.endswith("Pod")):
        return PODS_REFUSED
    if _ADVICE in (event.get("message") or ""):
        return ""
    source = (event.get("source") or {}).get("component") or event.get("reportingComponent") or ""
    if source.startswith(_OWN_COMPONENTS):
        return ""
    if is_without_pods(view):
        return CONTROLLER_REFUSED
    return SPEC_REFUSED if _INVALID.search(reason) else ""


def _text_of(event: Manifest, reason: str, view: WorkerView) -> str:
    message = event.get("message") or ""
    if reason == PODS_REFUSED:
        return _text_of_pod(message, view)
    return f"{event.get('reason')}: {without_pod_names(message, of=_names(view))}"


def _text_of_pod(message: str, view: WorkerView) -> str:
    """Why a pod could not be made, in words that are the same for each."""
    return without_pod_names(message.partition(_FORBIDDEN)[2] or message, of=_names(view))


def _names(view: WorkerView) -> list[str]:
    return [manifest["metadata"]["name"] for manifest in (view.job, *view.scale_targets) if manifest is not None]


def _named_after(name: str, job: str, has_job: Callable[[str], bool]) -> bool:
    """Whether an object's name is a job's, or begins with it and `-`, and with no longer one's."""
    if name != job and not name.startswith(f"{job}-"):
        return False
    parts = name[len(job) :].split("-")[1:]
    return not any(has_job("-".join((job, *parts[:count]))) for count in range(1, len(parts) + 1))


class _Known(NamedTuple):
    """What is known of the objects of a job."""

    group: str
    """The job's API group."""
    job: tuple[str, str]
    """Its kind and name."""
    uids: frozenset[str]
    """Those of the job, of its scale targets, and of what has made pods of it."""


def _known_objects(view: WorkerView) -> _Known:
    group = group_of(KINDS[view.key.kind].resource.api_version)
    makers = {pod.owner_uid for pod in view.pods if pod.owner_uid}
    return _Known(group, (view.key.kind, view.key.name), frozenset(view.own_uids | makers))


def _is_about(event: Manifest, known: _Known) -> bool:
    about = event.get("involvedObject") or {}
    version = about.get("apiVersion")
    is_named = (about.get("kind"), about.get("name")) == known.job and (not version or group_of(version) == known.group)
    return is_named or about.get("uid") in known.uids


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
        return _EVER
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
