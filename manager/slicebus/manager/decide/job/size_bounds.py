"""Refuses sizes that a job itself does not ask for, whoever asks in its name.

A worker's agent says what its copy of a job wants. A stolen agent, or a tenant of the worker, may say anything: what
the manager's job says bounds it.
"""

from typing import Annotated

import msgspec

from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Counts, Manifest, ScaleRequest, counts_text
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.jobs.copies import MOST_PODS

PAST_BOUNDS = "PastBounds"
"""The reason of a request for more than the job itself allows."""


def problem(view: JobView, request: ScaleRequest, *, factor: int) -> str:
    """Why a request is for more than the job allows; empty where it is not.

    `factor`: the most pods of a pod set that nothing bounds, as a multiple of those in the job's spec; 0 for any. What
    is granted already is never too much.
    """
    job = view.job
    if job is None:
        return ""
    most = most_of(job, view.desired.own, factor=factor)
    granted = view.holder.granted if view.holder is not None else {}
    past = {name: most[name] for name, count in request.wanted.items() if name in most and count > most[name]}
    past = {name: count for name, count in past.items() if request.wanted[name] > granted.get(name, 0)}
    if not past:
        return ""
    asked = {name: request.wanted[name] for name in past}
    return (
        f"The worker asks for {counts_text(asked)}, and the job allows {counts_text(past)}: raise its maxReplicas, or "
        f"its annotation {api_names.MAX_SIZE_ANNOTATION}"
    )


def most_of(job: Manifest, own: Counts, *, factor: int) -> Counts:
    """The most pods that a job may be resized to on its worker, by pod set. One without a bound is left out."""
    bounds, named = KINDS[job["kind"]].most(job), max_size(job)
    most: Counts = {}
    for name, count in own.items():
        chosen = named.get(name, named.get("", factor * max(count, 1) if factor else None))
        limits = [limit for limit in (bounds.get(name), chosen) if limit is not None]
        if limits:
            most[name] = max(count, min(limits))
    return most


def max_size(job: Manifest) -> Counts:
    """What the job's own annotation says: the most pods by pod set, or under the empty name of each pod set. Empty
    without one, and for one that nobody can read."""
    text = annotation(job, api_names.MAX_SIZE_ANNOTATION)
    sizes = read_json(text, _SIZES)
    return {"": sizes} if isinstance(sizes, int) else dict(sizes or {})


def problems(job: Manifest) -> list[Problem]:
    """Why that annotation makes no sense; empty where it does, or is not there."""
    if annotation(job, api_names.MAX_SIZE_ANNOTATION) is None or max_size(job):
        return []
    message = f"the annotation {api_names.MAX_SIZE_ANNOTATION} is neither a number of pods nor a map of them by pod set"
    return [Problem("InvalidMaxSize", message)]


_Size = Annotated[int, msgspec.Meta(ge=0, le=MOST_PODS)]
_SIZES: msgspec.json.Decoder[int | dict[str, int]] = msgspec.json.Decoder(_Size | dict[str, _Size])
