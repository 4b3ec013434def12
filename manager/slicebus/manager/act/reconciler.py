"""Reconciles a job whenever one of its objects has changed: the handler of the manager's work queue."""

from slicebus.decisions.commands import Emit
from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.decide import catalog
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import PermanentError
from slicebus.proto.messages import JobRef
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks


class ManagerReconciler:
    """Decides what one job needs, and carries it out."""

    def __init__(
        self,
        decide: Decider[ManagerStore],
        executor: Executor,
        *,
        locks: Locks[JobRef],
        guard: DeleteGuard,
        resyncer: Resyncer,
    ) -> None:
        self._decide = decide
        self._executor = executor
        self._locks = locks
        self._guard = guard
        self._resyncer = resyncer

    async def reconcile_job(self, ref: JobRef) -> None:
        """Do everything that one job needs now. A PermanentError gets an Event on the job, and is raised."""
        async with self._locks.of(ref):
            deletes_held = await self._guard.holds(ref)
            try:
                commands = self._decide(catalog.reconcile_job, job=ref, deletes_held=deletes_held, now=now_text())
                await self._executor.run(commands)
            except PermanentError as error:
                if (job := self._decide.state.view(ref).job) is not None:
                    failed = Emit(regarding=job, reason="ReconcileFailed", note=str(error), warning=True)
                    await self._executor.run([failed])
                raise
            await self._resyncer.delete_strays(ref)
