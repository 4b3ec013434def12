"""The rules for the status of a Job, whoever writes it: Kubernetes 1.36, pkg/apis/batch/validation and the options of
pkg/registry/batch/job (KEP-4368). A rule is asked only where the write changes what it is about."""

from collections.abc import Iterator
from typing import Any

Manifest = dict[str, Any]

_TERMINAL = ("Failed", "Complete", "FailureTarget")
_COUNTERS = ("active", "succeeded", "failed", "ready", "terminating")


class _Status:
    """A status, and what the rules ask of it."""

    def __init__(self, status: Manifest) -> None:
        self.fields = status
        self.true = {entry["type"] for entry in status.get("conditions") or () if entry["status"] == "True"}
        self.complete, self.failed = "Complete" in self.true, "Failed" in self.true
        self.finished = self.complete or self.failed
        self.uncounted = sum(map(len, (status.get("uncountedTerminatedPods") or {}).values()))

    def get(self, name: str) -> Any:
        return self.fields.get(name)

    def count(self, name: str) -> int:
        return int(self.fields.get(name) or 0)


def problems(spec: Manifest, before: Manifest, after: Manifest) -> Iterator[str]:
    """Why the API server refuses this change of a Job's status."""
    old, new = _Status(before), _Status(after)
    for name in _COUNTERS:
        if new.count(name) < 0:
            yield f"status.{name}: Invalid value: {new.count(name)}: must be greater than or equal to 0"
    yield from _of_conditions(spec, old, new)
    if old.finished != new.finished or _changes(old, new, *_COUNTERS, "startTime", "uncountedTerminatedPods"):
        yield from _of_end(spec, old, new)
    yield from _of_times(spec, old, new)
    yield from _of_indexes(spec, old, new)
    yield from _of_counters(spec, old, new)


def _of_conditions(spec: Manifest, old: _Status, new: _Status) -> Iterator[str]:
    where, met = "status.conditions: Invalid value", "SuccessCriteriaMet"
    for name in (name for name in _TERMINAL if name in old.true - new.true):
        yield f"{where}: cannot disable the terminal {name}=True condition"
    if met in old.true - new.true:
        yield f"{where}: cannot disable the SuccessCriteriaMet=True condition"
    if old.complete and met in new.true - old.true:
        yield f"{where}: cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
    if new.complete and new.failed and (old.complete, old.failed) != (True, True):
        yield f"{where}: cannot set Complete=True and Failed=true conditions"
    if new.complete and "FailureTarget" in new.true:
        yield f"{where}: cannot set Complete=True and FailureTarget=true conditions"
    if new.failed and "FailureTarget" not in new.true and old.failed != new.failed:
        yield f"{where}: cannot set Failed=True condition without the FailureTarget=true condition"
    if new.complete and met not in new.true and not old.complete:
        yield f"{where}: cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
    for other in ("Failed", "FailureTarget"):
        if met in new.true and other in new.true:
            yield f"{where}: cannot set SuccessCriteriaMet=True and {other}=true conditions"


def _of_end(spec: Manifest, old: _Status, new: _Status) -> Iterator[str]:
    if not new.finished:
        return
    for name in ("active", "terminating"):
        if new.count(name) > 0:
            yield f"status.{name}: Invalid value: {new.count(name)}: {name}>0 is invalid for finished job"
    if new.get("startTime") is None and not (spec.get("suspend") and spec.get("completions") == 0):
        yield "status.startTime: Required value: startTime is required for finished job"
    if new.uncounted:
        yield "status.uncountedTerminatedPods: Invalid value: must be empty for finished job"


def _of_times(spec: Manifest, old: _Status, new: _Status) -> Iterator[str]:
    start, end = new.get("startTime"), new.get("completionTime")
    if old.get("startTime") is not None and start != old.get("startTime") and not spec.get("suspend"):
        yield "status.startTime: Invalid value: field is immutable for unsuspended job once set"
    if end is not None and old.get("completionTime") not in (None, end):
        yield "status.completionTime: Invalid value: field is immutable"
    if start is not None and end is not None and end < start and _changes(old, new, "startTime", "completionTime"):
        yield "status.completionTime: Invalid value: must be equal to or after `startTime`"
    if old.complete == new.complete and not _changes(old, new, "completionTime"):
        return
    if end is not None and not new.complete:
        yield "status.completionTime: Invalid value: cannot set completionTime when there is no Complete=True condition"
    if end is None and new.complete:
        yield "status.completionTime: Required value: completionTime is required for Complete jobs"


def _of_indexes(spec: Manifest, old: _Status, new: _Status) -> Iterator[str]:
    completed, failed, most = new.get("completedIndexes") or "", new.get("failedIndexes"), spec.get("completions")
    if _changes(old, new, "completedIndexes"):
        if completed and spec.get("completionMode") != "Indexed":
            yield "status.completedIndexes: Invalid value: cannot set non-empty completedIndexes"
        if most is not None and (problem := misread(completed, most)):
            yield f"status.completedIndexes: Invalid value: error parsing completedIndexes: {problem}"
    if _changes(old, new, "failedIndexes") and failed is not None:
        if "backoffLimitPerIndex" not in spec:
            yield "status.failedIndexes: Invalid value: cannot set non-null failedIndexes"
        elif most is not None and (problem := misread(failed, most)):
            yield f"status.failedIndexes: Invalid value: error parsing failedIndexes: {problem}"
    if _changes(old, new, "completedIndexes", "failedIndexes") and indexes(completed) & indexes(failed or ""):
        yield "status.failedIndexes: Invalid value: failedIndexes and completedIndexes overlap"


def _of_counters(spec: Manifest, old: _Status, new: _Status) -> Iterator[str]:
    elastic = spec.get("completionMode") == "Indexed" and spec.get("completions") == spec.get("parallelism")
    for name in ("failed", *(() if elastic else ("succeeded",))):
        if new.count(name) < old.count(name):
            yield f"status.{name}: Invalid value: {new.count(name)}: cannot decrease the {name} counter"
    if new.count("ready") > new.count("active") and _changes(old, new, "ready", "active"):
        yield f"status.ready: Invalid value: {new.count('ready')}: cannot set more ready pods than active"


def _changes(old: _Status, new: _Status, *names: str) -> bool:
    return any(old.get(name) != new.get(name) for name in names)


def misread(text: str, most: int) -> str:
    """Why a text names no indexes below a number."""
    last = -1
    for interval in text.split(",") if text else ():
        first, _, end = interval.partition("-")
        if not (first.isdecimal() and (not end or end.isdecimal())):
            return f"cannot convert string to integer for index: {interval!r}"
        low, high = int(first), int(end or first)
        if max(low, high) >= most:
            return f"too large index: {interval!r}"
        if end and low >= high:
            return f"non-increasing order, previous: {low}, current: {high}"
        if low <= last:
            return f"non-increasing order, previous: {last}, current: {low}"
        last = high
    return ""


def indexes(text: str) -> set[int]:
    """The indexes of a text that can be read."""
    found: set[int] = set()
    for interval in text.split(","):
        first, _, end = interval.partition("-")
        if first.isdecimal() and (not end or end.isdecimal()):
            found.update(range(int(first), int(end or first) + 1))
    return found
