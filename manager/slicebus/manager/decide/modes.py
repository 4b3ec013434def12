"""The two modes of admission: the manager gives quota, or a Kueue on its cluster does. Both have one interface."""

from collections.abc import Callable
from typing import ClassVar, Protocol

from slicebus.decisions.commands import Command
from slicebus.kube.cache import Change
from slicebus.manager.decide.admission import admission_writes, admitting, builtin, change_filter, requesting
from slicebus.manager.decide.job import status_mirror, unmanaged, unshown_ends, waiting
from slicebus.manager.decide.kueue import beside_kueue, kueue_checks, kueue_messages, kueue_status
from slicebus.manager.state.annotations import annotation
from slicebus.manager.state.requirements import is_managed, is_nearly_managed
from slicebus.manager.state.store import ManagerStore
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Manifest, Status
from slicebus.slices.admission.cycle import Admit, Decision, Evict, Grow, Shrink
from slicebus.slices.api import api_names
from slicebus.slices.placement.fleet import Fleet
from slicebus.slices.workload.workload import Slice


class AdmissionMode(Protocol):
    """What differs between the modes of admission, as pure functions of the store and its views."""

    keeps_reports: ClassVar[bool]
    """Whether the store keeps the last status of each job, because what the job shows depends on more than that."""

    def needs_reconcile(self, change: Change) -> bool:
        """Whether a change of a job or of one of its Workloads has the job reconciled."""

    def show_unmanaged(self, view: JobView, job: Manifest, *, now: str) -> list[Command]:
        """Show on a job, once, that slicebus does not act by its metadata."""

    def reconcile(self, store: ManagerStore, view: JobView, now: str) -> list[Command]:
        """The commands for everything that a managed job needs now."""

    def go_on_ending(self, view: JobView) -> list[Command]:
        """The commands for a job whose kind is left out: it is withdrawn if that was recorded before, and its Workloads
        that are being deleted are released."""

    def apply(self, view: JobView, slice: Slice, decision: Decision, *, in_turn: bool, now: str) -> list[Command]:
        """The writes of a decision about a slice. `in_turn`: nobody else writes for the job meanwhile."""

    def with_request(self, store: ManagerStore, view: JobView, commands: list[Command], now: str) -> list[Command]:
        """The writes of a worker's request for another size, with what follows from it at once."""

    def with_applied(self, view: JobView, commands: list[Command], now: str) -> list[Command]:
        """The writes of a report that a worker has applied an order, with what follows from it at once."""

    def mirror(self, view: JobView, report: Status, now: str) -> list[Command]:
        """The writes of a worker's status on the manager."""


class Builtin:
    """The manager gives quota."""

    keeps_reports: ClassVar[bool] = False

    def needs_reconcile(self, change: Change) -> bool:
        """Only after changes that decisions depend on: most changes are mirrored from the worker."""
        return change_filter.needs_reconcile(change)

    def show_unmanaged(self, view: JobView, job: Manifest, *, now: str) -> list[Command]:
        """Show it on a job that was taken, or that meets only a part of the requirements: its user seems to expect
        slicebus."""
        if view.is_taken:
            return unmanaged.run_on(view, job)
        return unmanaged.left_alone(job, is_ours=is_nearly_managed(job), fixed_jobs=view.fixed_jobs, now=now)

    def reconcile(self, store: ManagerStore, view: JobView, now: str) -> list[Command]:
        """Make the chain follow the desired size, and dispatch it to the worker."""
        commands = waiting.extend(builtin.reconcile(view, now), view) or unshown_ends.show_again(view, now=now)
        return [*unshown_ends.requeue_after(view), *commands]

    def go_on_ending(self, view: JobView) -> list[Command]:
        """Delete the copy if one was dispatched, and release the Workloads."""
        return _go_on_ending(view, builtin.end)

    def apply(self, view: JobView, slice: Slice, decision: Decision, *, in_turn: bool, now: str) -> list[Command]:
        """Write quota and admission, with `in_turn` also the order; or the reason to wait; or the eviction. Nothing is
        admitted, and nothing taken back, while edits of the job are due on its slices."""
        if isinstance(decision, Admit | Shrink | Grow) and admitting.comes_too_early(view):
            return []
        commands = admitting.commands if in_turn else admission_writes.commands
        return commands(view, slice, decision, now=now)

    def with_request(self, store: ManagerStore, view: JobView, commands: list[Command], now: str) -> list[Command]:
        """Write the request with the slice that waits for its size, where nothing else follows. A refusal that the job
        shows is taken off by the reconcile after a write of the request alone."""
        if view.refused_request is not None or view.ref.kind in store.unserved:
            return commands
        return requesting.with_slice(view, commands, lambda after: self.reconcile(store, after, now))

    def with_applied(self, view: JobView, commands: list[Command], now: str) -> list[Command]:
        """Add nothing."""
        return commands

    def mirror(self, view: JobView, report: Status, now: str) -> list[Command]:
        """Write the status as it is, and whether the pods are ready."""
        return status_mirror.mirror(view, report, now)


class BesideKueue:
    """A Kueue gives quota; the manager answers its AdmissionCheck."""

    keeps_reports: ClassVar[bool] = True

    def needs_reconcile(self, change: Change) -> bool:
        """After every change, as Kueue may have made it, but that a worker refuses an order in other words."""
        return not change_filter.is_other_refusal(change)

    def show_unmanaged(self, view: JobView, job: Manifest, *, now: str) -> list[Command]:
        """Show it on a job whose Workload has our check: slicebus does not serve other queues. Kueue handles a changed
        queue. One that a worker has runs on."""
        is_told = annotation(job, api_names.UNHEEDED_ANNOTATION) is not None
        if not view.is_withdrawn and (is_told or not is_managed(job, fixed_jobs=False)):
            return unmanaged.run_on(view, job)
        is_ours = any(kueue_checks.entry_of(view.workload(slice), view.checks) for slice in view.unfinished)
        return unmanaged.left_alone(job, is_ours=is_ours, fixed_jobs=False, now=now)

    def reconcile(self, store: ManagerStore, view: JobView, now: str) -> list[Command]:
        """Dispatch the slice, pass the worker's request to Kueue, and answer the check."""
        commands = waiting.extend(beside_kueue.reconcile(view, _places(store, view), now), view)
        commands = commands or unshown_ends.show_again(view, now=now)
        return [*unshown_ends.requeue_after(view), *commands]

    def go_on_ending(self, view: JobView) -> list[Command]:
        """Only our own finalizer is removed: Kueue removes its own."""
        return _go_on_ending(view, beside_kueue.end)

    def apply(self, view: JobView, slice: Slice, decision: Decision, *, in_turn: bool, now: str) -> list[Command]:
        """Ask Kueue to evict; Kueue decides everything else."""
        return beside_kueue.ask_to_evict(view, slice, decision, now=now) if isinstance(decision, Evict) else []

    def with_request(self, store: ManagerStore, view: JobView, commands: list[Command], now: str) -> list[Command]:
        """Write the counts into the job's spec too."""
        return kueue_messages.with_request(view, commands, _places(store, view), now=now)

    def with_applied(self, view: JobView, commands: list[Command], now: str) -> list[Command]:
        """Answer the check in the same write, where the report makes it Ready."""
        return kueue_messages.with_applied(view, commands, now=now)

    def mirror(self, view: JobView, report: Status, now: str) -> list[Command]:
        """Write as much of the status as Kueue may see now."""
        return kueue_status.take(view, report, now)


_BUILTIN, _BESIDE_KUEUE = Builtin(), BesideKueue()


def _places(store: ManagerStore, view: JobView) -> beside_kueue.Places:
    clusters, ledger = [cluster.place for cluster in store.quotas.worker_clusters], store.quotas.ledger
    namespace = store.namespaces.get(None, view.ref.namespace)
    return beside_kueue.Places(
        clusters=frozenset(cluster.name for cluster in clusters),
        fleet=Fleet(clusters, ledger.load, ledger.granted),
        strategy=store.settings.placement_strategy,
        namespace_labels=(namespace["metadata"].get("labels") or {}) if namespace else {},
    )


def _go_on_ending(view: JobView, end: Callable[..., list[Command]]) -> list[Command]:
    if not view.is_withdrawing:
        return []
    return end(view, reason="JobDeleted", ended=[slice for slice in view.slices if slice.deleting])


def mode_of(store: ManagerStore) -> AdmissionMode:
    """The mode that the manager runs in, by its settings in the store."""
    return _BESIDE_KUEUE if store.beside_kueue else _BUILTIN
