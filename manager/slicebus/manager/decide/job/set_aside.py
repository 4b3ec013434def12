"""Shows on a job that nothing is done for it, as the decision about it raises."""

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.annotations import annotation
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import Finding, conditions_of, has_finding, with_findings
from slicebus.slices.jobs import KINDS


def show(job: Manifest, problem: str, *, now: str) -> list[Command]:
    """Show on a job, and in one Event, that it is set aside; nothing where it shows that already.

    The annotation stays until a decision succeeds. The condition, where the kind has some, is for whoever reads those:
    the status of a worker may replace it.
    """
    if annotation(job, api_names.SET_ASIDE_ANNOTATION) == problem:
        return []
    resource, text = JOB_RESOURCES[job["kind"]], f"slicebus does nothing for it until it changes: {problem}"
    commands: list[Command] = []
    finding = Finding(api_names.ACCEPTED_CONDITION, False, api_names.SET_ASIDE, text)
    if KINDS[job["kind"]].refusal.conditions and not has_finding(job, finding):
        body = {"status": {"conditions": with_findings(job, finding, now=now)}}
        commands.append(Patch(resource=resource, target=job, body=body, subresource="status"))
    # Where there are two writes, the second is a conflict, and this is called again. The annotation comes last.
    return [
        *commands,
        Patch(
            resource=resource,
            target=job,
            body=annotation_patch(api_names.SET_ASIDE_ANNOTATION, problem),
            only_shows=True,
        ),
        Emit(regarding=job, reason=api_names.SET_ASIDE, note=text, warning=True),
    ]


def clear(job: Manifest) -> list[Command]:
    """Remove what `show` has written; nothing where that is not there."""
    if annotation(job, api_names.SET_ASIDE_ANNOTATION) is None:
        return []
    resource, conditions = JOB_RESOURCES[job["kind"]], conditions_of(job)
    kept = [entry for entry in conditions if not _says_set_aside(entry)]
    commands: list[Command] = []
    if len(kept) < len(conditions):
        body = {"status": {"conditions": kept}}
        commands.append(Patch(resource=resource, target=job, body=body, subresource="status"))
    return [
        *commands,
        Patch(resource=resource, target=job, body=annotation_patch(api_names.SET_ASIDE_ANNOTATION, None)),
    ]


def _says_set_aside(condition: Manifest) -> bool:
    return condition.get("type") == api_names.ACCEPTED_CONDITION and condition.get("reason") == api_names.SET_ASIDE
