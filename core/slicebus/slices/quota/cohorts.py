"""Joins queues and cohorts into trees, in which they lend each other the quota that they do not use.

Every node has its own quota and what its children lend it. A child's `lendingLimit` is the most that it lends; it keeps
the rest for itself. What a child uses beyond that counts at its parent too, and its `borrowingLimit` is the most that
it may use beyond its own quota. A ClusterQueue is a leaf, a Cohort an inner node. A Cohort that is named and does not
exist is one without quota of its own.

Amounts are whole numbers by flavor and resource. Source of the rules: Kueue v0.19.2, ClusterQueue and Cohort API.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

import msgspec

from slicebus.slices.quota.quota import ClusterQueue, Cohort, FlavorResource, Limits, Usage

MOST_LEVELS = 50
"""The most cohorts from a root down. Quota is looked up level by level, by functions that call themselves."""
_NO_LIMITS = Limits()


class Node:
    """A ClusterQueue or a Cohort, with its usage. Only `use`, `use_all` and `give` change that."""

    __slots__ = (
        "_kept",
        "_lendable",
        "_used",
        "cohorts",
        "limits",
        "name",
        "parent",
        "queues",
        "quota",
        "standing",
        "weight",
    )

    def __init__(self, name: str, limits: Mapping[FlavorResource, Limits], *, weight: float) -> None:
        self.name = name
        self.limits = limits
        self.weight = weight
        self.parent: Node | None = None
        self.queues: list[Node] = []
        """The ClusterQueues directly below."""
        self.cohorts: list[Node] = []
        """The Cohorts directly below."""
        self.quota: dict[FlavorResource, int] = {key: limit.nominal for key, limit in limits.items()}
        """Its own quota, and what its children lend it."""
        self._kept: dict[FlavorResource, int] = {}
        self._used: dict[FlavorResource, int] = {}
        self._lendable: dict[str, int] = {}
        self.standing = self
        """The same node without what this cycle has admitted or reserved by `give`."""

    def join(self, parent: "Node") -> None:
        """Lend to a parent and borrow from it. Call it after the own children have joined."""
        self.parent = parent
        for key, value in self.quota.items():
            lending = self.limits.get(key, _NO_LIMITS).lending
            self._kept[key] = 0 if lending is None else max(0, value - lending)
            parent.quota[key] = parent.quota.get(key, 0) + value - self._kept[key]

    def used(self, key: FlavorResource) -> int:
        """What the jobs of a queue use, or the children of a cohort beyond what they keep."""
        return self._used.get(key, 0)

    def use(self, key: FlavorResource, more: int) -> None:
        """Add an amount here, and wherever it is borrowed from; a negative one takes it back."""
        kept, before = self._kept.get(key, 0), self._used.get(key, 0)
        self._used[key] = before + more
        passed_on = max(0, before + more - kept) - max(0, before - kept)
        if self.parent is not None and passed_on:
            self.parent.use(key, passed_on)

    def use_all(self, usage: Mapping[FlavorResource, int], *, times: int = 1) -> None:
        """Add every amount; `times` -1 takes them back."""
        for key, value in usage.items():
            self.use(key, times * value)
        if self.standing is not self:
            self.standing.use_all(usage, times=times)

    def give(self, usage: Mapping[FlavorResource, int]) -> None:
        """Add what this cycle admits or reserves. `exceeds` leaves that out."""
        for key, value in usage.items():
            self.use(key, value)

    def available(self, key: FlavorResource) -> int:
        """How much more can be used here. Negative where quota in use was taken away."""
        quota, used = self.quota.get(key, 0), self._used.get(key, 0)
        if self.parent is None:
            return quota - used
        kept = self._kept.get(key, 0)
        from_parent = self.parent.available(key)
        borrowing = self.limits.get(key, _NO_LIMITS).borrowing
        if borrowing is not None:
            from_parent = min(from_parent, quota - kept - max(0, used - kept) + borrowing)
        return max(0, kept - used) + from_parent

    def has_room(self, needs: Mapping[FlavorResource, int]) -> bool:
        """Whether this much more can be used here."""
        return all(need <= max(0, self.available(key)) for key, need in needs.items())

    def capacity(self, key: FlavorResource) -> int:
        """How much could be used here if nobody used anything."""
        if self.parent is None:
            return self.quota.get(key, 0)
        most = self._kept.get(key, 0) + self.parent.capacity(key)
        borrowing = self.limits.get(key, _NO_LIMITS).borrowing
        return most if borrowing is None else min(most, self.quota.get(key, 0) + borrowing)

    def borrows(self, key: FlavorResource, more: int = 0) -> bool:
        """Whether it uses more than its quota, or would."""
        return self._used.get(key, 0) + more > self.quota.get(key, 0)

    def lendable(self) -> Mapping[str, int]:
        """How much could be used here of each resource, of all flavors together, if nobody used anything."""
        if not self._lendable:
            for key in self.root.quota:
                self._lendable[key[1]] = self._lendable.get(key[1], 0) + self.capacity(key)
        return self._lendable

    def exceeds(self, keys: Iterable[FlavorResource]) -> bool:
        """Whether the quota holders use more than its own quota of any of these: only then may others reclaim it.

        What this cycle has given does not count: its holder is no victim yet, and others would lose theirs for it.
        """
        return any(self.standing.used(key) > self.quota.get(key, 0) for key in keys)

    def unused(self, key: FlavorResource) -> int:
        """The unused part of what it keeps for itself."""
        return max(0, self._kept.get(key, 0) - self._used.get(key, 0))

    def height(self) -> int:
        """How many levels are below it."""
        return max((cohort.height() for cohort in self.cohorts), default=-1 if not self.queues else 0) + 1

    def distance(self, key: FlavorResource, more: int) -> tuple[int, bool]:
        """From how far up so much more would come, and whether that is below the root of its tree.

        The distance is 0 for the own quota, else the height of the smallest part of the tree that has so much. What
        others have borrowed of that part can be reclaimed.
        """
        if self.parent is None or not self.borrows(key, more):
            return 0, self.parent is not None
        missing, part = more - self.unused(key), self
        for part in self.path():
            if not part.borrows(key, missing):
                return part.height(), part.parent is not None
            missing -= part.unused(key)
        return part.height(), False

    def path(self) -> Iterator["Node"]:
        """Its cohort, that one's parent, and so on to the root."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> "Node":
        """The top of its tree: itself where it has no cohort."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node


class Forest(msgspec.Struct, frozen=True):
    """Every queue and cohort, joined. Queues of cohorts that are each other's parent, or too far below a root, are in
    no tree, and lend nothing."""

    queues: dict[str, Node]
    cohorts: dict[str, Node]
    circles: dict[str, tuple[str, ...]]
    """The cohorts that form a cycle, by each queue in them or below."""
    too_deep: frozenset[str]
    """The queues whose cohort has more than `MOST_LEVELS` from the root down to it."""

    def problem(self, queue: str) -> tuple[str, str] | None:
        """Why a queue belongs to no tree, as the reason of a condition and in words; None for any other queue."""
        if circle := self.circles.get(queue):
            return "CohortCycle", f"the cohorts {' and '.join(circle)} are each other's parent"
        if queue in self.too_deep:
            return "CohortTooDeep", f"its cohort has more than {MOST_LEVELS - 1} cohorts above it"
        return None


def grow(
    queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort], used: Mapping[str, Usage] = MappingProxyType({})
) -> Forest:
    """Join all queues and cohorts into trees, with their usage. Usage of an unknown queue counts nowhere."""
    specs = {cohort.name: cohort for cohort in cohorts}
    parents = {cohort.name: cohort.parent for cohort in specs.values()}
    nodes: dict[str, Node] = {}
    leaves: dict[str, Node] = {}
    circles: dict[str, tuple[str, ...]] = {}
    children: dict[str, list[str]] = {}
    members: dict[str, list[str]] = {}
    for queue in queues:
        leaves[queue.name] = Node(queue.name, queue.limits, weight=queue.weight)
        if queue.cohort:
            members.setdefault(queue.cohort, []).append(queue.name)
    pending = [*specs, *(name for name in members if name not in specs)]
    while pending:
        name = pending.pop()
        if name in nodes:
            continue
        spec = specs.get(name)
        nodes[name] = Node(name, spec.limits if spec else {}, weight=spec.weight if spec else 1.0)
        if spec and spec.parent:
            children.setdefault(spec.parent, []).append(name)
            pending.append(spec.parent)
    for name in nodes:
        _, circle = _path(name, parents) if name in members else ([], [])
        circles |= dict.fromkeys(members.get(name, ()), tuple(circle)) if circle else {}
    roots = [name for name in nodes if not (name in specs and specs[name].parent)]
    in_trees = _leaves_first(roots, children)
    for name in in_trees:
        for queue_name in members.get(name, ()):
            leaves[queue_name].join(nodes[name])
            nodes[name].queues.append(leaves[queue_name])
        for child in filter(in_trees.__contains__, children.get(name, ())):
            nodes[child].join(nodes[name])
            nodes[name].cohorts.append(nodes[child])
    for name, leaf in leaves.items():
        leaf.use_all(used.get(name, {}))
    outside = {queue for name in nodes if name not in in_trees for queue in members.get(name, ())}
    return Forest(queues=leaves, cohorts=nodes, circles=circles, too_deep=frozenset(outside - circles.keys()))


def trees(queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> dict[str, str]:
    """The root of every node, by name. A change in one tree changes nothing in another."""
    roots: dict[str, str] = {}
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    joined = {queue.name: queue.cohort for queue in queues}
    for name in {*parents, *joined.values()} - {""}:
        above, circle = _path(name, parents)
        roots[cohort_node(name)] = cohort_node(min(circle) if circle else above[-1])
    for name, cohort in joined.items():
        roots[queue_node(name)] = roots[cohort_node(cohort)] if cohort else queue_node(name)
    return roots


def queue_node(name: str) -> str:
    """The name of a ClusterQueue in `trees`."""
    return f"queue/{name}"


def cohort_node(name: str) -> str:
    """The name of a Cohort in `trees`."""
    return f"cohort/{name}"


def _leaves_first(roots: Iterable[str], children: Mapping[str, list[str]]) -> dict[str, None]:
    """The cohorts of the first `MOST_LEVELS` levels from the roots down, children before parents."""
    levels = [[*roots]]
    while levels[-1] and len(levels) < MOST_LEVELS:
        levels.append([child for name in levels[-1] for child in children.get(name, ())])
    return dict.fromkeys(name for level in reversed(levels) for name in level)


def _path(name: str, parents: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """A cohort and those above it, and the cycle that they lead to; empty where they lead to a root."""
    seen: dict[str, None] = {}
    while name and name not in seen:
        seen[name] = None
        name = parents.get(name, "")
    above = [*seen]
    return above, above[above.index(name) :] if name else []
