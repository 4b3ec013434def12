"""Runs a manager or agent through its life: probes first, then connections, then the Lease, then the work."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import structlog
from prometheus_client import CollectorRegistry
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.cancellation import TaskGroup
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.metering import MeteredBus
from slicebus.journal.recorder import WAIT_S, Recorder
from slicebus.journal.recording import Source
from slicebus.kube.client import KubeClient
from slicebus.kube.informers import Informers
from slicebus.kube.lease import LeaderElection, acquire_first
from slicebus.kube.resources import Resource
from slicebus.kube.schemas import misfit
from slicebus.proto.errors import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    SlicebusError,
    TransientError,
)
from slicebus.runtime.broker import show_blocked
from slicebus.runtime.garbage import spared
from slicebus.runtime.health import health_server
from slicebus.runtime.leadership import annotations
from slicebus.runtime.role_metrics import RoleMetrics, show_process
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.jobs import LEFT_OUT

_log = structlog.get_logger()
_BACKOFF = Backoff(first_s=0.2, most_s=5.0)
_ABSENT = (TransientError, ConflictError, ForbiddenError, InvalidError, NotFoundError)
"""The answers of a moment: somebody makes or allows it later, or the server is back. A ConfigurationError is none."""
_RENEWALS = 3
"""A role is not ready after so many renewals of its Lease without an answer."""

Settings = TypeVar("Settings", bound=RoleSettings)
Result = TypeVar("Result")


class Role(ABC, Generic[Settings]):
    """Is a manager or an agent, on a connected client and bus that the caller closes. One process at a time leads, by a
    Lease."""

    component: ClassVar[str]
    """The name of the Lease, the field manager and the reporter of Events."""
    record_wait_s: ClassVar[float] = WAIT_S
    """How long a record of a decision waits for others of its batch, in seconds."""

    def __init__(self, settings: Settings, client: KubeClient, bus: Bus, registry: CollectorRegistry) -> None:
        self._settings = settings
        self._client = client = client.metered(registry)
        self._bus = MeteredBus(bus, registry)
        self._registry = registry
        show_blocked(registry, bus)
        self._candidates = [self.election(name) for name in self.leases()]
        self._lease = self._candidates[0]
        self._informers: Informers | None = None
        self._epoch: int | None = None
        self._refusal = ""
        self.refused: Callable[[], Mapping[Any, str]] = dict
        """The jobs for which the API server refuses what they need, with its words."""
        self.refused_clusters: Callable[[], Mapping[Any, str]] = dict
        """The worker clusters whose status the API server refuses to write, with its words."""
        self.unkept: Callable[[], Mapping[Any, str]] = dict
        """The role's own objects that the API server does not let it write, with its words."""
        self.begun = asyncio.Event()
        """Set once the role begins to read the objects that it works on."""
        self.leading = asyncio.Event()
        """Set once the role does its work."""

    def leases(self) -> Sequence[str]:
        """The names of the Leases, of which it holds one."""
        return [self.component]

    @property
    def leads(self) -> Mapping[str, bool]:
        """Each Lease that it may hold, and whether it holds that one and works."""
        works = self.leading.is_set() and not self.not_ready()
        return {
            name: works and candidate is self._lease
            for name, candidate in zip(self.leases(), self._candidates, strict=True)
        }

    @property
    def connected(self) -> bool:
        """Whether it has a connection to the broker."""
        return self._bus.connected

    def election(self, lease: str) -> LeaderElection:
        """This process as a candidate for a Lease."""
        return LeaderElection(
            self._client,
            namespace=self._settings.namespace,
            name=lease,
            identity=self._settings.identity,
            duration_s=self._settings.lease_s,
            renew_s=self._settings.lease_renew_s,
            notes=self.notes,
        )

    @abstractmethod
    async def prepare(self) -> None:
        """Return when the broker has what the role needs, and lets it use that. NotFoundError and ForbiddenError are
        retried as transient errors are: somebody may make or allow it later."""

    @abstractmethod
    async def lead(self, epoch: int) -> None:
        """Do the role's work until cancelled."""

    def recorder(self, source: Source) -> Recorder | None:
        """The recorder of this role's decisions; None where the settings record none."""
        if not self._settings.record_decisions:
            return None
        return Recorder(self._bus, source, registry=self._registry, wait_s=self.record_wait_s)

    def informers(
        self,
        optional: Iterable[Resource],
        *,
        unserved: MutableMapping[str, str],
        definitions: MutableMapping[str, str],
        namespaces: Collection[str] = (),
    ) -> Informers:
        """Make the informers that feed this role's caches, in these namespaces, or in all. The role waits for every
        resource that is not `optional`."""
        informers = Informers(
            self._client,
            optional=frozenset(optional),
            unserved=unserved,
            definitions=definitions,
            namespaces=namespaces,
            fits=partial(misfit, self._client),
        )
        self._informers = informers
        return informers

    def not_ready(self) -> str:
        """The reason why it does not work; empty while it leads or stands by in working order."""
        if not self._bus.connected:
            return "there is no connection to the broker"
        if self._bus.blocked:
            return f"the broker takes nothing from publishers: {self._bus.blocked}"
        if self._refusal:
            return f"waits: {self._refusal}"
        if self._lease.problem:
            return f"waits for the Lease: {self._lease.problem}"
        if self._lease.silent_s > _RENEWALS * self._settings.lease_renew_s:
            return "the API server has not answered for the Lease"
        awaited = self._informers.awaited if self._informers else []
        if awaited:
            return f"waits: {'; '.join(awaited)}"
        is_starting = self._epoch is not None and not self.leading.is_set()
        return "has the Lease, and begins" if is_starting else ""

    def notes(self) -> dict[str, str | None]:
        """The annotations of its Lease."""
        left_out = self._informers.left_out if self._informers else []
        return annotations(
            not_ready=self.not_ready(),
            left_out=[*left_out, *LEFT_OUT.values()],
            refused=self.refused(),
            refused_clusters=self.refused_clusters(),
            unkept=self.unkept(),
        )

    async def run(self) -> None:
        """Wait for the Lease, then lead until cancelled. Raises LeaseLost or DefinitionLost in an exception group."""
        for name, reason in LEFT_OUT.items():
            _log.error("job_kind.left_out", source=name, reason=reason)
        self._lease, epoch = await acquire_first(self._candidates)
        self._epoch = epoch
        async with TaskGroup() as group:
            group.create_task(self._lease.hold(), name="lease")
            group.create_task(self._begin(epoch), name="lead")

    async def run_alone(self) -> None:
        """Run in a process that has nothing else to do."""
        async with spared(begun=self.begun, leading=self.leading):
            await self.run()

    async def _begin(self, epoch: int) -> None:
        await self.until_allowed("broker", self.prepare)
        self.begun.set()
        await self.lead(epoch)

    async def until_allowed(self, awaited: str, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call the broker or the API server until it has and allows what the call needs, and return the result. Until
        then the role says what is missing."""

        def waiting(error: SlicebusError) -> None:
            self.waits_for(str(error))

        result = await retry_until_available(awaited, call, on=_ABSENT, waiting=waiting)
        self.waits_for("")
        return result

    def waits_for(self, reason: str) -> None:
        """Say what it waits for; empty for nothing."""
        self._refusal = reason


async def retry_until_available(
    awaited: str,
    call: Callable[[], Awaitable[Result]],
    *,
    on: tuple[type[SlicebusError], ...] = (TransientError,),
    waiting: Callable[[SlicebusError], None] = lambda _: None,
) -> Result:
    """Make a call that a role needs to start, and return its result. Errors of the types `on` are retried without end,
    and `waiting` gets each of them. `awaited` names the call in the log."""

    async def attempt() -> Result:
        return await call()

    def log_attempt(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("role.waiting", what=awaited, error=str(error))
        if isinstance(error, SlicebusError):
            waiting(error)

    attempts = AsyncRetrying(
        retry=retry_if_exception_type(on),
        wait=_BACKOFF,
        before_sleep=log_attempt,
    )
    return await attempts(attempt)


async def run_role(role: type[Role[Settings]], settings: Settings, *, name: str) -> None:
    """Connect as `name`, serve the probes, and work until cancelled.

    A role waits for a broker that is unreachable or refuses the user, alive and not ready: a restart would only make
    the wait longer. A password may change in its Secret before the broker knows it. A standby is ready while it waits
    for the Lease.
    """
    registry, working, refusal = CollectorRegistry(), list[Role[Settings]](), "waits for the broker"

    def not_ready() -> str:
        return working[0].not_ready() if working else refusal

    show_process(
        registry,
        RoleMetrics(name=role.component, access=settings.access, role=lambda: working[0] if working else None),
    )

    async def connected() -> Bus:
        return await connect(settings.amqp_url, name=name, settings=settings.bus, access=settings.access)

    def refused(error: SlicebusError) -> None:
        nonlocal refusal
        refusal = str(error)

    async with (
        health_server(settings.health_address, not_ready=not_ready, registry=registry),
        await KubeClient.connect(kubeconfig=settings.kubeconfig) as client,
    ):
        bus = await retry_until_available("broker", connected, on=(ForbiddenError,), waiting=refused)
        try:
            working.append(role(settings, client, bus, registry))
            await working[0].run_alone()
        finally:
            await bus.aclose()
