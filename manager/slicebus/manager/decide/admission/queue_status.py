"""The status of ClusterQueues, LocalQueues and Cohorts: how many workloads wait, and how much quota is used."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from slicebus.decisions.commands import Command, Patch
from slicebus.kube.resources import CLUSTERQUEUES, COHORTS, LOCALQUEUES, Resource
from slicebus.manager.decide.admission import budget_status, honoring
from slicebus.manager.decide.admission.budget_status import BudgetReport, uncounted
from slicebus.manager.state.budgets import BudgetWorld
from slicebus.proto.messages import Manifest
from slicebus.slices.admission.sharing import FairSharing, share
from slicebus.slices.api.conditions import Finding, with_findings
from slicebus.slices.api.quantities import format_amount
from slicebus.slices.quota.cohorts import Forest, Node, grow
from slicebus.slices.quota.consumption import Consumption, UsageRule, to_status
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.quota.quota import ClusterQueue, Cohort, LocalQueue, Usage, keys_by_cluster_queue
from slicebus.slices.workload.workload import LocalQueueKey
from slicebus.slices.workload.workload_counts import SliceState

ACTIVE = "Active"
FAIR_SHARING = "slicebus.dev/FairSharing"
"""True where shares decide; the reason names by which strategies."""


def statuses(
    cluster_queues: Mapping[str, ClusterQueue],
    cohorts: Iterable[Cohort],
    cluster_queue_objects: Sequence[Manifest],
    local_queue_objects: Sequence[Manifest],
    ledger: Ledger,
    *,
    now: str,
    fair_sharing: FairSharing = FairSharing.OFF,
    cohort_objects: Sequence[Manifest] = (),
    budgets: BudgetWorld | None = None,
    usage_rule: UsageRule = UsageRule(),  # noqa: B008 a frozen value
) -> list[Command]:
    """A patch for every queue whose status has changed. `cluster_queues` are those that can be read.

    With fair sharing the status also has the shares of ClusterQueues and Cohorts; with `budgets` what is spent of them.
    By `usage_rule` LocalQueues show what they have used, where their ClusterQueue goes by that.
    """

    def spent_by(queue: ClusterQueue | LocalQueue | None, manifest: Manifest) -> BudgetReport:
        if queue is None or budgets is None:
            return BudgetReport()
        return budget_status.report(budgets, queue, manifest, now=now)

    def above(queue: ClusterQueue | None) -> list[Manifest]:
        cohorts = budgets.cohorts_of(queue) if queue is not None and budgets is not None else ()
        return [known[cohort.name] for cohort in cohorts if cohort.name in known]

    known = {manifest["metadata"]["name"]: manifest for manifest in cohort_objects}
    local_queues = [LocalQueue.from_manifest(manifest) for manifest in local_queue_objects]
    members = keys_by_cluster_queue(local_queues)
    usage = ledger.holdings.totals
    forest = grow(cluster_queues.values(), cohorts, usage)
    shares = fair_sharing is not FairSharing.OFF
    commands = _cohort_shares(cohort_objects, forest) if shares else []
    for manifest in cluster_queue_objects:
        name = manifest["metadata"]["name"]
        queue = cluster_queues.get(name)
        status = _counts(ledger, members.get(name, ())) | (_flavors(queue, usage.get(name, {})) if queue else {})
        if shares or manifest.get("status", {}).get("fairSharing"):
            status["fairSharing"] = _weighted_share(forest.queues.get(name)) if shares else None
        findings = [
            _active(manifest, queue, forest.problem(name)),
            *_shared(manifest, fair_sharing),
            *honoring.findings(CLUSTERQUEUES, manifest, above=above(queue), more=uncounted(budgets, queue)),
        ]
        commands += _patch(CLUSTERQUEUES, manifest, status, *findings, spent=spent_by(queue, manifest), now=now)
    for manifest, local in zip(local_queue_objects, local_queues, strict=True):
        queue = cluster_queues.get(local.cluster_queue)
        status = _counts(ledger, [local.key])
        if queue:  # Only a ClusterQueue borrows.
            used = ledger.used_in.totals.get((local.key, queue.name), {})
            status |= _flavors(queue, used, shows_borrowed=False)
        findings = [_local_active(local, cluster_queues), *honoring.findings(LOCALQUEUES, manifest)]
        account = _account(manifest, usage_rule, now=now) if queue is not None and queue.usage_based else None
        if account is None and manifest.get("status", {}).get("fairSharing"):
            status["fairSharing"] = None
        spent = spent_by(local, manifest)
        commands += _patch(LOCALQUEUES, manifest, status, *findings, spent=spent, account=account, now=now)
    return commands


def _counts(ledger: Ledger, local_queues: Iterable[LocalQueueKey]) -> Manifest:
    counted = ledger.workload_counts.total(local_queues)
    return {
        "pendingWorkloads": counted[SliceState.PENDING],
        "reservingWorkloads": counted[SliceState.RESERVING],
        "admittedWorkloads": counted[SliceState.ADMITTED],
    }


def _cohort_shares(cohorts: Sequence[Manifest], forest: Forest) -> list[Command]:
    commands: list[Command] = []
    for manifest in cohorts:
        weighted = _weighted_share(forest.cohorts.get(manifest["metadata"]["name"]))
        if weighted != manifest.get("status", {}).get("fairSharing"):
            body = {"status": {"fairSharing": weighted}}
            commands.append(Patch(resource=COHORTS, target=manifest, body=body, subresource="status"))
    return commands


def _weighted_share(node: Node | None) -> Manifest | None:
    return {"weightedShare": share(node).rounded} if node is not None else None


def _shared(cluster_queue: Manifest, fair_sharing: FairSharing) -> list[Finding]:
    """The condition that shows whether shares decide; none where they never did."""
    if fair_sharing is not FairSharing.OFF:
        return [Finding(FAIR_SHARING, True, fair_sharing, "Workloads get and lose what they borrow by shares")]
    if fair_sharing_of(cluster_queue) is not FairSharing.OFF:
        return [Finding(FAIR_SHARING, False, "Off", "Shares decide nothing")]
    return []


def fair_sharing_of(cluster_queue: Manifest) -> FairSharing:
    """The fair sharing that the manager has written onto a ClusterQueue."""
    reasons = {
        condition["reason"]
        for condition in cluster_queue.get("status", {}).get("conditions") or ()
        if (condition["type"], condition["status"]) == (FAIR_SHARING, "True")
    }
    return next((way for way in FairSharing if way in reasons), FairSharing.OFF)


def _flavors(queue: ClusterQueue, used: Usage, *, shows_borrowed: bool = True) -> Manifest:
    """The use of every flavor and resource that the quota covers, also where it is 0."""
    totals: dict[str, list[Manifest]] = {}
    for (flavor, resource), nominal in queue.nominal.items():
        total = used.get((flavor, resource), 0)
        borrows = shows_borrowed and queue.cohort and total > nominal
        amounts = {"total": total} | ({"borrowed": total - nominal} if borrows else {})
        totals.setdefault(flavor, []).append(
            {"name": resource} | {name: format_amount(resource, amount) for name, amount in amounts.items()}
        )
    flavors = [{"name": flavor, "resources": resources} for flavor, resources in totals.items()]
    return {"flavorsReservation": flavors, "flavorsUsage": flavors}


def _active(manifest: Manifest, queue: ClusterQueue | None, problem: tuple[str, str] | None) -> Finding:
    if queue is None:
        return Finding(ACTIVE, False, "Unreadable", f"Can't admit new workloads: {_unreadable(manifest)}")
    if queue.held:
        return Finding(ACTIVE, False, "Stopped", "Can't admit new workloads: stopPolicy")
    if problem is not None:
        reason, text = problem
        return Finding(ACTIVE, False, reason, f"Can't admit new workloads: {text}")
    return Finding(ACTIVE, True, "Ready", "Can admit new workloads")


def _unreadable(manifest: Manifest) -> str:
    try:
        ClusterQueue.from_manifest(manifest)
    except ValueError as error:
        return f"its spec has what is {error}"
    return "it was unreadable"


def _local_active(local: LocalQueue, cluster_queues: Mapping[str, ClusterQueue]) -> Finding:
    queue = cluster_queues.get(local.cluster_queue)
    if queue is None:
        message = f"Can't submit new workloads: ClusterQueue {local.cluster_queue} doesn't exist"
        return Finding(ACTIVE, False, "ClusterQueueDoesNotExist", message)
    if local.held:
        return Finding(ACTIVE, False, "Stopped", "Can't submit new workloads: stopPolicy")
    if queue.held:
        return Finding(ACTIVE, False, "ClusterQueueIsInactive", "Can't submit new workloads: ClusterQueue is stopped")
    return Finding(ACTIVE, True, "Ready", "Can submit new workloads to ClusterQueue")


def _account(manifest: Manifest, rule: UsageRule, *, now: str) -> Manifest:
    """What a LocalQueue has used until now. It is written with what changes anyway: what it uses from then on is there
    too, so nothing is written because time passes."""
    said = Consumption.from_status(manifest.get("status") or {})
    return to_status(said.until(datetime.fromisoformat(now), rule) if said is not None else {}, now)


def _patch(
    resource: Resource,
    manifest: Manifest,
    status: Manifest,
    *findings: Finding,
    spent: BudgetReport,
    account: Manifest | None = None,
    now: str,
) -> list[Command]:
    """The patch of one queue; `account` is written with it, or where there is none yet."""
    wanted = status | {"conditions": with_findings(manifest, *findings, *spent.shown, now=now)}
    present = manifest.get("status", {})
    is_due = spent.is_due or (account is not None and Consumption.from_status(present) is None)
    if not is_due and all(present.get(field) == value for field, value in wanted.items()):
        return []
    former = budget_status.without_former(manifest, spent)
    wanted |= {"fairSharing": account} if account is not None else {}
    wanted |= {"conditions": with_findings(former, *findings, *spent.shown, *spent.kept, now=now)}
    return [Patch(resource=resource, target=manifest, body={"status": wanted}, subresource="status"), *spent.events]
