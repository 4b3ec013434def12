"""Reads for how long a job may run, and has run: its `maximumExecutionTimeSeconds`, as Kueue has it.

Time without quota does not count; time before a resize or an earlier eviction does. A resize makes another Workload,
which says since when the job runs.
"""

from datetime import datetime, timedelta
from typing import Any

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import WORKLOADS
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.jobs.base import Problem
from slicebus.slices.workload.workload import Slice

_MOST_S = 2**31 - 1
"""Kueue's field is an int32."""


def problems(job: Manifest) -> list[Problem]:
    """The problem of a label that is no time; none where there is no label."""
    text = _label(job)
    if text is None or _seconds(text) is not None:
        return []
    message = f"the label {kueue.MAX_EXECUTION_TIME_LABEL} is no number of seconds from 1: {text!r}"
    return [Problem("InvalidMaximumExecutionTime", message)]


def fields(job: Manifest) -> tuple[dict[str, str], Manifest]:
    """The labels and the fields of the spec that a job's Workload has for it; both empty where the job has no limit."""
    text = _label(job)
    seconds = _seconds(text) if text is not None else None
    if text is None or seconds is None:
        return {}, {}
    return {kueue.MAX_EXECUTION_TIME_LABEL: text}, {"maximumExecutionTimeSeconds": seconds}


def kept(workload: Manifest) -> tuple[dict[str, str], Manifest]:
    """The same of the Workload that replaces this one: the limit stays while the job has quota."""
    text, seconds = _label(workload), limit_s(workload)
    labels = {kueue.MAX_EXECUTION_TIME_LABEL: text} if text is not None else {}
    return labels, {"maximumExecutionTimeSeconds": seconds} if seconds is not None else {}


def copied(view: JobView, job: Manifest) -> list[Command]:
    """Copy another label of the job onto its slices that wait: Kueue's schema forbids another limit while a Workload
    has quota. A limit that somebody gave a Workload itself stays."""
    labels, spec = fields(job)
    wanted = labels.get(kueue.MAX_EXECUTION_TIME_LABEL)
    if problems(job) or any(slice.admission is not None for slice in view.unfinished):
        return []
    body = {
        "metadata": {"labels": {kueue.MAX_EXECUTION_TIME_LABEL: wanted}},
        "spec": {"maximumExecutionTimeSeconds": spec.get("maximumExecutionTimeSeconds")},
    }
    return [
        Patch(resource=WORKLOADS, target=workload, body=body)
        for workload in map(view.workload, view.unfinished)
        if _label(workload) != wanted
    ]


def is_unheeded(view: JobView, job: Manifest) -> bool:
    """Whether the job has another label than the Workload that has its quota."""
    return view.holder is not None and not problems(job) and _label(view.workload(view.holder)) != _label(job)


def begun(workload: Manifest, slice: Slice) -> datetime | None:
    """Since when a slice has run, as if it had run without a pause; None without quota."""
    reserved = slice.conditions.get(Condition.QUOTA_RESERVED, {})
    if reserved.get("status") != "True":
        return None
    said = _time(annotation(workload, api_names.RUNNING_SINCE_ANNOTATION) or "")
    before = (workload.get("status") or {}).get("accumulatedPastExecutionTimeSeconds")
    # What it says of the job counts until it has given its quota back once, also while it is first evicted.
    was_given_back = before is not None or slice.conditions.get(Condition.EVICTED, {}).get("status") == "False"
    if said is not None and not was_given_back:
        return said
    return datetime.fromisoformat(reserved["lastTransitionTime"]) - timedelta(seconds=before or 0)


def said_by(replaced: Manifest, slice: Slice) -> dict[str, str]:
    """The annotation by which the Workload that replaces a slice with a limit says since when the job runs."""
    since = begun(replaced, slice) if limit_s(replaced) is not None else None
    return {api_names.RUNNING_SINCE_ANNOTATION: since.isoformat(timespec="seconds")} if since is not None else {}


def given_back(workload: Manifest, slice: Slice) -> dict[str, Any]:
    """The part of the status that says how long an evicted slice has run in all; none where it has no limit."""
    evicted, since = slice.conditions[Condition.EVICTED], begun(workload, slice)
    if limit_s(workload) is None or since is None:
        return {}
    if evicted.get("reason") == EvictionReason.EXECUTION_TIME:
        return {"accumulatedPastExecutionTimeSeconds": 0}
    ran = datetime.fromisoformat(evicted["lastTransitionTime"]) - since
    return {"accumulatedPastExecutionTimeSeconds": max(0, round(ran.total_seconds()))}


def left_s(view: JobView, *, now: str) -> float | None:
    """How long the job may still run; None without a limit, or without quota."""
    holder = view.holder
    if holder is None:
        return None
    workload = view.workload(holder)
    limit, since = limit_s(workload), begun(workload, holder)
    if limit is None or since is None:
        return None
    return limit - (datetime.fromisoformat(now) - since).total_seconds()


def limit_s(workload: Manifest) -> int | None:
    """The limit of a Workload; None for none."""
    seconds: int | None = workload["spec"].get("maximumExecutionTimeSeconds")
    return seconds


def _label(manifest: Manifest) -> str | None:
    text: str | None = (manifest["metadata"].get("labels") or {}).get(kueue.MAX_EXECUTION_TIME_LABEL)
    return text


def _seconds(text: str) -> int | None:
    """The seconds that a label says; None where it says none. A number has at most ten digits here."""
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    seconds = int(text)
    return seconds if 1 <= seconds <= _MOST_S else None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
