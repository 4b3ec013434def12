"""Shows on a worker's job that nothing is done for it, as the decision about it raises."""

from slicebus.agent.state.annotations import annotation
from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names


def show(job: Manifest, problem: str) -> list[Command]:
    """Show on a job, and in one Event, that it is set aside; nothing where it shows that already."""
    if annotation(job, api_names.SET_ASIDE_ANNOTATION) == problem:
        return []
    note = f"slicebus does nothing for it until it changes: {problem}"
    return [_annotate(job, problem), Emit(regarding=job, reason=api_names.SET_ASIDE, note=note, warning=True)]


def clear(job: Manifest) -> list[Command]:
    """Remove what `show` has written; nothing where that is not there."""
    return [_annotate(job, None)] if annotation(job, api_names.SET_ASIDE_ANNOTATION) is not None else []


def _annotate(job: Manifest, text: str | None) -> Command:
    body = {"metadata": {"annotations": {api_names.SET_ASIDE_ANNOTATION: text}}}
    return Patch(resource=JOB_RESOURCES[job["kind"]], target=job, body=body, only_shows=True)
