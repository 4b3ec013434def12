"""Keeps which slices hold quota and which wait, and says what changes.

A slice that is seen changes the books at once, at the time of the recording. After an interruption, which nothing was
recorded in, the slices themselves say when they got and lost their quota. What they do not say is left out, and said.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from slicebus.ledger.facts import (
    Fact,
    GrantFact,
    JobFact,
    KillFact,
    LedgerAccount,
    SliceFact,
    SpecFact,
    UnknownSpan,
    WaitFact,
)
from slicebus.ledger.slice_change import (
    HeldSlice,
    Interruption,
    SliceChange,
    WantedGrant,
    ended_at,
    sizes_of,
    time_of,
)
from slicebus.ledger.specs import TEMPLATES, spec_text
from slicebus.proto.errors import MALFORMED
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.preemption import preemptor_uid
from slicebus.slices.api import kueue
from slicebus.slices.api.annotation_values import read_number
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.owners import job_name_of
from slicebus.slices.api.quantities import in_units
from slicebus.slices.workload.workload import PodSetAssignment, Slice

_GONE_KEPT = 4096
"""So many slices that are gone are remembered: another shard may tell of one later."""


class OpenBooks(msgspec.Struct, frozen=True):
    """What was open when the books were last closed."""

    slices: tuple[SliceFact, ...] = ()
    """Those that are there."""
    grants: tuple[GrantFact, ...] = ()
    waits: tuple[WaitFact, ...] = ()
    specs: tuple[SpecFact, ...] = ()
    """The last of each slice that is there."""


class SubmittedJob(msgspec.Struct, frozen=True):
    """What the ledger reads of a job and of its queue."""

    user: str = ""
    queue: str = ""
    """The ClusterQueue of its LocalQueue."""


Lookup = Callable[[Slice], SubmittedJob]


class Books:
    """The open grants and waits of all slices."""

    def __init__(self, opened: OpenBooks, lookup: Lookup) -> None:
        self._lookup = lookup
        self._held = {fact.uid: HeldSlice(fact) for fact in opened.slices}
        self._uids = {(fact.namespace, fact.name): fact.uid for fact in opened.slices}
        self._gone: dict[str, None] = {}
        for grant in opened.grants:
            held = self._held[grant.slice_uid]
            held.grants[grant.pod_set], held.cluster = grant, grant.account.cluster
        for wait in opened.waits:
            self._held[wait.slice_uid].wait = wait
        for spec in opened.specs:
            self._held[spec.slice_uid].spec = spec.document, spec.templates

    def put(self, manifest: Manifest, before: Manifest | None, at_ms: int) -> Iterator[Fact]:
        """A slice as it is now, and as it was before, where that is known."""
        slice, version = _slice_of(manifest), version_of(manifest)
        if slice is None or slice.uid in self._gone:
            return
        yield from self._ensured(slice, manifest)
        held = self._held[slice.uid]
        if version <= held.version:
            return
        held.version = version
        yield from _specified(held, manifest, at_ms)
        change = SliceChange(held, slice, _priority(manifest, slice), at_ms)
        yield from self._killed(change)
        yield from self._granted(change, before)
        yield from self._waiting(change)

    def gone(self, uid: str, at_ms: int) -> Iterator[Fact]:
        """A slice that was deleted."""
        held = self._held.pop(uid, None)
        self._gone[uid] = None
        if len(self._gone) > _GONE_KEPT:
            del self._gone[next(iter(self._gone))]
        if held is not None:
            self._forget(held)
            yield from _closed(held, at_ms)
            yield msgspec.structs.replace(held.fact, gone_ms=at_ms)

    def ready(self, namespace: str, name: str, ready: Mapping[str, int], at_ms: int) -> Iterator[Fact]:
        """What a worker reports of the pods of a slice."""
        held = self._held.get(self._uids.get((namespace, name), ""))
        if held is None:
            return
        for pod_set, grant in list(held.grants.items()):
            count = min(grant.pods, ready.get(pod_set, 0))
            if count != grant.ready:
                yield ended_at(grant, at_ms)
                since_ms = max(grant.since_ms, at_ms)
                held.grants[pod_set] = msgspec.structs.replace(grant, since_ms=since_ms, ready=count)
                yield held.grants[pod_set]

    def resumed(self, present: Iterable[Manifest], interruption: Interruption) -> Iterator[Fact]:
        """All slices, as they are after an interruption; then what is not known of it, if anything is."""
        found = sorted(present, key=lambda manifest: manifest["metadata"].get("creationTimestamp", ""))
        unknown_ms = 0
        for manifest in found:
            slice = _slice_of(manifest)
            if slice is None:
                continue
            yield from self._ensured(slice, manifest)
            held = self._held[slice.uid]
            held.version = version_of(manifest)
            yield from _specified(held, manifest, interruption.until_ms)
            change = SliceChange(held, slice, _priority(manifest, slice), interruption.until_ms, interruption)
            yield from self._killed(change)
            yield from self._granted(change, None)
            yield from self._waiting(change)
            unknown_ms += change.unknown_ms
        there = {manifest["metadata"]["uid"] for manifest in found}
        for uid in [uid for uid in self._held if uid not in there]:
            held = self._held[uid]
            unknown_ms += sum(grant.pods for grant in held.grants.values()) * interruption.length_ms
            yield from self.gone(uid, interruption.since_ms)
        if unknown_ms or interruption.is_gap:
            yield UnknownSpan(
                since_ms=interruption.since_ms,
                until_ms=interruption.until_ms,
                reason=interruption.reason,
                pod_ms=unknown_ms,
            )

    def unspecified(self, present: Iterable[Manifest], at_ms: int) -> Iterator[SpecFact]:
        """What those slices ask for of which that was never told."""
        for manifest in present:
            held = self._held.get(manifest["metadata"]["uid"])
            if held is not None and not any(held.spec):
                yield from _specified(held, manifest, at_ms)

    def _ensured(self, slice: Slice, manifest: Manifest) -> Iterator[Fact]:
        """The facts of a slice and its job, when they are first seen."""
        if slice.uid in self._held:
            return
        fact = SliceFact(uid=slice.uid, job_uid=slice.job_uid, namespace=slice.namespace, name=slice.name)
        self._held[slice.uid] = HeldSlice(fact)
        self._uids[slice.namespace, slice.name] = slice.uid
        kind, name = job_name_of(manifest["metadata"])
        yield JobFact(
            uid=slice.job_uid or slice.uid,
            kind=kind,
            namespace=slice.namespace,
            name=name,
            user=self._lookup(slice).user,
        )
        yield fact

    def _forget(self, held: HeldSlice) -> None:
        key = held.fact.namespace, held.fact.name
        if self._uids.get(key) == held.fact.uid:
            del self._uids[key]

    def _wanted(self, change: SliceChange) -> dict[str, WantedGrant]:
        """What a slice holds, by pod set."""
        slice = change.slice
        if slice.admission is None or slice.finished or change.held.replaced:
            change.held.cluster = ""
            return {}
        if (replaced := self._replaced(slice)) is not None:
            change.held.cluster = replaced.cluster
        user, change.held.cluster = self._lookup(slice).user, slice.cluster or change.held.cluster
        return {
            assignment.name: WantedGrant(count, _account(change, assignment, user))
            for assignment in slice.admission.pod_sets
            if (count := slice.held_counts.get(assignment.name, 0))
        }

    def _killed(self, change: SliceChange) -> Iterator[Fact]:
        """The pods that an eviction ends, once."""
        held, slice = change.held, change.slice
        evicted = slice.conditions.get(Condition.EVICTED, {}) if slice.evicted and not slice.finished else {}
        is_new, held.evicted = bool(evicted) and not held.evicted, bool(evicted)
        if not is_new:
            return
        message = evicted.get("message", "")
        for grant in held.grants.values():
            yield KillFact(
                slice_uid=slice.uid,
                pod_set=grant.pod_set,
                at_ms=time_of(evicted) or change.at_ms,
                pods=grant.pods,
                reason=evicted.get("reason", ""),
                message=message,
                for_uid=preemptor_uid(message),
                account=grant.account,
            )

    def _granted(self, change: SliceChange, before: Manifest | None) -> Iterator[Fact]:
        """The grants that end and begin. `before` is the slice as it was, where that is known."""
        held, wanted = change.held, self._wanted(change)
        changed = [
            pod_set
            for pod_set in sorted({*held.grants, *wanted})
            if not (change.goes_on and _is_same(held.grants.get(pod_set), wanted.get(pod_set)))
        ]
        if not changed:
            return
        counts = {pod_set: want.pods for pod_set, want in wanted.items()}
        replaced, carried = self._replaced(change.slice) if wanted else None, dict(held.grants)
        if replaced is not None:
            carried = dict(replaced.grants) | carried
            replaced.replaced = True
            sizes = {pod_set: grant.pods for pod_set, grant in replaced.grants.items()}
            yield from _closed(replaced, change.begins_ms)
            yield from change.resized(sizes, counts)
        elif before is not None and held.grants and wanted:
            last_slice = _slice_of(before)
            yield from change.resized(sizes_of(last_slice) if last_slice else counts, sizes_of(change.slice))
            yield from change.reclaimed(counts)
        for pod_set in changed:
            grant, want, last = held.grants.pop(pod_set, None), wanted.get(pod_set), carried.get(pod_set)
            if grant is not None:
                yield change.ended(grant, is_lost=want is None)
            if want is not None:
                held.grants[pod_set] = GrantFact(
                    slice_uid=change.slice.uid,
                    pod_set=pod_set,
                    since_ms=change.began_ms(grant, want.pods),
                    pods=want.pods,
                    ready=min(want.pods, last.ready if last is not None else 0),
                    account=want.account,
                )
                yield held.grants[pod_set]

    def _replaced(self, slice: Slice) -> HeldSlice | None:
        """The slice in whose place one got its quota, while the books have that."""
        namespace, _, name = (slice.replaces or "").partition("/")
        found = self._held.get(self._uids.get((namespace, name), ""))
        return found if found is not None and found.grants and not found.replaced else None

    def _waiting(self, change: SliceChange) -> Iterator[Fact]:
        """The waits that end and begin."""
        held, slice, at_ms = change.held, change.slice, change.begins_ms
        wait, reserved = held.wait, slice.conditions.get(Condition.QUOTA_RESERVED, {})
        reason, message = reserved.get("reason") or kueue.PENDING, reserved.get("message", "")
        goes_on = slice.pending and wait is not None and wait.reason == reason
        if wait is not None and not goes_on:
            is_admitted = slice.admission is not None
            yield msgspec.structs.replace(wait, until_ms=max(wait.since_ms, at_ms), admitted=is_admitted)
            held.wait = None
        if not slice.pending or (goes_on and wait is not None and wait.message == message):
            return
        reading = self._lookup(slice)
        account = LedgerAccount(reading.queue, slice.namespace, "", "", change.priority, reading.user)
        held.wait = WaitFact(
            slice_uid=slice.uid,
            since_ms=wait.since_ms if goes_on and wait is not None else at_ms,
            reason=reason,
            message=message,
            account=account,
        )
        yield held.wait


def _slice_of(manifest: Manifest) -> Slice | None:
    """The slice of a Workload; None for one that nobody can read: a user may have made it. What it held goes on."""
    try:
        return Slice.from_manifest(manifest)
    except MALFORMED:
        return None


def _specified(held: HeldSlice, manifest: Manifest, at_ms: int) -> Iterator[SpecFact]:
    """What a slice asks for, where that is something else."""
    spec = spec_text(manifest), manifest.get("spec", {}).get(TEMPLATES, "")
    if spec != held.spec:
        held.spec = spec
        yield SpecFact(slice_uid=held.fact.uid, at_ms=at_ms, document=spec[0], templates=spec[1])


def _is_same(grant: GrantFact | None, want: WantedGrant | None) -> bool:
    return grant is not None and want is not None and (grant.pods, grant.account) == (want.pods, want.account)


def _closed(held: HeldSlice, at_ms: int) -> Iterator[Fact]:
    """Everything that is open of a slice, ended."""
    for grant in held.grants.values():
        yield ended_at(grant, at_ms)
    held.grants = {}
    if held.wait is not None:
        yield msgspec.structs.replace(held.wait, until_ms=max(held.wait.since_ms, at_ms))
        held.wait = None


def _account(change: SliceChange, assignment: PodSetAssignment, user: str) -> LedgerAccount:
    slice = change.slice
    requests = {resource: in_units(resource, value) for resource, value in sorted(assignment.of_one.items()) if value}
    return LedgerAccount(
        queue=slice.admission.cluster_queue if slice.admission is not None else "",
        namespace=slice.namespace,
        cluster=change.held.cluster,
        flavor="+".join(sorted({*assignment.flavors.values()})),
        priority=change.priority,
        user=user,
        requests=msgspec.json.encode(requests).decode(),
    )


def _priority(manifest: Manifest, slice: Slice) -> str:
    """The priority class of a slice, or its number where it has none."""
    reference = manifest.get("spec", {}).get("priorityClassRef") or {}
    return reference.get("name") or str(slice.priority)


def version_of(manifest: Manifest) -> int:
    """The version of an object: it rises with each write."""
    return read_number(manifest["metadata"].get("resourceVersion"))
