"""Every kind that slicebus runs: those of its own, and those of packages that are installed beside it."""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from slicebus.slices.jobs.base import JobKind
from slicebus.slices.jobs.batch import BatchJob
from slicebus.slices.jobs.raycluster import RayCluster
from slicebus.slices.jobs.rayjob import RayJob
from slicebus.slices.jobs.rayservice import RayService
from slicebus.slices.resource import Resource

ENTRY_POINTS = "slicebus.job_kinds"
"""The group of entry points by which a package brings a job kind: each names a class, made without arguments."""
_MEMBERS = sorted({*JobKind.__annotations__, *(name for name in vars(JobKind) if not name.startswith("_"))})


def load(found: Iterable[EntryPoint]) -> tuple[dict[str, JobKind], dict[str, str]]:
    """The kinds by name, slicebus' own first, then those of the entry points in the order of their names; and why an
    entry point is left out, by its name. A package that is broken stops none of the other kinds."""
    kinds: dict[str, JobKind] = {
        kind.resource.kind: kind for kind in (BatchJob(), RayCluster(), RayJob(), RayService())
    }
    left_out: dict[str, str] = {}
    for entry in sorted(found, key=lambda entry: (entry.name, entry.value)):
        try:
            kind = entry.load()()
        except Exception as error:  # noqa: BLE001 code of another package runs here
            left_out[entry.name] = f"{entry.value} does not load: {type(error).__name__}: {error}"
            continue
        if problem := _problem(kind, kinds):
            left_out[entry.name] = f"{entry.value} {problem}"
        else:
            kinds[kind.resource.kind] = kind
    return kinds, left_out


def _problem(kind: JobKind, others: dict[str, JobKind]) -> str:
    if lacking := [name for name in _MEMBERS if not hasattr(kind, name)]:
        return f"is no job kind: it has no {', '.join(lacking)}"
    if not isinstance(kind.resource, Resource):
        return "is no job kind: its resource is not a Resource"
    if other := others.get(kind.resource.kind):
        return f"has the name {kind.resource.kind}, as {other.resource.api_version} has it"
    if kind.child_kind and kind.child_kind not in others:
        return f"has children of the kind {kind.child_kind}, which is no job kind"
    return ""


KINDS, LEFT_OUT = load(entry_points(group=ENTRY_POINTS))
"""By kind name, and by the name of an entry point why its kind is left out. Read once."""
