"""Loads every kind that slicebus runs: its own, those of packages that are installed beside it, and those that the
configuration declares."""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import msgspec
import yaml

from slicebus.slices.api.resource import Resource
from slicebus.slices.jobs.base import JobKind
from slicebus.slices.jobs.batch import BatchJob
from slicebus.slices.jobs.declaration import Declaration, DeclarationError
from slicebus.slices.jobs.declared import DeclaredKind
from slicebus.slices.jobs.fit import fitted_job
from slicebus.slices.jobs.raycluster import RayCluster
from slicebus.slices.jobs.rayjob import RayJob
from slicebus.slices.jobs.rayservice import RayService
from slicebus.slices.jobs.shapes import PlainSpec, PlainStatus

Manifest = dict[str, Any]

ENTRY_POINTS = "slicebus.job_kinds"
"""The group of entry points by which a package brings a job kind: each names a class, made without arguments."""
DECLARATIONS = "SLICEBUS_JOB_KINDS_FILE"
"""The variable that names the file with the declared kinds: a list, as YAML or JSON. It is read here with the entry
points, because caches, permissions and every command derive from the kinds."""
_MEMBERS = sorted({*JobKind.__annotations__, *(name for name in vars(JobKind) if not name.startswith("_"))})


def load(entries: Iterable[EntryPoint], declarations: str | None = None) -> tuple[dict[str, JobKind], dict[str, str]]:
    """The kinds by name, and why an entry point or a declaration is left out, by its name. A broken one stops no other.

    slicebus' own kinds come first, then those of the entry points by name, then those of the file of declarations.
    """
    kinds: dict[str, JobKind] = {
        kind.resource.kind: kind for kind in (BatchJob(), RayCluster(), RayJob(), RayService())
    }
    left_out: dict[str, str] = {}
    for name, label, kind in (*_from_packages(entries), *_from_file(declarations)):
        if isinstance(kind, str):
            left_out[name] = f"{label} {kind}"
        elif problem := _problem(kind, kinds):
            left_out[name] = f"{label} {problem}"
        else:
            kinds[kind.resource.kind] = kind
    return kinds, left_out


def _from_packages(entries: Iterable[EntryPoint]) -> Iterator[tuple[str, str, JobKind | str]]:
    """The name of each entry point, how people are told of it, and its kind, or why it has none."""
    for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
        try:
            kind: JobKind | str = entry.load()()
        except Exception as error:  # noqa: BLE001 code of another package runs here
            kind = f"does not load: {type(error).__name__}: {error}"
        yield entry.name, entry.value, kind


def _from_file(file: str | None) -> Iterator[tuple[str, str, JobKind | str]]:
    """The same for each declaration of a file; none without a file."""
    if not file:
        return
    try:
        entries = yaml.safe_load(Path(file).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        yield file, f"the job kinds in {file}", f"cannot be read: {error}"
        return
    if not isinstance(entries, list):
        yield file, f"the job kinds in {file}", "are no list"
        return
    for number, entry in enumerate(entries):
        named = entry.get("kind") if isinstance(entry, dict) else None
        label = f"the job kind {named}, entry {number} of {file}," if named else f"the entry {number} of {file}"
        try:
            kind: JobKind | str = DeclaredKind(Declaration.read(entry))
        except DeclarationError as error:
            kind = f"cannot be used: {error}"
        yield f"{file}[{number}]", label, kind


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


def spec_shape_of(kind: JobKind) -> type[msgspec.Struct]:
    """The fields of a spec that a kind reads by name."""
    shape: type[msgspec.Struct] = getattr(kind, "spec_shape", PlainSpec)
    return shape


def status_shape_of(kind: JobKind) -> type[msgspec.Struct]:
    """The fields of a status that a kind reads by name."""
    shape: type[msgspec.Struct] = getattr(kind, "status_shape", PlainStatus)
    return shape


def fitting(kind: str) -> Callable[[Manifest], Manifest]:
    """What makes a job of a kind one that its code can read (`shapes`)."""
    spec, status = spec_shape_of(KINDS[kind]), status_shape_of(KINDS[kind])
    return lambda manifest: fitted_job(manifest, spec, status)


KINDS, LEFT_OUT = load(entry_points(group=ENTRY_POINTS), os.environ.get(DECLARATIONS))
"""By kind name, and by the name of an entry point or a declaration why its kind is left out. Read once."""
