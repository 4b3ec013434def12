"""The quota of the cached objects, kept so that one tree of it can be decided without reading the others."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Self

import msgspec
from msgspec.structs import replace

from slicebus.kube.cache import Cache, Change
from slicebus.kube.readings import Readings
from slicebus.manager.state.budgets import BudgetWorld
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.budget_limit import SpentBudgets
from slicebus.slices.admission.cycle import Admit
from slicebus.slices.admission.growth_limit import GrowthLimit
from slicebus.slices.admission.lines import Behind, Lines
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.admission.usage_order import LocalUses
from slicebus.slices.api.quantities import add
from slicebus.slices.placement.fleet import Strategy
from slicebus.slices.placement.placement import usage_of
from slicebus.slices.quota.cohorts import cohort_node, queue_node, trees
from slicebus.slices.quota.consumption import Consumption, LocalUse, UsageRule, in_amounts
from slicebus.slices.quota.holdings import Part
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.quota.quota import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Usage, by_resource
from slicebus.slices.workload.workload import LocalQueueKey, Slice, SliceKey

NOWHERE = "nowhere"
"""In place of a tree, for workloads whose queue does not exist."""
SliceCallback = Callable[[Slice | None, Slice | None], None]
"""A function that is called with a slice before and after a change."""


class _Forest(msgspec.Struct, frozen=True):
    """The readable queues and cohorts, all and by the root of their tree."""

    queues: dict[str, ClusterQueue]
    cohorts: tuple[Cohort, ...]
    roots: dict[str, str]
    """The root of each queue and cohort, by their names as nodes."""
    queues_in: dict[str, dict[str, ClusterQueue]]
    cohorts_in: dict[str, list[Cohort]]
    has_budgets: bool
    """Whether any of them has a budget."""

    @classmethod
    def of(cls, queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> Self:
        by_name, known = {queue.name: queue for queue in queues}, tuple(cohorts)
        has_budgets = any(each.budget for each in by_name.values()) or any(each.budget for each in known)
        readable = cls(by_name, known, {}, {}, {}, has_budgets)
        readable.roots.update(trees(readable.queues.values(), readable.cohorts))
        for name, queue in readable.queues.items():
            readable.queues_in.setdefault(readable.roots[queue_node(name)], {})[name] = queue
        for cohort in readable.cohorts:
            readable.cohorts_in.setdefault(readable.roots[cohort_node(cohort.name)], []).append(cohort)
        return readable


class Quotas:
    """Follows the caches of the objects that have quota or use it."""

    def __init__(
        self,
        *,
        workloads: Cache,
        cluster_queues: Cache,
        cohorts: Cache,
        local_queues: Cache,
        flavors: Cache,
        namespaces: Cache,
        clusters: Cache,
    ) -> None:
        self.ledger = Ledger()
        """Every Workload as a slice."""
        self._lines = Lines()
        self._grown: _Forest | None = None
        """None when a queue or a cohort has changed."""
        self._labels: dict[str, Mapping[str, str]] | None = None
        """The labels of each namespace; None when one has changed."""
        self._callbacks: list[SliceCallback] = []
        self._workloads = Readings(
            workloads, Slice.from_manifest, read_again=_reread_slice, on_change=self._slice_changed
        )
        self._cluster_queues = Readings(cluster_queues, ClusterQueue.from_manifest, on_change=self._forest_changed)
        self._cohorts = Readings(cohorts, Cohort.from_manifest, on_change=self._forest_changed)
        self._cluster_queue_objects, self._local_queue_objects = cluster_queues, local_queues
        self._budgeted: dict[LocalQueueKey, LocalQueue] = {}
        """The LocalQueues with budgets."""
        self._local_queues = Readings(local_queues, LocalQueue.from_manifest, on_change=self._local_queue_changed)
        self._flavors = Readings(flavors, ResourceFlavor.from_manifest)
        self._namespaces = namespaces
        namespaces.subscribe(self._namespace_changed)
        self._clusters = Readings(clusters, WorkerCluster.from_manifest)

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        """The readable ClusterQueues by name. One whose quota is not a quantity counts as missing."""
        return self._forest.queues

    @property
    def cohorts(self) -> tuple[Cohort, ...]:
        """The readable Cohorts."""
        return self._forest.cohorts

    @property
    def local_queues(self) -> Mapping[LocalQueueKey, LocalQueue]:
        """Every LocalQueue that can be read."""
        return self._local_queues.values

    @property
    def worker_clusters(self) -> list[WorkerCluster]:
        """Every WorkerCluster of the fleet that can be read."""
        return list(self._clusters.values.values())

    @property
    def budgets(self) -> BudgetWorld:
        """What is spent of the budgets of every queue and cohort."""
        return BudgetWorld(
            cluster_queues=self.cluster_queues,
            cohorts={cohort.name: cohort for cohort in self.cohorts},
            local_queues=self._budgeted,
            cluster_queue_objects=self._cluster_queue_objects,
            local_queue_objects=self._local_queue_objects,
            ledger=self.ledger,
        )

    @property
    def has_budgets(self) -> bool:
        """Whether any queue or cohort has a budget that can be read."""
        return self._forest.has_budgets or bool(self._budgeted)

    @property
    def trees(self) -> Mapping[str, str]:
        """The root of each ClusterQueue and Cohort, by their names as nodes."""
        return self._forest.roots

    @property
    def _forest(self) -> _Forest:
        if self._grown is None:
            self._grown = _Forest.of(self._cluster_queues.values.values(), self._cohorts.values.values())
        return self._grown

    def cluster_queue_of(self, local_queue: LocalQueueKey) -> str:
        """The ClusterQueue that a LocalQueue names; empty where there is no such LocalQueue."""
        local = self.local_queues.get(local_queue)
        return local.cluster_queue if local else ""

    def queue_of(self, chain: Collection[Slice]) -> ClusterQueue | None:
        """The ClusterQueue whose quota a job has, or else wants; None where it is missing. Where the LocalQueue of the
        job is drained, it is too."""
        unfinished = [slice for slice in chain if not slice.finished]
        held = next((slice.admission for slice in unfinished if slice.admission is not None), None)
        locals = [local for slice in unfinished if (local := self.local_queues.get(slice.local_queue)) is not None]
        queue = self.cluster_queues.get(held.cluster_queue if held else locals[0].cluster_queue if locals else "")
        return replace(queue, drained=True) if queue is not None and any(one.drained for one in locals) else queue

    def consumption_of(self, queue: LocalQueue, moment: datetime, rule: UsageRule) -> Consumption:
        """What a LocalQueue has used until now, and uses."""
        manifest = self._local_queue_objects.get(*queue.key)
        said = Consumption.from_status(manifest.get("status") or {}) if manifest is not None else None
        used = self.ledger.used_in.totals.get((queue.key, queue.cluster_queue), {})
        return Consumption(said.until(moment, rule) if said is not None else {}, moment, in_amounts(by_resource(used)))

    def tree_of(self, local_queue: LocalQueueKey) -> str:
        """The tree of quota that a LocalQueue belongs to."""
        return self.trees.get(queue_node(self.cluster_queue_of(local_queue)), NOWHERE)

    def is_settled(self, only: Collection[str] | None) -> bool:
        """Whether no slice waits for quota of these trees, and none that has quota was stopped, or may be by a budget.
        None stands for all."""
        if self.ledger.inactive or any(only is None or self.tree_of(key) in only for key in self.ledger.waiting_in()):
            return False
        return not (self._stopped(self.cluster_queues) or self._stopped_in())

    def snapshot(
        self,
        only: Collection[str] | None,
        assumed: Mapping[SliceKey, Admit],
        *,
        strategy: Strategy = Strategy.SPREAD,
        fair_sharing: FairSharing = FairSharing.OFF,
        preemption_cycles_since: str | None = None,
        growth_limit: GrowthLimit | None = None,
        notice_cap_s: float = 0.0,
        pods_before_jobs: bool = True,
        moment: datetime | None = None,
        usage_rule: UsageRule = UsageRule(),  # noqa: B008 a frozen value
        in_lines: bool = False,
        refused: frozenset[SliceKey] = frozenset(),
    ) -> Snapshot:
        """The input of an admission cycle over some trees; all for None. `assumed` slices count as admitted. No budget
        is spent, and nobody has used anything, where there is no `moment` of the cycle. `in_lines`: its part has only
        the first of those who are alike. `refused` are the slices that come last: their admission was refused."""
        forest = self._forest
        queues, cohorts = forest.queues, forest.cohorts
        if only is not None:
            queues = {name: queue for tree in only for name, queue in forest.queues_in.get(tree, {}).items()}
            cohorts = tuple(cohort for tree in only for cohort in forest.cohorts_in.get(tree, ()))
        waiting_in = [key for key in self.ledger.waiting_in() if only is None or self.tree_of(key) in only]
        if in_lines:
            waiting, behind = self._lines.waiting_in(waiting_in, apart=assumed.keys() | refused)
        else:
            waiting, behind = self._waiting(waiting_in), list[Behind]()
        load, granted = dict(self.ledger.load), dict(self.ledger.granted)
        for key, admit in assumed.items():
            slice = self.ledger.slices.get(key)
            if slice is None or slice.admission is not None:
                continue
            if slice.replaces is None:
                load[admit.cluster] = load.get(admit.cluster, 0) + 1
            granted[admit.cluster] = add(granted.get(admit.cluster, {}), self._added_usage(slice, admit))
        return Snapshot(
            cluster_queues=queues,
            cohorts=cohorts,
            local_queues=self.local_queues,
            flavors={flavor.name: flavor for flavor in self._flavors.values.values()},
            namespaces=self.namespace_labels(),
            part=self._assuming(assumed, self._part(queues, only, waiting)),
            behind=tuple(behind),
            clusters=tuple(cluster.place for cluster in self.worker_clusters),
            load=load,
            granted=granted,
            strategy=strategy,
            fair_sharing=fair_sharing,
            preemption_cycles_since=preemption_cycles_since,
            growth_limit=growth_limit,
            refused=refused,
            notice_cap_s=notice_cap_s,
            pods_before_jobs=pods_before_jobs,
            spent_budgets=self._spent(queues, moment) if moment is not None else SpentBudgets(),
            local_uses=self._local_uses(queues, moment, usage_rule) if moment is not None else LocalUses(),
        )

    def _local_uses(self, queues: Mapping[str, ClusterQueue], moment: datetime, rule: UsageRule) -> LocalUses:
        """What the LocalQueues of these ClusterQueues have used. Where none goes by that, nothing is looked at."""
        by_usage = {name for name, queue in queues.items() if queue.usage_based}
        locals = [local for local in self.local_queues.values() if local.cluster_queue in by_usage] if by_usage else ()
        ahead = moment + timedelta(seconds=rule.ahead_s)
        uses = {
            local.key: LocalUse(
                rule.weighted(self.consumption_of(local, moment, rule).until(ahead, rule)), local.weight
            )
            for local in locals
        }
        return LocalUses(rule, uses)

    def _spent(self, queues: Mapping[str, ClusterQueue], moment: datetime) -> SpentBudgets:
        """The budgets of some queues of which nothing is left. Without any budget nothing is looked at."""
        return self.budgets.spent(queues.values(), moment) if self.has_budgets else SpentBudgets()

    def _added_usage(self, slice: Slice, admit: Admit) -> Usage:
        """The usage that an admission adds to that of its chain."""
        charged = self.ledger.holdings.used_by(slice.chain_id).get(admit.admission.cluster_queue, {})
        return {key: max(0, need - charged.get(key, 0)) for key, need in usage_of(slice, admit.admission).items()}

    def _waiting(self, local_queues: Iterable[LocalQueueKey]) -> list[Slice]:
        return [slice for key in local_queues for slice in self.ledger.waiting(key)]

    def _part(self, queues: Mapping[str, ClusterQueue], only: Collection[str] | None, waiting: Iterable[Slice]) -> Part:
        nowhere = only is not None and NOWHERE in only
        return self.ledger.part(
            None if only is None else _WithMissing(queues, self.cluster_queues) if nowhere else queues,
            waiting,
            stopped=self._stopped(queues),
            stopped_in=self._stopped_in(),
        )

    def _stopped(self, queues: Mapping[str, ClusterQueue]) -> list[str]:
        """Those of these ClusterQueues that take quota back, or may by a budget."""
        if any(map(_drains, self.cohorts)):
            return list(queues)
        return [name for name, queue in queues.items() if queue.drained or _drains(queue)]

    def _stopped_in(self) -> list[LocalQueueKey]:
        """The same of all LocalQueues."""
        return [key for key, queue in self.local_queues.items() if queue.drained or _drains(queue)]

    def _assuming(self, admits: Mapping[SliceKey, Admit], part: Part) -> Part:
        """The part with admissions that were sent and not answered."""
        assumed = {slice.key: _assumed(slice, admits[slice.key]) for slice in part.waiting if slice.key in admits}
        if not assumed:
            return part
        holdings = part.holdings.copy()
        for chain_id in dict.fromkeys(slice.chain_id for slice in assumed.values()):
            holdings.settle(chain_id, [assumed.get(slice.key, slice) for slice in self.ledger.chain(chain_id)])
        waiting = tuple(slice for slice in part.waiting if slice.key not in assumed)
        return msgspec.structs.replace(part, waiting=waiting, holdings=holdings)

    def on_slice_change(self, callback: SliceCallback) -> None:
        """Call back with every slice that is added, changed or removed; at first with every present one."""
        self._callbacks.append(callback)
        for slice in self.ledger.slices.values():
            callback(None, slice)

    def _slice_changed(self, old: Slice | None, new: Slice | None) -> None:
        """Take over a slice. Most writes on a Workload are annotations of its dispatch, which leave
        the slice as it is."""
        if new == old:
            return
        if new is not None:
            self.ledger.put(new)
        elif old is not None:
            self.ledger.remove(old.key)
            self._lines.remove(old.key)
        for chain_id in {slice.chain_id for slice in (old, new) if slice is not None}:
            self._line_up(self.ledger.chain(chain_id))
        for callback in self._callbacks:
            callback(old, new)

    def _line_up(self, chain: Collection[Slice]) -> None:
        for slice in chain:
            if slice.finished or slice.admission is not None:
                self._lines.remove(slice.key)
            else:
                self._lines.put(slice, is_only=len(chain) == 1)

    def _local_queue_changed(self, old: LocalQueue | None, new: LocalQueue | None) -> None:
        if old is not None:
            self._budgeted.pop(old.key, None)
        if new is not None and new.budget is not None:
            self._budgeted[new.key] = new

    def _forest_changed(self, old: object, new: object) -> None:
        """Forget the trees. Most writes on a queue are of its status, and change none."""
        if new != old:
            self._grown = None

    def _namespace_changed(self, _: Change) -> None:
        self._labels = None

    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""
        if self._labels is None:
            labelled = (space["metadata"] for space in self._namespaces.all())
            self._labels = {metadata["name"]: metadata.get("labels") or {} for metadata in labelled}
        return self._labels


def _drains(one: ClusterQueue | LocalQueue | Cohort) -> bool:
    return one.budget is not None and one.budget.drains


class _WithMissing(Container[str]):
    """Some ClusterQueues, and every name that no ClusterQueue has: workloads may have quota of a deleted one."""

    def __init__(self, queues: Container[str], known: Container[str]) -> None:
        self._queues = queues
        self._known = known

    def __contains__(self, name: object) -> bool:
        return name in self._queues or name not in self._known


def _reread_slice(new: Manifest, old: Manifest, slice: Slice) -> Slice:
    """Read a slice again, with the parts that have not changed: parsing their quantities takes the time."""

    def is_same(part: str, name: str) -> bool:
        return bool(new.get(part, {}).get(name) == old.get(part, {}).get(name))

    return Slice.from_manifest(
        new,
        pod_sets=slice.pod_sets if is_same("spec", "podSets") else (),
        admission=slice.admission if is_same("status", "admission") else None,
    )


def _assumed(slice: Slice, admit: Admit) -> Slice:
    return msgspec.structs.replace(slice, admission=admit.admission, cluster=admit.cluster)
