"""The next step of a job's outbox: a table gives it by the state of the outbox and by what is wanted of the worker.

`step` says what to do, and `next_version` makes the dispatch to write. `dispatch` makes the orders themselves.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import JOB_RESOURCES, WORKLOADS, Resource
from slicebus.manager.decide.manifests import annotation_patch
from slicebus.manager.state.outbox import HOLDING, Dispatch, Held, Outbox, OutboxState, Progress
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names

NO_DISPATCH: Final = Dispatch(version=0, hash="")
"""Before the first dispatch."""


class OutboxStep(StrEnum):
    """What to do so that a worker holds what is wanted."""

    NOTHING = "nothing"
    """The worker holds it, or its report is awaited."""
    PUBLISH = "publish"
    """The dispatch is written: publish it, again if need be."""
    WRITE = "write"
    """Write it as the next version, and publish it."""
    WITHDRAW = "withdraw"
    """The worker has a copy that cannot become that, or is deleting one: withdraw that copy first."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker shall hold from now on."""

    record: Dispatch
    """The dispatch, without its version and without what it takes over from the one before."""
    on: Manifest
    """The object that it is recorded on."""
    must_answer: bool = False
    """Whether the worker waits for the answer to the request that the dispatch names."""


_NOTHING, _PUBLISH, _WRITE, _WITHDRAW = OutboxStep


def _row(*, hold: OutboxStep, suspended: OutboxStep, absent: OutboxStep) -> Mapping[Held, OutboxStep]:
    return {Held.HOLD: hold, Held.SUSPENDED: suspended, Held.ABSENT: absent}


STEPS: Mapping[OutboxState, Mapping[Held, OutboxStep]] = {
    OutboxState(Held.HOLD, Progress.WRITTEN): _row(hold=_PUBLISH, suspended=_WRITE, absent=_WRITE),
    OutboxState(Held.HOLD, Progress.PUBLISHED): _row(hold=_NOTHING, suspended=_WRITE, absent=_WRITE),
    OutboxState(Held.HOLD, Progress.APPLIED): _row(hold=_NOTHING, suspended=_WRITE, absent=_WRITE),
    OutboxState(Held.HOLD, Progress.LOST): _row(hold=_WRITE, suspended=_WRITE, absent=_WRITE),
    OutboxState(Held.SUSPENDED, Progress.WRITTEN): _row(hold=_WRITE, suspended=_PUBLISH, absent=_WRITE),
    OutboxState(Held.SUSPENDED, Progress.PUBLISHED): _row(hold=_WRITE, suspended=_NOTHING, absent=_WRITE),
    OutboxState(Held.SUSPENDED, Progress.APPLIED): _row(hold=_WRITE, suspended=_NOTHING, absent=_WRITE),
    OutboxState(Held.SUSPENDED, Progress.LOST): _row(hold=_WRITE, suspended=_WRITE, absent=_WRITE),
    OutboxState(Held.ABSENT, Progress.WRITTEN): _row(hold=_WITHDRAW, suspended=_WITHDRAW, absent=_PUBLISH),
    OutboxState(Held.ABSENT, Progress.PUBLISHED): _row(hold=_WITHDRAW, suspended=_WITHDRAW, absent=_NOTHING),
    OutboxState(Held.ABSENT, Progress.APPLIED): _row(hold=_WRITE, suspended=_NOTHING, absent=_NOTHING),
}
"""The step by what the worker shall hold, how far that has come, and what is wanted. A lost delete is read as a lost
copy: see `Dispatch.held`."""


def step(view: JobView, wanted: Wanted) -> OutboxStep:
    """The next step: the one of the table, unless something outside the outbox holds it up or makes it easier."""
    held, follows = wanted.record.held, _step(view, wanted)
    if not view.in_fleet:
        # No agent is left to delete a copy or to report that.
        unhindered = OutboxStep.WRITE if follows is OutboxStep.WITHDRAW else follows
        return unhindered if held is Held.HOLD else OutboxStep.NOTHING
    if held is Held.ABSENT and follows is OutboxStep.WRITE and view.deletes_held:
        return OutboxStep.NOTHING
    return follows


def _step(view: JobView, wanted: Wanted) -> OutboxStep:
    held = wanted.record.held
    if _needs_another_copy(view, wanted.record):
        return OutboxStep.WITHDRAW
    if view.state.held is held and not _is_recorded(view.outbox, wanted):
        return OutboxStep.WRITE
    return STEPS[view.state][held]


def _needs_another_copy(view: JobView, wanted: Dispatch) -> bool:
    """Whether the worker's copy cannot become what is wanted.

    A suspended job may have been admitted to another cluster, or to other flavors. A copy that is gone without an order
    cannot be suspended.
    """
    match view.state.held, wanted.held:
        case Held.SUSPENDED, Held.HOLD:
            assert view.outbox is not None
            return view.cluster != wanted.cluster or view.outbox.record.place not in ("", wanted.place)
        case ((Held.HOLD | Held.SUSPENDED), Held.SUSPENDED):
            return view.vanished
        case _:
            return False


def _is_recorded(outbox: Outbox | None, wanted: Wanted) -> bool:
    """Whether the newest dispatch says what is wanted, on the same object."""
    if outbox is None or outbox.recorded_on is not wanted.on:
        return False
    recorded, wished = outbox.record, wanted.record
    if (recorded.hash, recorded.bounds, recorded.taken_back) != (wished.hash, wished.bounds, wished.taken_back):
        return False
    if wished.suspended and recorded.notice_s and not wished.notice_s:
        return False
    return recorded.answers == wished.answers or not wanted.must_answer


def next_version(outbox: Outbox | None, wanted: Dispatch) -> Dispatch:
    """The wanted dispatch as the next version, with what it takes over from the one before."""
    version = outbox.seen + 1 if outbox is not None else 1
    last, withdraws = outbox.record if outbox is not None else NO_DISPATCH, wanted.held is Held.ABSENT
    is_same_copy = last.has_copy and last.autoscaled is not msgspec.UNSET and not withdraws
    left_copies = {
        cluster: version for cluster, version in last.left_copies.items() if cluster != wanted.cluster or withdraws
    }
    return msgspec.structs.replace(
        wanted,
        version=version,
        previous_cluster=last.cluster if last.cluster != wanted.cluster else last.previous_cluster,
        since=last.since if last.held is Held.HOLD else version,
        cleared=last.version if last.held is Held.ABSENT else last.cleared,
        autoscaled=last.autoscaled if is_same_copy else wanted.autoscaled,
        lost_version=last.lost_version if outbox is not None and not _is_there(outbox) else msgspec.UNSET,
        left_copies=left_copies,
        unknown_end=wanted.unknown_end or (last.unknown_end if withdraws else msgspec.UNSET),
        moved=msgspec.UNSET if outbox is None or outbox.state() == HOLDING else last.moved,
    )


def _is_there(outbox: Outbox) -> bool:
    """Whether the worker has reported an order since it lost a copy, or has lost none."""
    return outbox.is_reported and not outbox.record.is_without_copy


def write(
    record: Dispatch, on: Manifest, *, applied: int | None = None, more: Mapping[str, str] = MappingProxyType({})
) -> Command:
    """The write of a dispatch on a Workload, or on the job; with `applied` also of the version that is reported.

    `more`: other annotations.
    """
    annotations = {**more, api_names.DISPATCHED_ANNOTATION: record.to_annotation()}
    if applied is not None:
        annotations[api_names.APPLIED_ANNOTATION] = str(applied)
    # A job whose annotations are full is let go all the same: its next run waits for an inventory.
    body, is_copy = {"metadata": {"annotations": annotations}}, on["kind"] != WORKLOADS.kind
    return Patch(resource=_resource_of(on), target=on, body=body, only_shows=is_copy)


def write_applied(outbox: Outbox) -> Command:
    """The write that records the newest dispatch as reported."""
    body = annotation_patch(api_names.APPLIED_ANNOTATION, str(outbox.record.version))
    return Patch(resource=_resource_of(outbox.recorded_on), target=outbox.recorded_on, body=body)


def _resource_of(manifest: Manifest) -> Resource:
    return WORKLOADS if manifest["kind"] == WORKLOADS.kind else JOB_RESOURCES[manifest["kind"]]
