"""Writes a worker's request with the slice that waits for its size, where that is the only write that follows.

The slice that holds the quota is not written then. A crash before the write leaves the message unacknowledged; after it
the request stands on the slice that waits (docs/decisions/0105).
"""

from collections.abc import Callable

import msgspec

from slicebus.decisions.commands import Command, Create, Patch, PatchEach, Remove
from slicebus.manager.decide.manifests import with_annotations
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names


def with_slice(view: JobView, commands: list[Command], reconcile: Callable[[JobView], list[Command]]) -> list[Command]:
    """The commands of a request with its slice; `commands` where the request is to be written by itself.

    `reconcile` gives what a job needs. It is asked about the job as it is after the write of the request alone: a new
    slice has the request from there.
    """
    match commands:
        case [Patch(target=target, body={"metadata": {"annotations": dict() as request}, **others}) as noted] if (
            request.keys() == {api_names.REQUESTED_ANNOTATION} and not others
        ):
            following = reconcile(view.with_workload(with_annotations(target, noted)))
        case _:
            return commands
    match [command for command in following if isinstance(command, Create | Patch | PatchEach | Remove)]:
        case [Create()]:
            return following
        case [Patch(target=waiting, body={"spec": spec, **others}, subresource="") as resized] if (
            not others and _is_waiting(view, waiting)
        ):
            joined = msgspec.structs.replace(resized, body={"spec": spec, "metadata": {"annotations": request}})
            return [joined if command is resized else command for command in following]
        case _:
            return commands


def _is_waiting(view: JobView, workload: Manifest) -> bool:
    return any(view.workload(slice) is workload for slice in view.unfinished if slice.admission is None)
