"""Adds to the writes for a worker's message, beside a Kueue, what the next reconcile would write: one write does for
both.

Each write of a Workload or of a job goes through Kueue's webhooks (docs/decisions/0055).
"""

import msgspec

from slicebus.decisions.commands import Command, Patch
from slicebus.manager.decide.kueue import beside_kueue, kueue_checks
from slicebus.manager.decide.kueue.beside_kueue import Places
from slicebus.manager.decide.manifests import with_annotations
from slicebus.manager.state.outbox import HOLDING
from slicebus.manager.state.views import JobView
from slicebus.slices.api.conditions import with_findings


def with_applied(view: JobView, commands: list[Command], *, now: str) -> list[Command]:
    """The commands of a report that an order is applied, with the answer of the check."""
    holder, last = view.holder, commands[-1] if commands else None
    if holder is None or not isinstance(last, Patch) or last.target is not view.workload(holder):
        return commands
    workload = view.workload(holder)
    after = view.with_workload(with_annotations(workload, last))
    if after.state != HOLDING or after.outbox is None:
        return commands
    match beside_kueue.answer(after, holder, kueue_checks.entry_of(workload, view.checks), now):
        case [Patch(body={"status": dict() as status}) as ready]:
            conditions = with_findings(workload, after.outbox.applied_finding(), now=now)
            body = {"status": status | {"conditions": conditions}}
            return [*commands[:-1], msgspec.structs.replace(ready, target=workload, body=body)]
        case _:
            return commands


def with_request(view: JobView, commands: list[Command], places: Places, *, now: str) -> list[Command]:
    """The commands of a request, with the write of its counts into the job's spec, where Kueue reads them. Where its
    note is written and that write was refused, there is only that one."""
    job, after = view.job, msgspec.structs.replace(view, refused_request=None)
    if job is None or view.holder is None:
        return commands
    match commands:
        case []:
            pass
        case [Patch() as noted] if noted.target is view.workload(view.holder):
            after = after.with_workload(with_annotations(noted.target, noted))
        case _:
            return commands
    follows = beside_kueue.reconcile(after, places, now)
    written = (one for one in follows if isinstance(one, Patch) and one.target is job and not one.subresource)
    return [*commands, *(one for one in written if isinstance(one.body, dict) and "spec" in one.body)]
