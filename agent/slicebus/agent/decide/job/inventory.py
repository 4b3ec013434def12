"""The inventory of a cluster: one item a job, in pages.

An item is made from the view at the time its page is made, so a page is as new as its envelope.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from slicebus.agent.decide.job import reconcile
from slicebus.agent.state import annotations
from slicebus.agent.state.reclaim import PendingReclaim
from slicebus.agent.state.status_bounds import told_pods
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import (
    ClusterName,
    Inventory,
    InventoryItem,
    JobPhase,
    Manifest,
    RequestKey,
    Status,
)
from slicebus.slices.api import api_names
from slicebus.slices.api.fingerprints import all_ready, spec_hash, status_hash
from slicebus.slices.jobs import KINDS

PAGE_BYTES = 32 * 1024
"""The limit of a page's body: the manager takes some 5 ms for one, and others' messages do not wait long."""
_FRAME_BYTES = 160
"""An upper limit of what a page has beside its items."""
_UID_LENGTH = 128
"""A longer UID is none: UIDs have 36 characters, but the annotation on a worker's object may be anything."""


Entry = tuple[InventoryItem, RequestKey | None]
"""One job, and the request on it that no order has answered."""


def item(view: WorkerView, cluster: ClusterName) -> InventoryItem | None:
    """The item of one job; None where the job is not ours.

    Where only Workload copies are left, a linked copy shows that the job is gone; its report is on its way. A job that
    shall run and has no copy does not count as what the manager has ordered: nobody would notice its deletion.
    """
    if view.job is not None:
        if not _is_known(view.job):
            return None
        spec = api_names.WITHOUT_COPY if lacks_copy(view) else _spec_hash(view.job, cluster)
        return _item(view, view.job, spec, _status_hash(view))
    copies = sorted(filter(_is_known, view.copies), key=annotations.spec_version)
    if not copies:
        return None
    gone = any(annotations.is_linked(copy) and not reconcile.went_with_definition(view, copy) for copy in copies)
    return _item(view, copies[-1], "" if gone else api_names.ABSENT, "")


def lacks_copy(view: WorkerView) -> bool:
    """Whether a job that shall run has no Workload copy: somebody has deleted it, or it was not made yet."""
    job = view.reading
    return job is not None and not (job.is_going or job.is_suspended or view.own_copies)


def unanswered(view: WorkerView) -> RequestKey | None:
    """The newest request on a job that no order has answered.

    The broker may have a request that is not noted as confirmed: an earlier agent may have ended in between.
    """
    requested = annotations.PendingRequests.from_job(view.job) if view.job is not None else None
    return requested.key if requested is not None and requested.unanswered else None


def is_too_large(entry: Entry, *, most_bytes: int = PAGE_BYTES) -> bool:
    """Whether a page has no room for a job, even alone. The manager would drop the page, and with it the inventory.

    What its pods request is bounded (`told_pods`), but whoever may edit the job may write a request of any length.
    """
    return _FRAME_BYTES + _length(entry) >= most_bytes


def pages(entries: Iterable[Entry], *, round: int, most_bytes: int = PAGE_BYTES) -> Iterator[Inventory]:
    """The pages of an inventory, each filled up to `most_bytes`; an empty inventory is one page. Entries are read
    lazily."""
    number, page, size = 0, list[Entry](), _FRAME_BYTES
    for entry in entries:
        length = _length(entry)
        if page and size + length >= most_bytes:
            yield _page(page, round=round, number=number, last=False)
            number, page, size = number + 1, [], _FRAME_BYTES
        page.append(entry)
        size += length
    yield _page(page, round=round, number=number, last=True)


def _length(entry: Entry) -> int:
    item, request = entry
    length = len(msgspec.json.encode(item)) + 1
    return length if request is None else length + len(msgspec.json.encode({item.uid: request}))


def _page(entries: list[Entry], *, round: int, number: int, last: bool) -> Inventory:
    requests = {item.uid: request for item, request in entries if request is not None}
    items = [item for item, _ in entries]
    return Inventory(round=round, page=number, last=last, items=items, unanswered=requests or UNSET)


def _item(view: WorkerView, manifest: Manifest, spec: str, status: str) -> InventoryItem:
    return InventoryItem(
        kind=view.key.kind,
        namespace=view.key.namespace,
        name=view.key.name,
        uid=annotations.annotation(manifest, api_names.MANAGER_UID_ANNOTATION) or "",
        spec_version=annotations.spec_version(manifest),
        spec_hash=spec,
        status_hash=status,
        pods={
            name: pods.use
            for name, pods in told_pods(view.own_pod_sets, own=annotations.granted(manifest)).items()
            if pods.use.running
        },
    )


def _is_known(manifest: Manifest) -> bool:
    """Whether the object is ours and has a readable manager UID: without one no order can be about it."""
    uid = annotations.annotation(manifest, api_names.MANAGER_UID_ANNOTATION)
    return annotations.is_ours(manifest) and uid is not None and 0 < len(uid) <= _UID_LENGTH


def _spec_hash(job: Manifest, cluster: ClusterName) -> str:
    """By the size that was ordered, also while the job's notice runs. A job that follows the manager's word is granted
    what that leaves it: it says so with its next request."""
    reclaim, granted = PendingReclaim.from_job(job), annotations.granted(job)
    is_told = reclaim is not None and reclaim.suspends is None
    size = reclaim.to if reclaim is not None and is_told else annotations.baseline(job)
    if size is not None and (is_told or annotations.annotation(job, api_names.FOLLOWS_ANNOTATION)):
        granted = annotations.lowered(granted, size)
    return spec_hash(cluster, annotations.slice_of(job), granted, size)


def _status_hash(view: WorkerView) -> str:
    status = reconcile.status(view)
    return _hash(status, view) if status is not None else ""


def _hash(status: Status, view: WorkerView) -> str:
    assert view.job is not None
    ready = {name: pods.ready for name, pods in status.pods.items()}
    # A suspended job reports no readiness of pods.
    succeeded = KINDS[view.key.kind].succeeded(status.job_status)
    granted = annotations.granted(view.job)
    pods_ready = None if annotations.is_suspended(view.job) else all_ready(granted, ready, succeeded)
    is_over = status.phase is not JobPhase.RUNNING
    left = {name: min(count, granted.get(name, 0)) for name, count in status.running.items()} if is_over else {}
    problems = {name: problem.reason for name, problem in status.problems.items()}
    return status_hash(
        status.job_status,
        status.phase,
        pods_ready,
        left=left,
        problems=problems,
        waits=status.waits.reason if status.waits else "",
        gang=None if status.gang is UNSET else status.gang,
    )
