"""Decides which changes of a job or a Workload have the job reconciled.

Where a Kueue admits, all have but one (`is_other_refusal`). What follows is of a manager that admits.

No decision depends on a running job's mirrored status (`status_mirror`). A released Workload needs nothing. Nor does a
report that the worker has applied the dispatch, when nothing has waited for it. A new slice waits for its admission,
which changes it in any case. A worker that refuses an order in other words than before has nothing reconciled: the
order would be published again at once.
"""

from slicebus.kube.cache import Change
from slicebus.manager.decide.manifests import has_finalizer
from slicebus.manager.decide.order import withheld
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.outbox import HOLDING, Outbox
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.copies import without
from slicebus.slices.workload.reclaimed import Reclaimed


def needs_reconcile(change: Change) -> bool:
    """Whether a reconcile may have more commands after a change than before it."""
    if change.old is None or change.new is None:
        return not change.is_own
    ignored = _ignored(change.new)
    return _relevant(change.old, ignored) != _relevant(change.new, ignored)


def is_other_refusal(change: Change) -> bool:
    """Whether a worker has refused an order in other words than before, and nothing else has changed."""
    if change.old is None or change.new is None or not any(map(_is_refusal, conditions_of(change.new))):
        return False
    return change.old != change.new and _without_words(change.old) == _without_words(change.new)


def _without_words(manifest: Manifest) -> tuple[object, ...]:
    """All of an object, of a refusal only that there is one."""
    return (
        without(manifest, ("metadata", "status")),
        without(manifest["metadata"], ("resourceVersion", "managedFields")),
        without(manifest.get("status", {}), ("conditions",)),
        list(map(_known, conditions_of(manifest))),
    )


def _ignored(manifest: Manifest) -> frozenset[str]:
    """The metadata and annotations whose present value needs no reconcile, whatever it was before."""
    let_go = () if has_finalizer(manifest) else ("finalizers",)
    answered = (api_names.APPLIED_ANNOTATION,) if _holds_as_dispatched(manifest) else ()
    return frozenset(("resourceVersion", *let_go, *answered))


def _holds_as_dispatched(manifest: Manifest) -> bool:
    """Whether the worker has applied the dispatch, and nothing has waited for that.

    The steps after a suspend and a delete wait for it. So does the dispatch of a job whose pods were edited before its
    worker had a copy (`builtin._reconcile_chain`): the slice shows that, or has finished. A job that is given more than
    somebody asked for grows when its worker knows.
    """
    outbox = Outbox.from_manifest(manifest)
    if outbox is None or outbox.state() != HOLDING:
        return False
    note = Reclaimed.from_annotation(annotation(manifest, api_names.RECLAIMED_ANNOTATION))
    if note is not None and note.grows and not note.done:
        return False
    statuses = {(condition["type"], condition["status"]) for condition in conditions_of(manifest)}
    return statuses.isdisjoint(((api_names.RESIZABLE_CONDITION, "False"), (Condition.FINISHED, "True")))


def _relevant(manifest: Manifest, ignored: frozenset[str]) -> tuple[object, ...]:
    """Everything else that decisions depend on; of a job's status its conditions and its outcome."""
    metadata, status, kind = manifest["metadata"], manifest.get("status", {}), KINDS.get(manifest["kind"])
    return (
        without(metadata, ignored | {"annotations"}),
        without(metadata.get("annotations", {}), ignored),
        manifest.get("spec"),
        [_known(condition) for condition in conditions_of(manifest) if condition["type"] != Condition.PODS_READY],
        kind.outcome(manifest) if kind else without(status, ("conditions",)),
    )


def _known(condition: Manifest) -> object:
    """What decisions read of a condition."""
    return condition["type"] if _is_refusal(condition) else condition


def _is_refusal(condition: Manifest) -> bool:
    """Whether a worker refuses an order. Why the manager withholds one is no word of a worker."""
    is_shown = (condition["type"], condition.get("status")) == (api_names.DISPATCHED_CONDITION, "False")
    return is_shown and condition.get("reason") not in withheld.REASONS
