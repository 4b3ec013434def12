"""Compares what an agent holds with what it shall hold.

A complete inventory is compared job by job; equal jobs cost nothing more. What a cluster has reported on a job since it
began the inventory is newer, so the inventory does not count for that job.
"""

from collections.abc import Iterator
from enum import StrEnum, auto
from typing import NamedTuple, NewType

import msgspec

from slicebus.decisions.commands import Command
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide.job import charges
from slicebus.manager.decide.job.charges import NO_QUEUES, Queues
from slicebus.manager.decide.job.waiting import pod_problems_of, reported_reason
from slicebus.manager.decide.kueue import beside_kueue
from slicebus.manager.decide.messages.message_handlers import forget_requests
from slicebus.manager.decide.order.dispatch import is_unanswered
from slicebus.manager.state.annotations import reported_status
from slicebus.manager.state.outbox import STOPPED, Held, OutboxState, Progress
from slicebus.manager.state.views import JobView
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import ClusterName, Inventory, InventoryItem, JobPhase, JobRef, Manifest, RequestKey
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import all_ready, status_hash
from slicebus.slices.api.kueue import Condition
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.suspension import can_suspend
from slicebus.slices.workload.elasticity import gang_of

Stamp = NewType("Stamp", tuple[int, int])
"""Epoch and sequence of a message: they order the messages of one cluster."""


UNKNOWN = "unknown"
"""In place of the hash of a status that is not known."""


class Difference(StrEnum):
    """How an inventory differs from what the worker shall hold of one job."""

    NONE = auto()
    """The worker holds what it shall, or its order is on its way."""
    HELD = auto()
    """The worker holds the newest version, but its report has not come: the inventory counts as the report."""
    AGAIN = auto()
    """The worker has not reported the newest version: it is published again."""
    RENEW = auto()
    """The worker has reported the newest version and does not hold it, or lost a copy that has asked for a size: it is
    dispatched anew, as a newer one."""
    WITHDRAWN = auto()
    """The worker holds the newest version, and does not wait for the request that the manager has as its last: a copy
    that was made anew meanwhile does not know it. A request of an earlier agent is forgotten."""
    STATUS = auto()
    """Only the status differs: it is asked for."""


class Listed(msgspec.Struct, frozen=True):
    """A complete inventory of one cluster."""

    cluster: ClusterName
    speaker: str
    agent: str
    """The `Envelope.agent`."""
    since: Stamp
    """When it was begun. Later messages are newer."""
    items: dict[JobRef, InventoryItem] = msgspec.field(default_factory=dict)
    unanswered: dict[str, RequestKey] = msgspec.field(default_factory=dict)
    """The requests that no order has answered, by the UID of their job."""
    unread: list[bytes] = msgspec.field(default_factory=list)
    """The pages that are still to be decoded, the last one first."""

    def read(self) -> Iterator[None]:
        """Decode page by page: a large inventory takes a second, and others may run after each."""
        while self.unread:
            page = msgspec.json.decode(self.unread.pop(), type=Inventory)
            self.items.update({job_of(item): item for item in page.items if item.kind in JOB_RESOURCES})
            self.unanswered.update(page.unanswered if isinstance(page.unanswered, dict) else {})
            yield


_MOST_BYTES = 16 * 1024**2
"""Of an inventory. What is half there is held as bytes, because items take five times as much."""
_PAGE_LEAST_BYTES = 1024
"""What a page counts at least."""
_MOST_ENTRIES = 100_000
"""Of an inventory: its items and its unanswered requests. A manager of the chart's size has 50,000 jobs."""


class _HeldPage(NamedTuple):
    """A page of an inventory that is not complete yet, and what it counts."""

    body: bytes
    size_bytes: int
    entries: int

    @staticmethod
    def of(page: Inventory) -> "_HeldPage":
        body, requests = msgspec.json.encode(page), page.unanswered
        entries = len(page.items) + (len(requests) if isinstance(requests, dict) else 0)
        return _HeldPage(body, max(len(body), _PAGE_LEAST_BYTES), entries)


_NO_PAGE = _HeldPage(b"", 0, 0)


class Assembly:
    """Puts the pages of an agent's inventory together. It keeps only the newest inventory."""

    def __init__(self) -> None:
        self._round = (-1, -1)
        self._pages: dict[int, _HeldPage] = {}
        self._bytes = 0
        self._entries = 0
        self._last: int | None = None
        """The number of the last page, once that is there."""
        self._since: Stamp | None = None
        self._done = False

    @property
    def is_half(self) -> bool:
        """Whether some pages are there, and some are not."""
        return bool(self._pages)

    def add(self, envelope: Envelope, page: Inventory) -> Listed | None:
        """Return the inventory, which is to be read, when this page completes it. Pages may come twice, late, or after
        a newer one's. Raises ProtocolError where they take too much; nothing more of that inventory is kept."""
        round = envelope.epoch, page.round
        if round < self._round or (round == self._round and self._done):
            return None
        if round > self._round:
            self.finish()
            self._round, self._done = round, False
        self._keep(page)
        self._since = min(self._since or stamp_of(envelope), stamp_of(envelope))
        if self._last is None or len(self._pages) != self._last + 1 or max(self._pages) != self._last:
            return None
        pages = [held.body for held in reversed(self._pages.values())]
        return Listed(envelope.cluster, envelope.cluster_uid, envelope.agent, self._since, unread=pages)

    def _keep(self, page: Inventory) -> None:
        held, before = _HeldPage.of(page), self._pages.get(page.page, _NO_PAGE)
        self._bytes += held.size_bytes - before.size_bytes
        self._entries += held.entries - before.entries
        limits = (self._bytes, _MOST_BYTES, "bytes"), (self._entries, _MOST_ENTRIES, "jobs and requests")
        for count, most, what in limits:
            if count > most:
                self.finish()
                raise ProtocolError(DeadReason.REFUSED, f"an inventory of more than {most} {what}")
        self._pages[page.page] = held
        if page.last:
            self._last = page.page

    def finish(self) -> None:
        """Forget the inventory: it was compared, or is given up. What comes of it later has no effect."""
        self._pages, self._bytes, self._entries = {}, 0, 0
        self._last, self._since, self._done = None, None, True


def stamp_of(envelope: Envelope) -> Stamp:
    """The stamp of a message."""
    return Stamp((envelope.epoch, envelope.sequence))


def job_of(item: InventoryItem) -> JobRef:
    """The reference of the manager's job that an item is about."""
    return JobRef(KINDS[item.kind].resource.api_version, item.kind, item.namespace, item.name, item.uid)


def difference(
    view: JobView, item: InventoryItem | None, *, queues: Queues = NO_QUEUES, waits: bool = False
) -> Difference:
    """How the worker's item differs from what it shall hold. `item` is None where the worker has nothing of the job.

    `queues` are the ClusterQueues by name. `waits`: whether the worker waits for the answer to a request.
    """
    outbox = view.outbox
    if outbox is None:
        return Difference.RENEW if item is not None and item.spec_hash else Difference.NONE
    record, reported = outbox.record, outbox.is_reported
    if record.has_vanished:
        # Until the job is decided about it needs no copy. Where the worker has one again, its status is asked for.
        return (
            Difference.STATUS if item is not None and item.spec_hash not in ("", api_names.ABSENT) else Difference.NONE
        )
    if view.waits_for_pods is not None and item is not None and view.state.held is Held.HOLD and reported:
        # Its slice has given a part of the grant back, without an order.
        return Difference.STATUS if status_differs(view, item) else Difference.NONE
    not_held = Difference.RENEW if reported or _is_request_lost(view, item) else Difference.AGAIN
    if item is None:
        if view.state.held is Held.HOLD:
            return not_held
        # A suspended copy that is lost does not keep its pods: the answer to the next order says that there is none.
        # Beside a Kueue that makes another Workload for edited pods, and their former copy is deleted with the old one.
        is_lost = view.state == STOPPED and can_suspend(view.ref.kind) and not view.beside_kueue
        return Difference.RENEW if is_lost else Difference.NONE if reported else Difference.AGAIN
    if not item.spec_hash:
        if not reported:
            return Difference.AGAIN
        return Difference.STATUS if status_differs(view, item, queues=queues) else Difference.NONE
    if item.spec_version > record.version:
        return Difference.RENEW
    if view.has_left_copy:
        # It is being recalled. Until that is reported, the fence of its cluster is closed.
        return Difference.NONE
    if not reported and _shows(item, view.state, record.version):
        return Difference.HELD
    if (item.spec_version, item.spec_hash) != (record.version, record.hash):
        return not_held
    if not reported:
        return Difference.AGAIN
    if not waits and view.job is not None and view.state.held is Held.HOLD and is_unanswered(view):
        return Difference.WITHDRAWN
    return Difference.STATUS if status_differs(view, item, queues=queues) else Difference.NONE


def forget_lost_requests(
    view: JobView, item: InventoryItem | None, *, speaker: str, published_at: Stamp
) -> list[Command]:
    """Forget the requests of a copy that its worker no longer has.

    Nobody stands by them: the copy made in its place begins with the size of the job's spec. A request that was
    published since this inventory is that copy's.
    """
    return forget_requests(view, published_at, speaker=speaker, made_anew=True) if has_lost_copy(item) else []


def forget_withdrawn(view: JobView, *, speaker: str, published_at: Stamp) -> list[Command]:
    """Forget the requests of earlier agents of a worker that stands by none of them.

    Those of the agent that speaks stay: one may have been under way while it listed what it holds. An agent sends its
    first inventory before its first request, and takes over what an earlier agent had recorded.
    """
    epoch, _ = published_at
    return forget_requests(view, (epoch, 0), speaker=speaker, made_anew=True)


def has_lost_copy(item: InventoryItem | None) -> bool:
    """Whether the worker has no job: at most its Workload copy is left."""
    return item is None or item.spec_hash == api_names.ABSENT


def _is_request_lost(view: JobView, item: InventoryItem | None) -> bool:
    requested = view.desired.requested if view.job is not None else None
    return requested is not None and requested.asks_for_size and has_lost_copy(item)


def _shows(item: InventoryItem, state: OutboxState, version: int) -> bool:
    """Whether an item proves as much as a report of the newest version. It does not for a suspended job: its report
    also proves that no pod is left."""
    is_whole = item.spec_hash not in (api_names.ABSENT, api_names.WITHOUT_COPY) and item.spec_version == version
    return is_whole and state.held is Held.HOLD and state.progress is not Progress.LOST


def status_differs(view: JobView, item: InventoryItem, *, queues: Queues = NO_QUEUES) -> bool:
    """Whether the worker's job has another status than was mirrored last, or its pods request what is not recorded.

    Its agent counts every status of its first inventory as reported. So one that differs has to be asked for, whatever
    else the job needs.
    """
    if not item.spec_hash:
        # The item shows that the copy is gone. While the job is here, the report of that has not come.
        return view.job is not None and not view.is_withdrawing
    mirrored = _status_hash(view)
    if not mirrored:
        return False
    return item.status_hash not in ("", mirrored) or charges.differs(view, item.pods, queues=queues)


def lacks_request(view: JobView, request: RequestKey, *, speaker: str, published_at: Stamp) -> bool:
    """Whether a worker waits for the answer to a request that the manager does not have: it has to ask again."""
    if view.job is None or view.holder is None:
        return False
    if view.outcome.phase is not JobPhase.RUNNING:
        return False
    last = view.desired.requested
    return last is None or last.is_older_than(request, speaker=speaker, published_at=published_at)


def _reported_hash(view: JobView, job: Manifest) -> str:
    """The hash of the worker's last report, because the job may show a Kueue another status; `UNKNOWN` before it."""
    reported, holder = view.reported, view.holder
    if reported is None or holder is None:
        return UNKNOWN
    ready = {name: pods.ready for name, pods in reported.pods.items()}
    succeeded = KINDS[view.ref.kind].succeeded(reported.job_status)
    is_ready = all_ready(beside_kueue.allowed(view, job, holder).granted, ready, succeeded)
    problems, waits = _problems(view, job), reported_reason(view, job)
    gang = None if reported.gang is msgspec.UNSET else reported.gang
    return status_hash(reported.job_status, reported.phase, is_ready, problems=problems, waits=waits, gang=gang)


def _problems(view: JobView, job: Manifest) -> dict[str, str]:
    return {name: problem.reason for name, problem in pod_problems_of(view, job).items()}


def _status_hash(view: JobView) -> str:
    """The hash of the status that was mirrored last; empty for a job that has ended with its pods, which takes no more
    statuses."""
    if view.job is None:
        return ""
    phase = view.outcome.phase
    if (waiting := view.waits_for_pods) is not None:
        return status_hash(reported_status(view.job), phase, None, left=waiting.granted)
    if phase is not JobPhase.RUNNING:
        return ""
    if view.beside_kueue:
        return _reported_hash(view, view.job)
    conditions = view.holder.conditions if view.holder else {}
    ready = conditions.get(Condition.PODS_READY, {}).get("status")
    is_ready, problems = None if ready is None else ready == "True", _problems(view, view.job)
    waits = reported_reason(view, view.job)
    gang = gang_of(view.workload(view.holder)["metadata"].get("annotations") or {}) if view.holder else None
    return status_hash(reported_status(view.job), phase, is_ready, problems=problems, waits=waits, gang=gang)
