"""Finds what somebody has set on an object and slicebus does not honor, by the table of `fields`."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from slicebus.slices.api import api_names, budget_values, kueue
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding
from slicebus.slices.api.durations import seconds
from slicebus.slices.api.fields import FIELDS, JOB_KEYS, UNKNOWN, Fields, FieldUse
from slicebus.slices.api.odd_values import covered_resources, odd_values
from slicebus.slices.api.selectors import problem_of

Manifest = dict[str, Any]
Unhonored = dict[str, str]
"""What happens instead, by the path of each field that is not honored."""
_NOT_OF_USERS = ("apiVersion", "kind", "metadata", "status")
_KUEUES = (f"{kueue.GROUP}/", f"provreq.{kueue.GROUP}/")
_SHOWN = 63
"""Characters of a value that is none of these."""
_REASON = "NotHonored"
_ALL_HONORED = "AllHonored"


def _one_of(*choices: str) -> Callable[[str], str]:
    known = " or ".join(map(repr, choices))
    return lambda value: "" if value in choices else f"it may be {known}, and is {value[:_SHOWN]!r}"


def _duration(value: str) -> str:
    return "" if seconds(value) is not None else f"{value[:_SHOWN]!r} is no duration such as 90s"


_BUDGETS: Mapping[str, Callable[[str], str]] = {
    api_names.BUDGET_ANNOTATION: budget_values.problem_of,
    api_names.BUDGET_MODE_ANNOTATION: _one_of(*budget_values.BudgetMode),
}
_WORDS: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "ClusterQueue": {
        api_names.SPARE_ANNOTATION: _one_of("pods"),
        api_names.OPPORTUNISTIC_ANNOTATION: _one_of("true", "false"),
        api_names.PODS_BEFORE_JOBS_ANNOTATION: _one_of("true", "false"),
        api_names.NOTICE_ANNOTATION: _duration,
        **_BUDGETS,
    },
    "LocalQueue": _BUDGETS,
    "Cohort": _BUDGETS,
}
"""What is wrong with a value of an annotation of slicebus, by kind and name; such a value counts as not set."""
_STOP_POLICIES = ("None", "Hold", "HoldAndDrain")
_WHOM, _WHEN = ("Never", "LowerPriority"), "TryNextFlavor"
_CHOICES: Mapping[str, Mapping[tuple[str, ...], tuple[str, ...]]] = {
    "ClusterQueue": {
        ("queueingStrategy",): ("BestEffortFIFO", "StrictFIFO"),
        ("stopPolicy",): _STOP_POLICIES,
        ("preemption", "withinClusterQueue"): (*_WHOM, "LowerOrNewerEqualPriority"),
        ("preemption", "reclaimWithinCohort"): (*_WHOM, "Any"),
        ("preemption", "borrowWithinCohort", "policy"): _WHOM,
        ("flavorFungibility", "whenCanBorrow"): ("MayStopSearch", _WHEN, "Borrow"),
        ("flavorFungibility", "whenCanPreempt"): (_WHEN, "MayStopSearch", "Preempt"),
        ("flavorFungibility", "preference"): ("BorrowingOverPreemption", "PreemptionOverBorrowing"),
        ("admissionScope", "admissionMode"): ("NoAdmissionFairSharing", "UsageBasedAdmissionFairSharing"),
    },
    "LocalQueue": {("stopPolicy",): _STOP_POLICIES},
}
"""The values of fields by their path in the spec. Definitions of a newer Kueue may take others, instead of which the
first counts; a queue with another stopPolicy is on hold."""
_SELECTOR = "spec.namespaceSelector"
_SELECTING = ("ClusterQueue", "WorkerCluster")
"""The kinds with a selector that the API server does not check."""


class _Known(NamedTuple):
    """The fields of one kind, and the paths of what contains them."""

    fields: Fields
    parents: frozenset[str]

    @classmethod
    def of(cls, fields: Fields) -> Self:
        ends = re.compile(r"\.|\[\]")
        return cls(fields, frozenset(path[: end.start()] for path in fields for end in ends.finditer(path)))


_KNOWN = {kind: _Known.of(fields) for kind, fields in FIELDS.items()}


def unhonored(kind: str, manifest: Manifest) -> Unhonored:
    """The fields of an object of one of Kueue's kinds that are set and not honored. Empty ones say nothing. A field or
    an annotation of slicebus is among them where its value is none that it may have, a selector that is none, and
    quota that nobody gets."""
    ways = (_spent_never, _unreadable, _unknown, _selects_nothing, _odd)
    unreadable = [found for way in ways for found in way(kind, manifest)]
    return dict(sorted((*_unhonored(manifest, _KNOWN[kind], skipped=_NOT_OF_USERS), *unreadable)))


def unhonored_of_job(job: Manifest, templates: Iterable[Manifest]) -> Unhonored:
    """The same of Kueue's labels and annotations on a job and on the templates of its pods; and the pods' own priority,
    which Kueue takes where a job names no class of its own."""
    found = dict(_keys(job.get("metadata") or {}, "metadata"))
    names_class = kueue.PRIORITY_CLASS_LABEL in ((job.get("metadata") or {}).get("labels") or {})
    for template in templates:
        found |= dict(_keys(template.get("metadata") or {}, "template.metadata"))
        if (template.get("spec") or {}).get("priorityClassName") and not names_class:
            instead = f"only the label {kueue.PRIORITY_CLASS_LABEL} says who is first for quota"
            found["template.spec.priorityClassName"] = instead
    return dict(sorted(found.items()))


def finding(manifest: Manifest, found: Unhonored) -> Finding | None:
    """The condition that tells an object's user of these; None where the object need not say anything new."""
    told = Finding(api_names.HONORED_CONDITION, False, _REASON, text(found))
    if not found:
        has_said = any(entry["type"] == api_names.HONORED_CONDITION for entry in conditions_of(manifest))
        told = Finding(api_names.HONORED_CONDITION, True, _ALL_HONORED, "Every field that is set is honored")
        return told if has_said and not has_finding(manifest, told) else None
    return None if has_finding(manifest, told) else told


def text(found: Unhonored) -> str:
    """One sentence for each field, for people."""
    return "; ".join(f"{path} is not honored: {instead}" for path, instead in found.items())


def _unhonored(
    value: Mapping[str, Any], known: _Known, *, at: str = "", skipped: tuple[str, ...] = ()
) -> Iterator[tuple[str, str]]:
    for name, entry in value.items():
        if name not in skipped:
            yield from _of(entry, known, f"{at}.{name}" if at else name)


def _unreadable(kind: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    annotations = (manifest.get("metadata") or {}).get("annotations") or {}
    for name, problem in _WORDS.get(kind, {}).items():
        if name in annotations and (wrong := problem(annotations[name])):
            yield f"metadata.annotations[{name}]", wrong


def _unknown(kind: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The values that a field takes by newer definitions alone."""
    for path, choices in _CHOICES.get(kind, {}).items():
        value: Any = manifest.get("spec")
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, str) and value and (wrong := _one_of(*choices)(value)):
            yield ".".join(("spec", *path)), wrong


def _odd(kind: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    yield from odd_values(kind, manifest.get("spec"))


def _spent_never(kind: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """The budgets of resources that a ClusterQueue has no quota of."""
    covered = covered_resources(manifest.get("spec")) if kind == "ClusterQueue" else set()
    budget = budget_values.Budget.from_annotations((manifest.get("metadata") or {}).get("annotations") or {})
    never = [resource for resource in budget.allowances if resource not in covered] if budget and covered else []
    if never:
        instead = f"nothing is ever spent of {', '.join(never)}, as the queue covers only {', '.join(sorted(covered))}"
        yield f"metadata.annotations[{api_names.BUDGET_ANNOTATION}]", instead


def _selects_nothing(kind: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    spec = manifest.get("spec")
    selector = spec.get("namespaceSelector") if isinstance(spec, dict) and kind in _SELECTING else None
    if selector is not None and (wrong := problem_of(selector)):
        yield _SELECTOR, f"it selects no namespace, as it is no label selector: {wrong}"


def _of(value: Any, known: _Known, path: str) -> Iterator[tuple[str, str]]:
    """What is not honored of a value and of all that it contains."""
    if (field := known.fields.get(path)) is not None:
        if field.use is FieldUse.TOLD and not _is_empty(value):
            yield path, field.instead
    elif path not in known.parents:
        if not _is_empty(value):
            yield path, UNKNOWN
    elif isinstance(value, dict):
        yield from _unhonored(value, known, at=path)
    elif isinstance(value, list):
        for entry in value:
            yield from _of(entry, known, f"{path}[]")


def _is_empty(value: Any) -> bool:
    """Whether it says nothing: an object or a list of nothing but that."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    if isinstance(value, list):
        return all(map(_is_empty, value))
    return value is None or value == ""


def _keys(metadata: Manifest, at: str) -> Iterator[tuple[str, str]]:
    for part in ("labels", "annotations"):
        for key in metadata.get(part) or {}:
            if not key.startswith(_KUEUES):
                continue
            field = JOB_KEYS.get(key)
            if field is None or field.use is FieldUse.TOLD:
                yield f"{at}.{part}[{key}]", field.instead if field is not None else UNKNOWN
