"""Reads why granted pods are not made, from the Events of their job."""

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from slicebus.agent.decide.pods import pod_refusals
from slicebus.agent.state.store import AgentStore
from slicebus.agent.state.views import JobKey, WorkerView
from slicebus.ambient.clock import now
from slicebus.decisions.guard import guarded
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import EVENTS, JOB_RESOURCES
from slicebus.proto.errors import SlicebusError
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS

_log = structlog.get_logger()
_ROUND_S = 5.0
_LACKING_S = 10.0
"""How long a job may lack pods before its Events are read."""
_AGAIN_S = 30.0
"""How often the Events are read after that."""
_PAGE = 20
_MOST_PAGES = 10
"""What is read of the Events about one object. client-go writes some 40 in the hour for which they are kept; a tenant
may write any number, of a megabyte each."""
_MOST = 50
"""The most jobs whose Events are read in one round; those come first that were not read for longest."""


class PodRefusals:
    """Remembers which jobs lack pods, and reads their Events, round by round. Calls `changed` when there is news."""

    def __init__(self, store: AgentStore, client: KubeClient, *, changed: Callable[[JobKey], None]) -> None:
        self._store = store
        self._client = client
        self._changed = changed
        self._due: dict[JobKey, float] = {}
        """The jobs that lack pods, with the time of the loop at which their Events are read next."""

    def note(self, key: JobKey) -> None:
        """Note after a reconcile whether the job lacks pods."""
        if pod_refusals.lacking(self._store.view(key)):
            self._due.setdefault(key, asyncio.get_running_loop().time() + _LACKING_S)
            return
        self._due.pop(key, None)
        if self._store.refused_pods.pop(key, None) is not None:
            self._changed(key)

    async def run(self) -> None:
        """Read until cancelled. Events that cannot be read leave the reason as it was."""
        while True:
            await asyncio.sleep(_ROUND_S)
            time = asyncio.get_running_loop().time()
            due = sorted((key for key, at in self._due.items() if at <= time), key=self._due.__getitem__)
            about_makers: dict[str, list[Manifest]] = {}
            for key in due[:_MOST]:
                try:
                    await self._read(key, about_makers)
                except SlicebusError as error:
                    _log.warning("pod_refusals.unread", job=str(key), error=str(error))

    async def _read(self, key: JobKey, about_makers: dict[str, list[Manifest]]) -> None:
        """Read the Events of a job. `about_makers` are those of `OF_MAKERS` by namespace, which are read once a
        round."""
        self._due[key] = asyncio.get_running_loop().time() + _AGAIN_S
        events, view = [], self._store.view(key)
        for fields in pod_refusals.selectors(view):
            events += await self._events(key.namespace, fields)
        if KINDS[key.kind].pod_owners is None:
            if key.namespace not in about_makers:
                about_makers[key.namespace] = await self._events(key.namespace, pod_refusals.OF_MAKERS)
            has_job, others = partial(self._store.has_job, key.namespace), self._namesakes(key)
            of_namespace = about_makers[key.namespace]
            events += guarded(pod_refusals.of_makers, of_namespace, view, has_job=has_job, namesakes=others)
        refusal = guarded(pod_refusals.why, events, now(), view=view)
        if key not in self._due or pod_refusals.says_same(refusal, self._store.refused_pods.get(key)):
            return
        if refusal.reason:
            _log.warning("pods.refused", job=str(key), reason=refusal.reason, why=refusal.text)
        self._store.refused_pods[key] = refusal
        self._changed(key)

    def _namesakes(self, key: JobKey) -> list[WorkerView]:
        """The jobs of ours of other kinds that have the name of this one."""
        named = (JobKey(kind, key.namespace, key.name) for kind in JOB_RESOURCES if kind != key.kind)
        return [self._store.view(other) for other in named if self._store.reading(other) is not None]

    async def _events(self, namespace: str, fields: str) -> list[Manifest]:
        """The first pages of the Events that a field selector selects, with as much of each message as is read."""
        events: list[Manifest] = []
        token: str | None = None
        for _ in range(_MOST_PAGES):
            page = await self._client.list(
                EVENTS,
                namespace=namespace,
                fields=fields,
                limit=_PAGE,
                continue_token=token,
                shape=pod_refusals.shortened,
            )
            events += page.items
            token = page.continue_token
            if not token:
                break
        return events
