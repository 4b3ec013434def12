"""Who gives quota: the manager itself, or a Kueue on its cluster. Everything that depends on that is one interface."""

from typing import ClassVar, Protocol

from slicebus.decisions.commands import Command
from slicebus.kube.cache import Change
from slicebus.manager.decide import beside_kueue, builtin, change_filter, intake, kueue_checks, kueue_status, verdicts
from slicebus.manager.state.requirements import is_nearly_managed
from slicebus.manager.state.store import Store
from slicebus.manager.state.views import JobView
from slicebus.proto.messages import Status
from slicebus.slices.admission import Decision, Evict
from slicebus.slices.fleet import Fleet, Strategy
from slicebus.slices.workload import Slice


class AdmissionMode(Protocol):
    """What the manager does otherwise by who gives quota. Pure functions of the store and of views of it."""

    keeps_reports: ClassVar[bool]
    """Whether the last status of each job is kept: what its job shows then depends on more than that status."""

    def needs_reconcile(self, change: Change) -> bool:
        """Whether a change of a job or of one of its Workloads has the job reconciled."""

    def is_ours(self, view: JobView) -> bool:
        """Whether a job that lacks what slicebus needs is to be told what that is."""

    def reconcile(self, store: Store, view: JobView, now: str) -> list[Command]:
        """Everything that is to be done for a job that slicebus runs."""

    def apply(self, view: JobView, slice: Slice, decision: Decision, *, now: str) -> list[Command]:
        """The writes of a decision about a slice."""

    def mirror(self, view: JobView, report: Status, now: str) -> list[Command]:
        """What a worker's status changes on the manager."""


class Builtin:
    """The manager gives quota."""

    keeps_reports: ClassVar[bool] = False

    def needs_reconcile(self, change: Change) -> bool:
        """Only what somebody decides by: most changes are mirrored from the worker."""
        return change_filter.needs_reconcile(change)

    def is_ours(self, view: JobView) -> bool:
        """Its user asks for one half of what slicebus does, and expects the other."""
        return view.job is not None and is_nearly_managed(view.job)

    def reconcile(self, store: Store, view: JobView, now: str) -> list[Command]:
        """The chain follows the desired size, and the worker follows the chain."""
        return builtin.decide(view, now)

    def apply(self, view: JobView, slice: Slice, decision: Decision, *, now: str) -> list[Command]:
        """Quota and admission, the reason to wait, or the eviction."""
        return verdicts.commands(view, slice, decision, now=now)

    def mirror(self, view: JobView, report: Status, now: str) -> list[Command]:
        """The status as it is, and whether the pods are ready."""
        return intake.mirror(view, report, now)


class BesideKueue:
    """A Kueue gives quota; the manager answers its AdmissionCheck."""

    keeps_reports: ClassVar[bool] = True

    def needs_reconcile(self, change: Change) -> bool:
        """Everything: Kueue may have written it."""
        return True

    def is_ours(self, view: JobView) -> bool:
        """Its Workload has our check; other queues have nothing to do with slicebus."""
        return any(kueue_checks.entry_of(view.workload(slice), view.checks) for slice in view.unfinished)

    def reconcile(self, store: Store, view: JobView, now: str) -> list[Command]:
        """The worker follows the slice, Kueue follows the worker's request, and the check follows the worker."""
        clusters, ledger = [cluster.place for cluster in store.quotas.worker_clusters], store.quotas.ledger
        places = beside_kueue.Places(
            clusters=frozenset(cluster.name for cluster in clusters),
            fleet=Fleet(clusters, ledger.load, ledger.granted),
            strategy=Strategy(store.settings.get("placement_strategy", Strategy.SPREAD)),
        )
        return beside_kueue.decide(view, places, now)

    def apply(self, view: JobView, slice: Slice, decision: Decision, *, now: str) -> list[Command]:
        """Kueue is asked to evict; everything else it decides itself."""
        return beside_kueue.ask_to_evict(view, slice, decision, now=now) if isinstance(decision, Evict) else []

    def mirror(self, view: JobView, report: Status, now: str) -> list[Command]:
        """As much of the status as Kueue may see now."""
        return kueue_status.take(view, report, now)


_BUILTIN, _BESIDE_KUEUE = Builtin(), BesideKueue()


def mode_of(store: Store) -> AdmissionMode:
    """The mode that the manager runs in, by its settings in the store."""
    return _BESIDE_KUEUE if store.beside_kueue else _BUILTIN
