"""What `slicebus diff` says of an edit is what the next cycle decides.

When users have edited queues, cohorts, flavors, priority classes or clusters, the objects are put back to what they
were, and the edit is made as the command makes it. A cycle over that world decides what the manager's does.
"""

from collections.abc import Iterator
from typing import Any

from simulation.violations import Violation
from slicebus.cli.difference import edits
from slicebus.kube.cache import Key, key_of
from slicebus.kube.resources import WORKLOADPRIORITYCLASSES, Resource
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.decide.forecast import difference
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.cycle import Decision, cycle

Manifest = dict[str, Any]
_USERS = ("spec", "value")
"""The fields that users edit."""


class EditRules:
    """Makes every edit again, as the command does."""

    def __init__(self) -> None:
        self.asked = 0
        """About how many edits."""
        self._store: ManagerStore | None = None
        self._known: dict[tuple[Resource, Key], Manifest] = {}
        """What can be edited, as the last cycle of the same manager had it."""

    def check(self, store: ManagerStore, trees: list[str] | None, since: Since, decided: list[Decision]) -> None:
        """Raise Violation for an edit of which the command would have said something else."""
        present = {(resource, key_of(manifest)): manifest for resource, manifest in _editable(store)}
        known, is_known = self._known, self._store is store
        late = {key: known[key] for key in present if key in known and not _has_come(store, *key, present[key])}
        self._store, self._known = store, {**present, **late}
        # What nobody has written yet, and what other shards decide, no command knows.
        if not is_known or store.uncertain or not store.shards.is_alone:
            return
        changed = [(*key, now) for key, now in present.items() if key not in late and _differs(known.get(key), now)]
        gone = [(resource, before) for (resource, key), before in known.items() if (resource, key) not in present]
        if not (changed or gone):
            return
        new = [(resource, now) for resource, key, now in changed if (resource, key) not in known]
        put_back = [
            (resource, {**now, **_users(known[resource, key])})
            for resource, key, now in changed
            if (resource, key) in known
        ]
        before = difference.edited(store, [*put_back, *gone], new)
        files = [(resource, _as_in_a_file(now)) for resource, _, now in changed]
        after = difference.edited(before, edits.merged(before, files), gone)
        said = cycle(snapshot_of(after, trees, since, in_lines=True))
        self.asked += 1
        if sorted(said, key=_in_order) != sorted(decided, key=_in_order):
            names = ", ".join(f"{resource.kind} {now['metadata']['name']}" for resource, now in [*files, *gone])
            raise Violation(f"edits: of {names} it says {said}, and the cycle {decided}")


def _editable(store: ManagerStore) -> Iterator[tuple[Resource, Manifest]]:
    for resource, cache in store.decides_by():
        if resource in edits.EDITABLE:
            yield from ((resource, manifest) for manifest in cache.all())


def _users(manifest: Manifest) -> Manifest:
    return {name: manifest[name] for name in _USERS if name in manifest}


def _differs(before: Manifest | None, now: Manifest) -> bool:
    return before is None or _users(before) != _users(now)


def _has_come(store: ManagerStore, resource: Resource, _: Key, manifest: Manifest) -> bool:
    """Whether each job has the value of its priority class: the command foresees that, and the next cycle may not."""
    if resource != WORKLOADPRIORITYCLASSES:
        return True
    name, value = manifest["metadata"]["name"], manifest["value"]
    return all(
        workload["spec"].get("priority") == value
        for workload in store.workloads.all()
        if (workload["spec"].get("priorityClassRef") or {}).get("name") == name
    )


def _as_in_a_file(manifest: Manifest) -> Manifest:
    """The manifest as its user has it."""
    metadata = {name: value for name, value in manifest["metadata"].items() if name in ("name", "namespace")}
    return {"metadata": metadata, **_users(manifest)}


def _in_order(decision: Decision) -> tuple[str, str]:
    return decision.key, type(decision).__name__
