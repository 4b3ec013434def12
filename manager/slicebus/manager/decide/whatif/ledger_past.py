"""Makes the past that a play needs of the facts of a ledger.

A ledger has no Workloads, but everything that a play reads of one: what its slice asked for, when it held quota, and
when it waited. So each slice is put together again as a Workload, at every moment at which something of it changes,
and read as those of a recording are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from slicebus.decisions.recorded_cache import resource_name
from slicebus.journal.recording_reader import malformed_refused
from slicebus.journal.shard_history import ObjectChange
from slicebus.kube.cache import key_of
from slicebus.kube.resources import CLUSTERQUEUES, JOB_RESOURCES, WORKLOADS
from slicebus.kube.times import unix_time_text
from slicebus.ledger.facts import GrantFact, JobFact, LedgerAccount, PolicyFact, SliceFact, SpecFact, WaitFact
from slicebus.ledger.specs import SETTINGS
from slicebus.manager.decide.whatif.recorded_past import PastBuilder, RecordedPast
from slicebus.proto.messages import Manifest
from slicebus.slices.api import kueue
from slicebus.slices.api.kueue import Condition
from slicebus.slices.api.quantities import amount, format_amount

_QUEUES = resource_name(CLUSTERQUEUES)
_WORKLOADS = resource_name(WORKLOADS)


class LedgerFacts(msgspec.Struct, kw_only=True):
    """What a ledger has of the slices that were there in a span or later, from their beginning on, and of the
    policies."""

    slices: list[SliceFact] = []
    jobs: list[JobFact] = []
    specs: list[SpecFact] = []
    grants: list[GrantFact] = []
    waits: list[WaitFact] = []
    policies: list[PolicyFact] = []
    interruptions: int = 0
    """The spans that are not known."""


def past_of_ledger(facts: LedgerFacts, since_ms: int, until_ms: int) -> RecordedPast | None:
    """The past of a span; None where the ledger has nothing of it. Raises InvalidError."""
    with malformed_refused("the ledger has objects", role="manager"):
        objects, settings, changes = _policies(facts.policies, since_ms)
        flavors = _flavors(facts.policies)
        beginning, changed = list[Manifest](), [(change.at, False, change) for change in changes]
        for history in _histories(facts, flavors):
            before: Manifest | None = None
            for at_ms, now in history.versions():
                if at_ms > since_ms:
                    at = at_ms / 1000
                    # Whoever takes the place of a slice has its quota before that gives it back.
                    changed.append((at, _is_over(now), ObjectChange(at, _WORKLOADS, before, now)))
                elif before is not None:
                    beginning.remove(before)
                if at_ms <= since_ms and now is not None:
                    beginning.append(now)
                before = now
        builder = PastBuilder(since_ms / 1000, {**objects, _WORKLOADS: beginning}, settings)
        for _, _, change in sorted(changed, key=lambda each: each[:2]):
            builder.take(change)
        return builder.past(until_ms / 1000, interruptions=facts.interruptions)


class _History:
    """One slice over time."""

    def __init__(self, slice: SliceFact, job: JobFact | None, flavors: "_Flavors") -> None:
        self.specs: list[SpecFact] = []
        self.grants: list[GrantFact] = []
        self.waits: list[WaitFact] = []
        self._slice = slice
        self._job = job
        self._flavors = flavors

    def versions(self) -> Iterator[tuple[int, Manifest | None]]:
        """The slice as a Workload at every moment at which it changes; None when it is gone."""
        moments = {spec.at_ms for spec in self.specs}
        rows: list[GrantFact | WaitFact] = [*self.grants, *self.waits]
        for row in rows:
            moments |= {row.since_ms} | ({row.until_ms} if row.until_ms is not None else set())
        first_ms = min((spec.at_ms for spec in self.specs), default=0)
        last_ms = max((row.since_ms for row in rows), default=0)
        gone_ms, held_since_ms, was_ready = self._slice.gone_ms, 0, False
        spec: Manifest = {}
        made: SpecFact | None = None
        for at_ms in sorted(moment for moment in moments if moment >= first_ms):
            if not self.specs or (gone_ms is not None and at_ms >= gone_ms):
                break
            asked = [each for each in self.specs if each.at_ms <= at_ms][-1]
            if asked is not made:
                made, spec = asked, _spec_of(asked)
            held = [grant for grant in self.grants if _is_at(grant, at_ms)]
            if held and not held_since_ms:
                held_since_ms = at_ms
            elif not held:
                held_since_ms, was_ready = 0, False
            was_ready = was_ready or (bool(held) and all(grant.ready >= grant.pods for grant in held))
            waits = any(_is_at(wait, at_ms) for wait in self.waits)
            status = self._status(at_ms, held, held_since_ms, is_ready=was_ready)
            if (reason := msgspec.json.decode(asked.document).get("evicted")) is not None:
                status["conditions"] = [*status.get("conditions", ()), _condition(Condition.EVICTED, at_ms, reason)]
            if not (held or waits or last_ms > at_ms) and spec.get("active", True):
                status = {"conditions": [_condition(Condition.FINISHED, at_ms)]}
            yield at_ms, self._workload(asked, spec, status)
        if gone_ms is not None and self.specs:
            yield gone_ms, None

    def _status(self, at_ms: int, held: Sequence[GrantFact], since_ms: int, *, is_ready: bool) -> Manifest:
        if not held:
            return {}
        account = held[0].account
        conditions = [_condition(Condition.QUOTA_RESERVED, since_ms)]
        if is_ready:
            conditions.append(_condition(Condition.PODS_READY, at_ms))
        return {
            "conditions": conditions,
            "clusterName": account.cluster or None,
            "admission": {
                "clusterQueue": account.queue,
                "podSetAssignments": [self._assignment(grant, since_ms) for grant in held],
            },
        }

    def _assignment(self, grant: GrantFact, since_ms: int) -> Manifest:
        """What a pod set was admitted with: as many pods as it has had since."""
        of_it = (one for one in self.grants if one.pod_set == grant.pod_set)
        count = max(one.pods for one in of_it if since_ms <= one.since_ms <= grant.since_ms)
        requests = msgspec.json.decode(grant.account.requests, type=dict[str, float])
        return {
            "name": grant.pod_set,
            "count": count,
            "flavors": self._flavors.of(grant.account, requests),
            "resourceUsage": {resource: _quantity(resource, one, count) for resource, one in requests.items()},
        }

    def _workload(self, asked: SpecFact, spec: Manifest, status: Manifest) -> Manifest:
        document = msgspec.json.decode(asked.document)
        metadata: dict[str, Any] = {
            "namespace": self._slice.namespace,
            "name": self._slice.name,
            "uid": self._slice.uid,
            "creationTimestamp": document.get("created", ""),
            "annotations": document.get("annotations", {}),
        }
        if self._slice.job_uid:
            metadata["labels"] = {kueue.JOB_UID_LABEL: self._slice.job_uid}
        if self._job is not None and self._job.kind in JOB_RESOURCES:
            owner = {"apiVersion": "", "kind": self._job.kind, "name": self._job.name, "uid": self._job.uid}
            metadata["ownerReferences"] = [owner | {"controller": True}]
        reclaimable = document.get("reclaimable", [])
        return {"metadata": metadata, "spec": spec, "status": status | {"reclaimablePods": reclaimable}}


class _Flavors:
    """Says which flavor each resource of a pod has: a ledger has all flavors of a pod in one word."""

    def __init__(self, queues: Iterable[Manifest]) -> None:
        self._known: dict[tuple[str, str], set[str]] = {}
        """By ClusterQueue and resource."""
        for queue in queues:
            for group in queue.get("spec", {}).get("resourceGroups") or ():
                for flavor in group["flavors"]:
                    for resource in flavor["resources"]:
                        key = queue["metadata"]["name"], resource["name"]
                        self._known.setdefault(key, set()).add(flavor["name"])

    def of(self, account: LedgerAccount, resources: Iterable[str]) -> dict[str, str]:
        """The flavors by resource."""
        names = account.flavor.split("+")
        return {
            resource: next((name for name in names if name in self._known.get((account.queue, resource), ())), names[0])
            for resource in resources
        }


def _flavors(policies: Iterable[PolicyFact]) -> _Flavors:
    return _Flavors(
        msgspec.json.decode(fact.document) for fact in policies if fact.resource == _QUEUES and fact.document
    )


def _histories(facts: LedgerFacts, flavors: _Flavors) -> Iterable[_History]:
    jobs = {job.uid: job for job in facts.jobs}
    found = {
        slice.uid: _History(slice, jobs.get(slice.job_uid or slice.uid), flavors)
        for slice in sorted(facts.slices, key=lambda each: each.gone_ms is None)
    }
    for spec in sorted(facts.specs, key=lambda each: each.at_ms):
        found[spec.slice_uid].specs.append(spec)
    for grant in sorted(facts.grants, key=lambda each: each.since_ms):
        found[grant.slice_uid].grants.append(grant)
    for wait in facts.waits:
        found[wait.slice_uid].waits.append(wait)
    return found.values()


def _policies(
    facts: Iterable[PolicyFact], since_ms: int
) -> tuple[dict[str, list[Manifest]], list[Raw], list[ObjectChange]]:
    """The objects and the settings at the beginning, and what changes of the objects after it."""
    settings, changes = dict[str, Raw](), list[ObjectChange]()
    known: dict[str, dict[tuple[str, str], Manifest]] = {}
    now: dict[tuple[str, str, str], Manifest] = {}
    for fact in sorted(facts, key=lambda each: each.at_ms):
        if fact.resource == SETTINGS:
            if fact.at_ms <= since_ms or fact.name not in settings:
                settings[fact.name] = Raw(fact.document.encode())
            continue
        key = fact.resource, fact.namespace, fact.name
        before, after = now.get(key), _object_of(fact) if fact.document else None
        if fact.at_ms > since_ms:
            changes.append(ObjectChange(fact.at_ms / 1000, fact.resource, before, after))
        elif after is not None:
            known.setdefault(fact.resource, {})[key_of(after)] = after
        elif before is not None:
            known[fact.resource].pop(key_of(before), None)
        if after is not None:
            now[key] = after
        else:
            now.pop(key, None)
    return {of: list(objects.values()) for of, objects in known.items()}, list(settings.values()), changes


def _object_of(fact: PolicyFact) -> Manifest:
    """The object, with what a cache needs of one."""
    found: Manifest = msgspec.json.decode(fact.document)
    of_cache = {"uid": f"{fact.resource}/{fact.namespace}/{fact.name}", "resourceVersion": str(fact.at_ms)}
    return found | {"metadata": found["metadata"] | of_cache}


def _spec_of(fact: SpecFact) -> Manifest:
    document = msgspec.json.decode(fact.document)
    templates: Mapping[str, Manifest] = msgspec.json.decode(fact.templates or "{}")
    spec = {
        "podSets": [
            {"name": name, "count": count, "template": {"spec": templates.get(name, {"containers": []})}}
            for name, count in document["counts"].items()
        ],
        "queueName": document.get("queue", ""),
        "priority": document.get("priority", 0),
        "active": document.get("active", True),
    }
    if name := document.get("priorityClass"):
        spec["priorityClassRef"] = {"name": name}
    return spec


def _is_at(row: GrantFact | WaitFact, at_ms: int) -> bool:
    return row.since_ms <= at_ms and (row.until_ms is None or at_ms < row.until_ms)


def _is_over(workload: Manifest | None) -> bool:
    """Whether a slice has ended, or is gone."""
    conditions = workload["status"].get("conditions", ()) if workload is not None else ()
    return workload is None or any(one["type"] == Condition.FINISHED for one in conditions)


def _condition(type: Condition, at_ms: int, reason: str = "") -> Manifest:
    at = unix_time_text(at_ms / 1000)
    return {"type": type, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at}


def _quantity(resource: str, one: float, count: int) -> str:
    """Of so many pods, from the cores, bytes or pieces of one."""
    each = amount(resource, f"{one:.3f}" if resource == "cpu" else round(one))
    return format_amount(resource, each * count)
