"""What an agent says that it holds, beside what it shall hold.

An inventory is judged when it is complete, and job by job: the same everywhere costs nothing more. Whatever a cluster
has said of a job after it began the inventory is newer than that, and the inventory no longer counts for the job.
"""

from enum import StrEnum, auto
from typing import NewType

import msgspec

from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.decide import beside_kueue
from slicebus.manager.state.annotations import LOST, Dispatch, reported_status
from slicebus.manager.state.views import JobView
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import ClusterName, Inventory, InventoryItem, JobPhase, JobRef, Manifest, RequestKey
from slicebus.slices import kueue
from slicebus.slices.fingerprints import all_ready, status_hash
from slicebus.slices.jobs import KINDS
from slicebus.slices.kueue import Condition

Stamp = NewType("Stamp", tuple[int, int])
"""Epoch and sequence of a message: the order of what one cluster says."""


UNKNOWN = "unknown"
"""In place of the hash of a status."""


class Difference(StrEnum):
    """What an inventory says of one job that the manager knows."""

    NONE = auto()
    """The worker holds what it shall, or what it was told is on its way."""
    HELD = auto()
    """The worker's job is at the newest version and its report has not come: that it is there is the report."""
    AGAIN = auto()
    """The worker has not reported the newest version: it is published again."""
    RENEW = auto()
    """The worker has reported the newest version and does not hold it: it is dispatched anew, as a newer one."""
    STATUS = auto()
    """Only the status differs: it is asked for."""


class Listed(msgspec.Struct, frozen=True):
    """A complete inventory of one cluster."""

    cluster: ClusterName
    speaker: str
    since: Stamp
    """When it was begun. What was said later is newer."""
    items: dict[JobRef, InventoryItem]
    unanswered: dict[str, RequestKey] = {}
    """The requests that no order has answered, by the UID of their job."""


class Assembly:
    """Puts the pages of one speaker's inventories together. Only the newest inventory that has begun is kept."""

    def __init__(self) -> None:
        self._round = (-1, -1)
        self._pages: dict[int, Inventory] = {}
        self._since: dict[int, Stamp] = {}
        self._done = False

    def add(self, envelope: Envelope, page: Inventory) -> Listed | None:
        """The inventory, when this page completes it. A page may come twice, late, or after a newer inventory's."""
        round = envelope.epoch, page.round
        if round < self._round or (round == self._round and self._done):
            return None
        if round > self._round:
            self._round, self._pages, self._since, self._done = round, {}, {}, False
        self._pages[page.page] = page
        self._since[page.page] = stamp_of(envelope)
        last = next((number for number, held in self._pages.items() if held.last), None)
        if last is None or len(self._pages) != last + 1 or max(self._pages) != last:
            return None
        items = (item for held in self._pages.values() for item in held.items if item.kind in JOB_RESOURCES)
        requests = [held.unanswered for held in self._pages.values() if isinstance(held.unanswered, dict)]
        return Listed(
            envelope.cluster,
            envelope.speaker,
            min(self._since.values()),
            {job_of(item): item for item in items},
            {uid: request for page in requests for uid, request in page.items()},
        )

    def finish(self) -> None:
        """The inventory that is complete has had its effect."""
        self._pages, self._since, self._done = {}, {}, True


def stamp_of(envelope: Envelope) -> Stamp:
    """When a cluster said something."""
    return Stamp((envelope.epoch, envelope.sequence))


def job_of(item: InventoryItem) -> JobRef:
    """The manager's job that an item is about."""
    return JobRef(KINDS[item.kind].resource.api_version, item.kind, item.namespace, item.name, item.uid)


def difference(view: JobView, item: InventoryItem | None) -> Difference:
    """What the worker's item says of a job of its cluster; None is a job that the worker has nothing of."""
    outbox = view.outbox
    if outbox is None:
        return Difference.RENEW if item is not None and item.spec_hash else Difference.NONE
    record, reported = outbox.record, outbox.is_applied
    if record.has_vanished:
        # It stays gone until that is decided, unless the worker has it again.
        return Difference.STATUS if item is not None and item.spec_hash not in ("", kueue.ABSENT) else Difference.NONE
    not_held = Difference.RENEW if reported else Difference.AGAIN
    if item is None:
        # A job that was suspended before the worker had made it has no copy, and need not have one.
        if record.hash == kueue.ABSENT or record.suspended:
            return Difference.NONE if reported else Difference.AGAIN
        return not_held
    if not item.spec_hash:
        if not reported:
            return Difference.AGAIN
        return Difference.STATUS if status_differs(view, item) else Difference.NONE
    if item.spec_version > record.version:
        return Difference.RENEW
    if not reported and _shows(item, record):
        return Difference.HELD
    if (item.spec_version, item.spec_hash) != (record.version, record.hash):
        return not_held
    if not reported:
        return Difference.AGAIN
    return Difference.STATUS if status_differs(view, item) else Difference.NONE


def _shows(item: InventoryItem, record: Dispatch) -> bool:
    """Whether an item says what a report of the newest version would. That of a suspended job says more: it has no
    pods left."""
    has_copy = item.spec_hash != kueue.ABSENT and item.spec_version == record.version
    return has_copy and not record.suspended and record.hash not in (kueue.ABSENT, LOST)


def status_differs(view: JobView, item: InventoryItem) -> bool:
    """Whether the worker's job has another status than was mirrored last.

    Its agent takes every status of its first inventory as reported: one that differs has to be asked for, whatever else
    is to be done about the job.
    """
    if not item.spec_hash:
        # It says that the job is gone, and as long as the job is here that report has not come.
        return view.job is not None and view.outbox is not None and view.outbox.record.hash != kueue.ABSENT
    mirrored = _status_hash(view)
    return bool(mirrored) and item.status_hash not in ("", mirrored)


def lacks_request(view: JobView, request: RequestKey, *, speaker: str, published_at: Stamp) -> bool:
    """Whether a worker waits for the answer to a request that is not written down here: it has to ask again."""
    if view.job is None or view.holder is None:
        return False
    if KINDS[view.ref.kind].outcome(view.job).phase is not JobPhase.RUNNING:
        return False
    last = view.desired.requested
    return last is None or last.is_older_than(request, speaker=speaker, published_at=published_at)


def _reported_hash(view: JobView, job: Manifest) -> str:
    """Of the worker's last report, as a Kueue may be shown another status; a value like no other before the first."""
    reported, holder = view.reported, view.holder
    if reported is None or holder is None:
        return UNKNOWN
    ready = {name: pods.ready for name, pods in reported.pods.items()}
    is_ready = all_ready(beside_kueue.allowed(view, job, holder).granted, ready)
    return status_hash(reported.job_status, reported.phase, is_ready)


def _status_hash(view: JobView) -> str:
    """Of what was mirrored last. A job that has ended takes no more statuses."""
    if view.job is None:
        return ""
    phase = KINDS[view.ref.kind].outcome(view.job).phase
    if phase is not JobPhase.RUNNING:
        return ""
    if view.checks:
        return _reported_hash(view, view.job)
    conditions = view.holder.conditions if view.holder else {}
    ready = conditions.get(Condition.PODS_READY, {}).get("status")
    return status_hash(reported_status(view.job), phase, None if ready is None else ready == "True")
