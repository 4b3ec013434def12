"""Makes job kinds of what the configuration declares.

Only the declaration tells what such a manifest has, and its API server may let anything in. So every method takes any
manifest, and `problems` names what is not as declared.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

import msgspec

from slicebus.proto.messages import MOST_COUNT, Counts, JobPhase
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import Outcome, Placement, Problem
from slicebus.slices.jobs.batch import INDEX_LABEL
from slicebus.slices.jobs.copies import common_problems, copy_of, dns_label, gated_template
from slicebus.slices.jobs.declaration import Declaration, DeclaredPodSet
from slicebus.slices.jobs.fit import misfit
from slicebus.slices.jobs.paths import (
    Path,
    add_operation,
    path_of,
    pointer,
    text_of,
    value_at,
    with_value,
    without_value,
)
from slicebus.slices.jobs.plain import PlainKind
from slicebus.slices.jobs.shapes import TemplateShape
from slicebus.slices.jobs.template_shape import INVALID_POD_TEMPLATE, is_template

Manifest = dict[str, Any]

_GROUP_KEY, _GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-key", "leaderworkerset.sigs.k8s.io/group-index"
"""A LeaderWorkerSet sets both on the pods of a group."""
_LABEL_LENGTH = 63
_NO_TEMPLATE: Manifest = {"spec": {"containers": []}}
_CONTAINERS: Path = ("spec", "containers")
_STAY = "false"
_SAID_OF_END: Path = ("metadata", "annotations", kueue.SYNC_COMPLETIONS_ANNOTATION)


class _PodSet(NamedTuple):
    """A pod set of one job."""

    name: str
    at: Path
    """Where its paths begin."""
    declared: DeclaredPodSet

    def path(self, text: str) -> Path:
        """A declared path from the top of the manifest."""
        return (*self.at, *path_of(text))

    def template(self, job: Manifest) -> Manifest:
        """Its pod template; an empty one where there is none."""
        template = self.template_value(job)
        return template if is_template(template) else _NO_TEMPLATE

    def template_value(self, job: Manifest) -> Any:
        """The value at the template's path, which may be no template."""
        return value_at(job, self.path(self.declared.template_path))

    def count(self, job: Manifest) -> int:
        """The number that a resize changes."""
        return self.number(job, self.declared.count_path)

    def limited(self, job: Manifest) -> int:
        """The number of them that its controller makes: that number, or its limit where this is smaller."""
        path = self.declared.count_limit_path
        limit = value_at(job, self.path(path)) if path is not None else None
        return min(self.count(job), limit) if _is_count(limit) else self.count(job)

    def count_paths(self, job: Manifest) -> list[Path]:
        """The paths where a resize writes that number."""
        declared = (self.declared.count_path, *self.declared.count_also_paths)
        paths = [self.path(path) for path in declared if path is not None]
        return [path for path in paths if path == paths[0] or value_at(job, path) == self.count(job)]

    def number(self, job: Manifest, path: str | None) -> int:
        """The number of pods or replicas at a declared path; 1 where there is none."""
        value = value_at(job, self.path(path)) if path is not None else None
        return value if _is_count(value) else 1


class DeclaredKind(PlainKind):
    """A job kind by its declaration. Its jobs carry their own counts."""

    def __init__(self, declaration: Declaration) -> None:
        group, _, version = declaration.api_version.rpartition("/")
        self.declaration = declaration
        self.resource = Resource(group, version, declaration.plural, declaration.kind)
        self.suspend_path: Path | None = path_of(declaration.suspend_path) if declaration.suspend_path else None
        own = f"{api_names.OWNER_LABEL_PREFIX}{declaration.kind.lower()}"
        self._label = declaration.pod_label or own
        self._gives_label = declaration.pod_label is None
        self.owner_labels: tuple[str, ...] = (self._label,)

    def lacks_dispatch(self, job: Manifest) -> str:
        """It needs the declared field, or the gate in every pod template: pods of any controller then wait for ever."""
        if self.declaration.managed_by is not None:
            return self.declaration.managed_by.lacks(job)
        ungated = [pod_set.name for pod_set in self._pod_sets(job) if not _is_gated(pod_set.template(job))]
        return f"the pod template of {ungated[0]} has no scheduling gate {kueue.ELASTIC_GATE}" if ungated else ""

    def pod_sets(self, job: Manifest) -> list[Manifest]:
        """The declared pod sets, those of a list in the order of its entries."""
        counts = self.counts(job, job)
        return [
            {"name": pod_set.name, "count": counts[pod_set.name], "template": pod_set.template(job)}
            for pod_set in self._pod_sets(job)
        ]

    def counts(self, job: Manifest, scale_target: Manifest) -> Counts:
        """The declared numbers, within their limits, multiplied, and cut to a count of 32 bits."""
        return {
            pod_set.name: min(pod_set.limited(scale_target) * self._pods_of_one(pod_set, scale_target), MOST_COUNT)
            for pod_set in self._pod_sets(scale_target)
        }

    def problems(self, job: Manifest) -> list[Problem]:
        """What is not as declared, else what no kind can take."""
        return [*self._misfits(job)] or common_problems(job, self.pod_sets(job))

    def worker_copy(self, job: Manifest, placements: dict[str, Placement]) -> Manifest:
        """The job with gated templates, resumed, and without what keeps controllers off it."""
        name, copy = job["metadata"]["name"], job
        for pod_set in self._pod_sets(job):
            place = placements.get(pod_set.name, Placement())
            if self._gives_label:
                place = msgspec.structs.replace(place, labels=place.labels | {self._label: name})
            template = gated_template(pod_set.template(job), pod_set.name, place)
            copy = with_value(copy, pod_set.path(pod_set.declared.template_path), template)
        if self.suspend_path is not None:
            copy = with_value(copy, self.suspend_path, False)
        managed_by = self.declaration.managed_by
        for path in (*([managed_by.path] if managed_by is not None else []), *self.declaration.dropped_paths):
            copy = without_value(copy, path_of(path))
        copied, said = copy_of(job, copy["spec"]), self.said_of_end(job)
        return copied if said is None else with_value(copied, _SAID_OF_END, said)

    def resize(self, scale_target: Manifest, counts: Counts) -> list[Manifest]:
        """Patch the numbers. Those in a list are guarded by the name of the entry."""
        patch: list[Manifest] = []
        for pod_set, wanted in self._wanted(scale_target, counts):
            if pod_set.count(scale_target) == wanted:
                continue
            if pod_set.declared.name_path is not None:
                name = pod_set.path(pod_set.declared.name_path)
                patch.append({"op": "test", "path": pointer(name), "value": value_at(scale_target, name)})
            patch += [add_operation(scale_target, path, wanted) for path in pod_set.count_paths(scale_target)]
        return patch

    def follow(self, scale_target: Manifest, job: Manifest) -> list[list[Manifest]]:
        """Patch the numbers, and give the fields that change with them what the manager's job has there."""
        patch = self.resize(scale_target, self.counts(job, job))
        own = {pod_set.name: pod_set for pod_set in self._pod_sets(job)}
        for pod_set in self._pod_sets(scale_target):
            if pod_set.name not in own:
                continue
            for text in pod_set.declared.count_also_paths:
                path, wanted = pod_set.path(text), value_at(job, own[pod_set.name].path(text))
                change = add_operation(scale_target, path, wanted)
                patch = [operation for operation in patch if operation["path"] != change["path"]]
                if _is_count(wanted) and wanted != value_at(scale_target, path):
                    patch.append(change)
        return [patch] if patch else []

    def with_counts(self, job: Manifest, counts: Counts) -> Manifest:
        """Set the numbers."""
        changed = job
        for pod_set, wanted in self._wanted(job, counts):
            for path in pod_set.count_paths(job):
                changed = with_value(changed, path, wanted)
        return changed

    def said_of_end(self, job: Manifest) -> str | None:
        """That no field changes with the pods that others take, also of a job where none has their number: somebody may
        make both equal where it runs."""
        also = [pod_set for pod_set in self._pod_sets(job) if pod_set.declared.count_also_paths]
        stay = also and not any(len(pod_set.count_paths(job)) > 1 for pod_set in also)
        return _STAY if stay else super().said_of_end(job)

    def with_pods(self, job: Manifest, counts: Counts, *, present: Manifest) -> Manifest:
        """The fields that change with the count stay, unless they have its number there and where the job runs. They
        are never less than that."""
        changed, stay = self.with_counts(job, counts), self.said_of_end(job) == _STAY
        there = {pod_set.name: pod_set for pod_set in self._pod_sets(present)}
        for pod_set in self._pod_sets(job):
            follow, now = {*pod_set.count_paths(job)}, there.get(pod_set.name)
            if now is None or pod_set.name not in counts:
                continue
            for text in pod_set.declared.count_also_paths:
                path, value = pod_set.path(text), value_at(present, now.path(text))
                if _is_count(value) and (stay or path not in follow or value != now.count(present)):
                    changed = with_value(changed, path, max(value, pod_set.count(changed)))
        return changed

    def mirrored_status(self, job: Manifest, reported: Manifest) -> Manifest:
        """The declared fields of the worker's status, and the other fields of the manager's own."""
        names = self.declaration.mirrored_status
        if names is None:
            return reported
        own = {name: value for name, value in job.get("status", {}).items() if name not in names}
        return own | {name: reported[name] for name in names if name in reported}

    def running_status(self, reported: Manifest) -> Manifest:
        """The worker's status: nothing more is known of it."""
        return reported

    def suspended_status(self, status: Manifest, *, active: bool, now: str) -> Manifest:
        """The status unchanged: nothing more is known of it."""
        return status

    def outcome(self, job: Manifest) -> Outcome:
        """Read the declared signs, failure first."""
        signs = ((JobPhase.FAILED, self.declaration.failed), (JobPhase.SUCCEEDED, self.declaration.succeeded))
        for phase, sign in signs:
            if sign is not None and (message := sign.message(job)) is not None:
                return Outcome(phase, message)
        return Outcome(JobPhase.RUNNING)

    def pod_selectors(self, job: Manifest) -> list[dict[str, str]]:
        """The declared label, or the one that the copy's templates have."""
        return [{self._label: job["metadata"]["name"]}]

    def replica_size(self, scale_target: Manifest, pod_set: str) -> int:
        """The declared size; at least one."""
        entries = (entry for entry in self._pod_sets(scale_target) if entry.name == pod_set)
        return max([1, *(self._size(entry, scale_target) for entry in entries)])

    def step(self, job: Manifest, pod_set: str) -> int:
        """The pods by which the declared number counts; at least one."""
        return max([1, *(self._pods_of_one(entry, job) for entry in self._pod_sets(job) if entry.name == pod_set)])

    def replica(self, labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
        """Read the declared label, whoever makes the pods."""
        name = labels.get(self.declaration.replica_label or "", "")
        return ("", name) if name else (owner_uid, "")

    def index_label(self, job: Manifest, pod_set: str) -> str:
        """That of Indexed Jobs whose completions go down too, or of the groups of a LeaderWorkerSet."""
        if self.declaration.replica_label == _GROUP_KEY:
            return _GROUP_INDEX
        entries = [entry for entry in self._pod_sets(job) if entry.name == pod_set]
        follow = self.said_of_end(job) != _STAY and any(len(entry.count_paths(job)) > 1 for entry in entries)
        return INDEX_LABEL if follow else ""

    def scaler(self, scale_target: Manifest) -> str:
        """Its user changes the numbers."""
        return "replicas changed"

    def _pod_sets(self, job: Manifest) -> list[_PodSet]:
        pod_sets = [pod_set for declared in self.declaration.pod_sets for pod_set in _expand(declared, job)]
        return [
            pod_set for pod_set in pod_sets if not (pod_set.declared.optional and pod_set.template_value(job) is None)
        ]

    def _size(self, pod_set: _PodSet, job: Manifest) -> int:
        """The pods of one replica in this pod set, which start together."""
        size = pod_set.number(job, pod_set.declared.replica_size_path)
        included = pod_set.declared.replica_size_includes
        others = sum(other.name == included for other in self._pod_sets(job)) if included is not None else 0
        return max(0, size - others)

    def _pods_of_one(self, pod_set: _PodSet, job: Manifest) -> int:
        """How many pods one more of the count adds."""
        return self._size(pod_set, job) * pod_set.number(job, pod_set.declared.multiplier_path)

    def _wanted(self, job: Manifest, counts: Counts) -> list[tuple[_PodSet, int]]:
        """The numbers that counts of pods need. Pod sets that share one get what all of them have room for. One that
        keeps within its limit says nothing of the number."""
        wanted: dict[Path, tuple[_PodSet, int]] = {}
        for pod_set in self._pod_sets(job):
            pods = self._pods_of_one(pod_set, job)
            if pod_set.declared.count_path is None or pod_set.name not in counts or pods == 0:
                continue
            path, number = pod_set.path(pod_set.declared.count_path), counts[pod_set.name] // pods
            if number == pod_set.limited(job) < pod_set.count(job):
                continue
            before = wanted.get(path)
            wanted[path] = (pod_set, number if before is None else min(number, before[1]))
        return list(wanted.values())

    def _misfits(self, job: Manifest) -> Iterator[Problem]:
        if self._gives_label and len(name := job["metadata"]["name"]) > _LABEL_LENGTH:
            text = f"its pods get its name as a label, which has at most {_LABEL_LENGTH} characters: {name}"
            yield Problem("NameTooLong", text)
        pod_sets = self._pod_sets(job)
        if not pod_sets:
            yield Problem("NoPodSets", f"no {self.resource.kind} without pods is run: it has no pod template")
        for pod_set in pod_sets:
            named = pod_set.declared.name_path
            if named is not None and not _is_name(value_at(job, pod_set.path(named))):
                yield Problem("UnnamedPodSet", f"{text_of(pod_set.at)} has no name")
            template, where = pod_set.template_value(job), text_of(pod_set.path(pod_set.declared.template_path))
            if not isinstance(value_at(template, _CONTAINERS), list):
                yield Problem("NoPodTemplate", f"{where} is no pod template")
            elif problem := misfit(template, TemplateShape):
                yield Problem(INVALID_POD_TEMPLATE, f"{where}: {problem}")
            numbers = (pod_set.path(text) for _, text, type in pod_set.declared.paths() if type == "integer")
            for path in dict.fromkeys(numbers):
                value = value_at(job, path)
                if value is not None and not _is_count(value):
                    text = f"{text_of(path)} is {value!r}, and no number of pods"
                    yield Problem("InvalidCount", text)


def _expand(declared: DeclaredPodSet, job: Manifest) -> Iterator[_PodSet]:
    """The pod set of a declaration, or one for each entry of its list."""
    if declared.list_path is None or declared.name_path is None:
        yield _PodSet(declared.name or "", (), declared)
        return
    at = path_of(declared.list_path)
    entries = value_at(job, at)
    for number, entry in enumerate(entries if isinstance(entries, list) else ()):
        name = value_at(entry, path_of(declared.name_path))
        yield _PodSet(dns_label(name) if _is_name(name) else f"unnamed-{number}", (*at, number), declared)


def _is_name(name: object) -> TypeGuard[str]:
    return isinstance(name, str) and name != ""


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_gated(template: Manifest) -> bool:
    return any(gate["name"] == kueue.ELASTIC_GATE for gate in template["spec"].get("schedulingGates", ()))
