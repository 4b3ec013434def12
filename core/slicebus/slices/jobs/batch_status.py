"""Fits the status of a worker's Job to the rules by which the manager's API server takes a status.

Source: Kubernetes 1.36, pkg/apis/batch/validation, `validateJobStatus` and `ValidateJobStatusUpdate` (KEP-4368). A
worker of another version, with another spec or another clock reports what breaks them: one of 1.30 writes no
SuccessCriteriaMet before Complete.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

Manifest = dict[str, Any]

_FAILS = "FailureTarget"
_BEFORE = {"Complete": "SuccessCriteriaMet", "Failed": _FAILS}
"""The condition that has to be there before, or with, the one that ends a Job."""
_REASONS = {"Complete": "CompletionsReached", "Failed": ""}
_OF_PODS = ("active", "ready", "terminating", "uncountedTerminatedPods")
"""The fields that say nothing of a Job which has ended, or that there is no pod."""
_ALL_INDEXES = re.compile(r"0(?:,(1)|-([1-9][0-9]{0,8}))?")
"""All indexes from the first one. Kubernetes writes two of them as `0,1`."""
_MOST_INDEXES = 100_000
"""Kubernetes' own limit for the parallelism of an Indexed Job."""


def fitted(job: Manifest, reported: Manifest) -> Manifest:
    """The reported status, as far as the API server takes it for this Job.

    No counter falls, and the start of a Job that is not suspended stays: a Job that is made anew, on another cluster or
    where it was lost, begins both again. Only the successes of an elastic Indexed Job may fall: a resize may take its
    last indexes away.
    """
    shown, status, spec = job.get("status", {}), dict(reported), job["spec"]
    is_elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    counters = ("failed",) if is_elastic else ("succeeded", "failed")
    status |= {name: shown[name] for name in counters if shown.get(name, 0) > reported.get(name, 0)}
    if "startTime" in shown and not job["spec"].get("suspend"):
        status["startTime"] = shown["startTime"]
    _fit_conditions(shown, status)
    _fit_indexes(job["spec"], status)
    if status.get("ready", 0) > status.get("active", 0):
        status["ready"] = status.get("active", 0)
    _fit_times(status)
    return status


def complete_indexes(status: Manifest) -> int | None:
    """How many indexes a complete Job has, if all from the first one have succeeded; None where nobody knows."""
    text = status.get("completedIndexes")
    match = _ALL_INDEXES.fullmatch(text) if isinstance(text, str) else None
    if match is None or "Complete" not in _true(status):
        return None
    number = int(match[1] or match[2] or 0) + 1
    return number if number <= _MOST_INDEXES else None


def succeeded_indexes(status: Manifest, *, below: int) -> frozenset[int]:
    """The indexes below a number that have succeeded; none where nobody can read them."""
    return _indexes(status.get("completedIndexes"), below)


def failed_indexes(status: Manifest, *, below: int) -> frozenset[int]:
    """The indexes below a number that have failed for good; none where nobody can read them."""
    return _indexes(status.get("failedIndexes"), below)


def last_index(text: object) -> int:
    """The last index of a text such as `0,3-5`; -1 where it has none, or nobody can read it."""
    try:
        return max((high for _, high in _intervals(_MOST_INDEXES, text)), default=-1) if isinstance(text, str) else -1
    except ValueError:
        return -1


def _indexes(text: object, below: int) -> frozenset[int]:
    try:
        intervals = [*_intervals(below, text)] if isinstance(text, str) else []
    except ValueError:
        return frozenset()
    return frozenset(chain.from_iterable(range(low, high + 1) for low, high in intervals))


def _fit_conditions(shown: Manifest, status: Manifest) -> None:
    """Keep what cannot be taken back, add what has to precede an end, with its times, and drop pods that an ended Job
    does not have.

    That a Job fails is shown with its end: where its cluster is lost before, it may succeed on another one, and nothing
    could show that.
    """
    kept, end = _true(shown), _end_of(status)
    if end is None and _FAILS in _true(status) and _FAILS not in kept:
        status["conditions"] = [entry for entry in status["conditions"] if entry["type"] != _FAILS]
    missing = [kept[name] for name in _BEFORE.values() if name in kept and name not in _true(status)]
    if end is not None and (before := _BEFORE[end["type"]]) not in {**kept, **_true(status)}:
        missing.append(end | {"type": before, "reason": _REASONS[end["type"]] or end.get("reason", "")})
    if missing:
        added = {entry["type"] for entry in missing}
        others = [entry for entry in status.get("conditions") or () if entry["type"] not in added]
        status["conditions"] = [*missing, *others]
    if end is None:
        return
    for name in _OF_PODS:
        if status.get(name):
            del status[name]


def _fit_indexes(spec: Manifest, status: Manifest) -> None:
    """Keep the indexes below the completions: those of the worker's Job may be others."""
    indexed = spec.get("completionMode") == "Indexed"
    most = spec.get("completions", 0)
    for name, allowed in (("completedIndexes", indexed), ("failedIndexes", indexed and "backoffLimitPerIndex" in spec)):
        if name not in status:
            continue
        kept = _below(most, status[name]) if allowed else ""
        if kept or (allowed and name == "failedIndexes"):
            status[name] = kept
        else:
            del status[name]


def _fit_times(status: Manifest) -> None:
    """Give an ended Job the times that it needs, and no other Job an end. Clocks of clusters differ."""
    end = _end_of(status)
    if end is None or end["type"] != "Complete":
        status.pop("completionTime", None)
    if end is None:
        return
    ended_at = status.get("completionTime") or end.get("lastTransitionTime")
    if ended_at and "startTime" not in status:
        status["startTime"] = ended_at
    if end["type"] == "Complete" and (at := max(filter(None, (ended_at, status.get("startTime"))), default=None)):
        status["completionTime"] = at


def _true(status: Manifest) -> dict[str, Manifest]:
    """The conditions that are True, by type."""
    return {entry["type"]: entry for entry in status.get("conditions") or () if entry.get("status") == "True"}


def _end_of(status: Manifest) -> Manifest | None:
    """The condition that ends the Job."""
    met = _true(status)
    return next((met[name] for name in _BEFORE if name in met), None)


def _below(most: int, text: str) -> str:
    """The indexes of a text such as `0,3-5` that are below a number; a text that cannot be read has none."""
    try:
        return ",".join(f"{low}-{high}" if low < high else str(low) for low, high in _intervals(most, text))
    except ValueError:
        return ""


def _intervals(most: int, text: str) -> Iterator[tuple[int, int]]:
    """The first and the last index of each interval below a number. Raises ValueError, also where they do not ascend as
    Kubernetes writes them: all of them together are no more indexes than there are."""
    before = -1
    for interval in filter(None, text.split(",")):
        first, _, last = interval.partition("-")
        low, high = int(first), min(int(last or first), most - 1)
        if low <= before:
            raise ValueError(f"index {low} after {before}")
        before = max(low, high)
        if low <= high:
            yield low, high
