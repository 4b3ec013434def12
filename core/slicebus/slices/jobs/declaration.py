"""Reads how the configuration declares a job kind: where its manifests have what slicebus reads and writes.

A declaration is data for `DeclaredKind`, which turns it into a job kind. It is read strictly: an unknown field, a
missing one, or a path that is none is an error that names the field.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, Self

import msgspec

from slicebus.slices.jobs.paths import Path, path_of, value_at

Manifest = dict[str, Any]

_NAME = r"[A-Za-z_][A-Za-z0-9_-]*"
_WANTED: dict[str, str] = {}
"""What a pattern stands for, in words, by the pattern as msgspec quotes it."""


def _pattern(pattern: str, wanted: str) -> msgspec.Meta:
    _WANTED[repr(pattern)] = wanted
    return msgspec.Meta(pattern=pattern)


FieldsPath = Annotated[str, _pattern(rf"^{_NAME}(\.{_NAME})*$", "a path, as replicas or template.spec")]
SpecPath = Annotated[str, _pattern(rf"^spec(\.{_NAME})+$", "a path that begins with spec, as spec.suspend")]
StatusPath = Annotated[str, _pattern(rf"^status(\.{_NAME})+$", "a path that begins with status, as status.phase")]
StatusField = Annotated[str, _pattern(rf"^{_NAME}$", "a field of the status, as phase")]
PodSetName = Annotated[
    str, _pattern("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "a name of lower-case letters, digits and hyphens")
]
Label = Annotated[
    str, _pattern(r"^([a-z0-9.-]+/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "a label's key, as example.dev/name")
]
ApiVersion = Annotated[
    str, _pattern(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+$", "a group and version, as batch/v1")
]
Kind = Annotated[str, _pattern("^[A-Z][A-Za-z0-9]{0,62}$", "a kind, as Deployment")]
Plural = Annotated[str, _pattern("^[a-z]([-a-z0-9]*[a-z0-9])?$", "a plural, as deployments")]
_REGEX = re.compile(r"^Expected `str` matching regex (.*)$")
_NEEDED_OF_PODS = (("spec.schedulingGates", "array"), ("metadata.labels", "object"))
_AT = re.compile(r" - at `\$\.?(.*)`$")


class DeclarationError(ValueError):
    """A declaration that cannot be read; the text names the field."""


class DeclaredPath(NamedTuple):
    """One path of a declaration."""

    field: str
    """The field that has it: `podSets[0].countPath`."""
    entries: Path | None
    """The list in whose entries it begins."""
    path: Path
    type: str
    """What a schema says of the value there: `integer`; empty for anything."""


_POD_SET_PATHS = {
    "name_path": "string",
    "template_path": "object",
    "count_path": "integer",
    "count_limit_path": "integer",
    "multiplier_path": "integer",
    "replica_size_path": "integer",
}


class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Refuses unknown fields: they are slips."""


class DeclaredPodSet(_Strict, frozen=True, kw_only=True):
    """One pod set, or one for each entry of a list. The paths of a list's pod sets begin at its entries."""

    template_path: FieldsPath
    """The PodTemplateSpec."""
    name: PodSetName | None = None
    """Of a pod set that is in no list."""
    list_path: SpecPath | None = None
    name_path: FieldsPath | None = None
    """Where an entry of the list has its name."""
    count_path: FieldsPath | None = None
    """The number that a resize changes, which is 1 where the manifest has none; without the path it is always 1."""
    count_also_paths: tuple[FieldsPath, ...] = ()
    """Fields that are changed with the count where they have the same number, as the completions of an indexed Job."""
    count_limit_path: FieldsPath | None = None
    """A number that the controller never exceeds, whatever the count: the completions of a Job. No limit where a
    manifest has none."""
    multiplier_path: FieldsPath | None = None
    """A number by which the count is multiplied and that stays: that of the Jobs which a JobSet makes of a template."""
    replica_size_path: FieldsPath | None = None
    """A number of pods by which the count is multiplied, that stays, and that start together."""
    replica_size_includes: PodSetName | None = None
    """Another pod set, of which each replica has one pod that the size counts too, as it does the leader of a group."""
    optional: bool = False
    """Whether a job may be without the template, and then has no such pod set."""

    def __post_init__(self) -> None:
        """Raises ValueError for fields that do not go together."""
        if self.list_path is None:
            if self.name is None:
                raise ValueError("a pod set needs a name, or listPath and namePath")
            if self.name_path is not None:
                raise ValueError("namePath is only for pod sets of a listPath")
            for field, path, _ in self.paths():
                if not path.startswith("spec."):
                    raise ValueError(f"{field} {path!r} has to begin with spec, as the pod set is in no list")
        elif self.name is not None or self.name_path is None:
            raise ValueError("pod sets of a listPath have a namePath in place of a name")
        for field, given in (("countAlsoPaths", self.count_also_paths), ("countLimitPath", self.count_limit_path)):
            if given and self.count_path is None:
                raise ValueError(f"{field} needs a countPath")

    def paths(self) -> list[tuple[str, str, str]]:
        """Every path but those of the list, with its field and the type of what is there."""
        fields = [(_camel(name), getattr(self, name), type) for name, type in _POD_SET_PATHS.items()]
        also = [(f"countAlsoPaths[{number}]", path, "integer") for number, path in enumerate(self.count_also_paths)]
        return [(field, path, type) for field, path, type in (*fields, *also) if path is not None]


class Sign(_Strict, frozen=True, kw_only=True):
    """A sign in a job's status: a condition that is True, or a field with a value."""

    condition: str | None = None
    path: StatusPath | None = None
    value: str | int | bool = True

    def __post_init__(self) -> None:
        """Raises ValueError unless it names exactly one of both."""
        if (self.condition is None) == (self.path is None):
            raise ValueError("it needs either a condition or a path")

    @property
    def field(self) -> str:
        """The field of the status that shows it."""
        return self.path.split(".")[1] if self.path is not None else "conditions"

    def message(self, job: Manifest) -> str | None:
        """The message that comes with the sign, which may be empty; None where the job does not show the sign."""
        if self.path is not None:
            return "" if _is(value_at(job, path_of(self.path)), self.value) else None
        conditions = value_at(job, ("status", "conditions"))
        for condition in conditions if isinstance(conditions, list) else ():
            if isinstance(condition, dict) and (condition.get("type"), condition.get("status")) == (
                self.condition,
                "True",
            ):
                return str(condition.get("message") or "")
        return None


class ManagedBy(_Strict, frozen=True, kw_only=True):
    """A field by whose value the kind's controller leaves a job alone. A worker's copy lacks the field."""

    path: SpecPath
    value: str | int | bool
    zero_path: StatusPath | None = None
    """A number in the manager's own status that is 0, or missing, while the manager's cluster runs no pod of the job:
    the field may have been set after it began to."""

    def lacks(self, job: Manifest) -> str:
        """As `JobKind.lacks_dispatch`, by this field."""
        if not _is(value_at(job, path_of(self.path)), self.value):
            value = self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()
            return f"its {self.path} is not {value}"
        number = value_at(job, path_of(self.zero_path)) if self.zero_path is not None else None
        return f"its {self.zero_path} is {number}, as this cluster runs it already" if number else ""


class Maker(_Strict, frozen=True, kw_only=True):
    """A resource whose controller makes pods of the kind's jobs, as that of ReplicaSets does for Deployments."""

    group: str
    plural: Plural


class Declaration(_Strict, frozen=True, kw_only=True):
    """One job kind."""

    api_version: ApiVersion
    kind: Kind
    plural: Plural
    pod_sets: Annotated[tuple[DeclaredPodSet, ...], msgspec.Meta(min_length=1)]
    suspend_path: SpecPath | None = None
    """Without it a job that loses its quota is deleted on its worker, and made anew."""
    managed_by: ManagedBy | None = None
    """Without it the pod templates of the manager's job have to have the elastic gate."""
    pod_label: Label | None = None
    """A label of the pods whose value is the job's name; without it the copy's templates get one."""
    replica_label: Label | None = None
    """A label of the pods whose value is the same for those of one replica, and for no other of the job."""
    succeeded: Sign | None = None
    failed: Sign | None = None
    """Without both a job never ends by itself."""
    mirrored_status: tuple[StatusField, ...] | None = None
    """The fields of the worker's status that the manager's job shows; without it all. An annotation has the others."""
    dropped_paths: tuple[SpecPath, ...] = ()
    """What a worker's copy lacks beside `managed_by`, as a time after its end when a controller would delete it."""
    made_by: tuple[Maker, ...] = ()
    """Who makes the pods, for the policies of the agent's chart, where it is neither the kind itself nor a Job."""

    def __post_init__(self) -> None:
        """Raises ValueError for pod sets that do not go together, for an end that the manager would not see, for a
        number of its own status that the worker's would replace, and for a field that a copy must not lack."""
        zero = self.managed_by.zero_path.split(".")[1] if self.managed_by and self.managed_by.zero_path else None
        if zero is not None and (self.mirrored_status is None or zero in self.mirrored_status):
            raise ValueError(f"managedBy.zeroPath is of the manager's own status: mirroredStatus has to lack {zero}")
        for field, sign in (("succeeded", self.succeeded), ("failed", self.failed)):
            if sign is not None and self.mirrored_status is not None and sign.field not in self.mirrored_status:
                raise ValueError(f"mirroredStatus lacks {sign.field}, by which {field} is known")
        names = [pod_set.name for pod_set in self.pod_sets if pod_set.name is not None]
        if len(set(names)) < len(names):
            raise ValueError("podSets: two have the same name")
        for pod_set in self.pod_sets:
            included = pod_set.replica_size_includes
            if included is not None and (included not in names or included == pod_set.name):
                raise ValueError(f"podSets: replicaSizeIncludes names {included!r}, which is no other pod set")
        templates = [(pod_set.list_path, pod_set.template_path) for pod_set in self.pod_sets]
        if len(set(templates)) < len(templates):
            raise ValueError("podSets: two have the same template, whose pods are of one pod set only")
        for field, dropped in self._dropped():
            if needed := next((path for path in self._written() if f"{path}.".startswith(f"{dropped}.")), None):
                raise ValueError(f"{field}: a worker's copy is without {dropped}, and slicebus writes {needed} there")

    @classmethod
    def read(cls, entry: object) -> Self:
        """The declaration of an entry of the configuration. Raises DeclarationError."""
        try:
            return msgspec.convert(entry, cls)
        except msgspec.ValidationError as error:
            raise DeclarationError(_in_words(str(error), entry)) from error

    def paths(self) -> list[DeclaredPath]:
        """Every path that a manifest may have."""
        paths: list[DeclaredPath] = []
        for number, pod_set in enumerate(self.pod_sets):
            entries = path_of(pod_set.list_path) if pod_set.list_path else None
            for field, path, type in pod_set.paths():
                paths.append(DeclaredPath(f"podSets[{number}].{field}", entries, path_of(path), type))
        for field, text, type in (
            ("suspendPath", self.suspend_path, "boolean"),
            ("managedBy.path", self.managed_by.path if self.managed_by else None, ""),
            ("managedBy.zeroPath", self.managed_by.zero_path if self.managed_by else None, "integer"),
            *((f"droppedPaths[{number}]", path, "") for number, path in enumerate(self.dropped_paths)),
            *_sign_paths("succeeded", self.succeeded),
            *_sign_paths("failed", self.failed),
            *((f"mirroredStatus[{n}]", f"status.{name}", "") for n, name in enumerate(self.mirrored_status or ())),
        ):
            if text is not None:
                paths.append(DeclaredPath(field, None, path_of(text), type))
        return paths

    def _dropped(self) -> Iterator[tuple[str, str]]:
        """The paths that a worker's copy is without, each with its field."""
        if self.managed_by is not None:
            yield "managedBy.path", self.managed_by.path
        yield from ((f"droppedPaths[{number}]", path) for number, path in enumerate(self.dropped_paths))

    def _written(self) -> Iterator[str]:
        """The paths that slicebus writes on a worker: gates and labels of pods, counts, and the suspension."""
        for pod_set in self.pod_sets:
            paths = [f"{pod_set.template_path}.{field}" for field, _ in _NEEDED_OF_PODS]
            counts = filter(None, (pod_set.count_path, *pod_set.count_also_paths))
            yield from (f"{pod_set.list_path}.{path}" if pod_set.list_path else path for path in (*paths, *counts))
        if self.suspend_path is not None:
            yield self.suspend_path

    def needed_of_pods(self) -> list[DeclaredPath]:
        """Where a worker's copy has the gates and the labels of its pods: without a gate they start before they have
        quota, and without labels no agent knows them."""
        return [
            DeclaredPath(
                f"podSets[{number}].templatePath",
                path_of(pod_set.list_path) if pod_set.list_path else None,
                path_of(f"{pod_set.template_path}.{field}"),
                type,
            )
            for number, pod_set in enumerate(self.pod_sets)
            for field, type in _NEEDED_OF_PODS
        ]


def _is(present: object, declared: str | int | bool) -> bool:
    """Whether a manifest has the declared value. In Python True equals 1, in a manifest one pod is no yes."""
    return isinstance(present, bool) is isinstance(declared, bool) and present == declared


def _sign_paths(field: str, sign: Sign | None) -> list[tuple[str, str, str]]:
    if sign is None:
        return []
    return [(f"{field}.path", sign.path, "") if sign.path else (f"{field}.condition", "status.conditions", "array")]


def _in_words(text: str, entry: object) -> str:
    location = _AT.search(text)
    field, message = (location[1], text[: location.start()]) if location else ("", text)
    if pattern := _REGEX.match(message):
        value = value_at(entry, _steps(field))
        message = f"{value!r} is not {_WANTED[pattern[1]]}"
    return f"{field}: {message}" if field else message


def _steps(field: str) -> Path:
    """The path of a field as msgspec writes it: `podSets[0].countPath`."""
    return tuple(int(step) if step.isdigit() else step for step in re.findall(r"[A-Za-z_]+|\d+", field))


def _camel(field: str) -> str:
    first, *others = field.split("_")
    return first + "".join(map(str.capitalize, others))
