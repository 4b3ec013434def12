"""Reconciles a job whenever one of its objects has changed: the handler of the manager's work queue."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from slicebus.ambient.lasting_failures import OBJECT_PATIENCE, LastingFailures
from slicebus.decisions.commands import Emit
from slicebus.decisions.decider import Decider
from slicebus.kube.times import now_text
from slicebus.manager.act.delete_guard import DeleteGuard
from slicebus.manager.act.resyncer import Resyncer
from slicebus.manager.decide import catalog
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    PermanentError,
    TransientError,
    UnavailableError,
)
from slicebus.proto.messages import JobRef
from slicebus.runtime.executor import Executor
from slicebus.runtime.locks import Locks

_log = structlog.get_logger()
_WRITES = 3
"""The condition and the annotation, and one of them again where somebody else has written."""


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
        retry: Callable[[JobRef], Awaitable[PermanentError | UnavailableError | None]],
    ) -> None:
        """`retry` handles the messages about a job again whose writes were refused, and returns the last refusal."""
        self._decide = decide
        self._executor = executor
        self._locks = locks
        self._guard = guard
        self._resyncer = resyncer
        self._retry = retry
        self._failures = LastingFailures[JobRef](OBJECT_PATIENCE)

    async def reconcile_job(self, ref: JobRef) -> None:
        """Do everything that one job needs now. A PermanentError gets an Event on the job, and is raised; so does a
        webhook that does not answer, and an API server that fails for long. A DecisionError is raised too: the job
        shows it until a decision about it succeeds."""
        async with self._locks.of(ref):
            refused = await self._retry(ref)
            try:
                deletes_held = await self._guard.holds(ref)
                commands = self._decide(catalog.reconcile_job, job=ref, deletes_held=deletes_held, now=now_text())
                await self._executor.run(commands)
            except (PermanentError, UnavailableError) as error:
                job = self._decide.state.view(ref).job
                told = self._failures.has_lasted(ref, error, now_s=asyncio.get_running_loop().time())
                if told and job is not None:
                    failed = Emit(regarding=job, reason="ReconcileFailed", note=str(error), warning=True)
                    await self._executor.run([failed])
                raise
            except DecisionError as error:
                await self._show(ref, error)
                raise
            self._failures.forget(ref)
            await self._resyncer.delete_strays(ref)
            if refused is not None:
                raise refused

    async def _show(self, ref: JobRef, error: DecisionError) -> None:
        """Show on a job that it is set aside. What cannot be written now is written after the next try."""
        for _ in range(_WRITES):
            try:
                shown = self._decide(catalog.show_set_aside, job=ref, problem=str(error), now=now_text())
                await self._executor.run(shown)
            except ConflictError:
                continue
            except (DecisionError, PermanentError, TransientError) as unwritten:
                _log.warning("job.unshown", job=ref.key, error=str(unwritten))
            return
