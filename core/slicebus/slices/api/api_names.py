"""Names the exact strings of slicebus' own API: labels, annotations, finalizers and reasons."""

from typing import Final

ORIGIN_LABEL: Final = "slicebus.dev/origin"
"""On every object that an agent makes. Not Kueue's own origin label: MultiKueue's collector deletes Workloads of its
origin that it does not know."""
ORIGIN: Final = "slicebus"
AGENT_EXTRA: Final = "slicebus.dev/agent"
"""In the user info of a job's creation, where an agent makes it as a service account: the agent's namespace."""
MANAGER_UID_ANNOTATION: Final = "slicebus.dev/manager-uid"
"""On a worker's objects: the UID of the manager's job."""
MANAGER_UID_LABEL: Final = MANAGER_UID_ANNOTATION
"""The same on the pods of a worker's job: they may outlive it."""
SPEC_VERSION_ANNOTATION: Final = "slicebus.dev/spec-version"
GRANTED_ANNOTATION: Final = "slicebus.dev/granted"
"""On a worker's job: the pod counts that may run, JSON by pod set."""
EPOCH_ANNOTATION: Final = "slicebus.dev/epoch"
"""On a worker's gated pod: the epoch of the agent that has taken over its gate."""
REQUESTED_ANNOTATION: Final = "slicebus.dev/requested"
"""On a manager's Workload: the newest size request, where its users may not write. On a worker's job: the size request
that the agent published."""
SPEC_COUNTS_ANNOTATION: Final = "slicebus.dev/spec-counts"
"""On the manager's job, JSON, where a Kueue admits: the counts that its spec has for the worker, and its user's. Who
may write it may edit the spec as well, and says no more by it."""
BASELINE_ANNOTATION: Final = "slicebus.dev/baseline"
"""On a worker's job: the counts of the manager's spec when the agent last applied them."""
UNPLACED_LABEL: Final = "slicebus.dev/unplaced"
"""On a worker's pods: "true" where their template says nothing of their flavor, which was chosen later."""
PLACEMENTS_ANNOTATION: Final = "slicebus.dev/placements"
"""On a worker's Workload, JSON by pod set: where the unplaced pods run."""
NODES_ANNOTATION: Final = "slicebus.dev/nodes"
"""On a worker's Workload, JSON by pod set: the node labels of its flavor, as templates may have them. There are several
where somebody has edited the flavor."""
FLAVORS_ANNOTATION: Final = "slicebus.dev/flavors"
"""On a worker's Workload, JSON by pod set and resource: the flavors that it was given."""
CHARGED_ANNOTATION: Final = "slicebus.dev/charged"
"""On a worker's Workload, JSON by pod set and resource: what one pod was admitted with, as amounts."""
JOB_ANNOTATION: Final = "slicebus.dev/job"
"""On a Workload: `Kind/name` of its job. On the manager's the owner says it too, until the Workload is orphaned."""
JOB_UID_ANNOTATION: Final = "slicebus.dev/job-uid"
"""On a worker's Workload: the UID of the worker's job, from when the job is there."""
DEFINITION_ANNOTATION: Final = "slicebus.dev/definition-uid"
"""On a worker's Workload: the UID of its job's definition. A job that goes with its definition was not deleted by a
user."""
ACCEPTED_CONDITION: Final = "slicebus.dev/Accepted"
"""On a job that is not taken: False, with the reason."""
DISPATCHED_CONDITION: Final = "slicebus.dev/Dispatched"
"""On a Workload: False while the worker refuses it."""
RESIZABLE_CONDITION: Final = "slicebus.dev/Resizable"
"""On a Workload whose job wants a size that no slice can have: False, with the reason."""
RECLAIMED: Final = "Reclaimed"
"""Pods of a job were taken back for others."""
RESTORED: Final = "Restored"
"""The job has pods again that were taken back."""
GROWN: Final = "Grown"
"""The job has pods that nobody asked for, in quota that nobody waits for."""
STRUCTURAL_CHANGE: Final = "StructuralChange"
"""The reason of a resize that would change more than counts."""
END_KNOWN_CONDITION: Final = "slicebus.dev/EndKnown"
"""On a job and its Workload: False from when the worker's copy is gone and may have ended, until the job runs again."""
RUNS_CONDITION: Final = "slicebus.dev/Runs"
"""On a job and its Workload: False while something on the worker refuses the job or its pods."""
HONORED_CONDITION: Final = "slicebus.dev/Honored"
"""On an object of Kueue's kinds: False while a field of it, or of a Workload's job, is set and not honored."""
PODS_GONE_CONDITION: Final = "slicebus.dev/PodsGone"
"""On a Workload whose job has ended: False while pods of it run on, which it is charged for."""
END_SHOWN_CONDITION: Final = "slicebus.dev/EndShown"
"""On a Workload: False where its job has ended on the worker and the API server refuses to show that on the job, with
its words."""
UNSHOWN_END_ANNOTATION: Final = "slicebus.dev/unshown-end"
"""On the same, JSON: how the job has ended, and the status that it would show."""
HELD_CONDITION: Final = "slicebus.dev/DeleteHeld"
"""On a Workload whose job is to be deleted on its worker: True, with the reason, while that delete is held."""
CHARGED_MORE_CONDITION: Final = "slicebus.dev/ChargedMore"
"""On a Workload: True while it is charged for more than it was admitted with: its pods request more where they run."""
EVICTED_BEFORE_CONDITION: Final = "slicebus.dev/EvictedBefore"
"""On a Workload: True once it was evicted; the message has a line for each of its last admissions that ended so."""
OBSERVED_ANNOTATION: Final = "slicebus.dev/observed"
"""On a manager's Workload, JSON: what its pods request where they run, as far as that is more than was admitted."""
DEVICES_ANNOTATION: Final = "slicebus.dev/devices"
"""On a manager's Workload, JSON: how many devices the claims of one pod have, by pod set and resource."""
NO_PLACE: Final = "NoPlace"
"""The reason of a slice that fits the quota and no cluster."""
SUSPENDING: Final = "Suspending"
"""The reason of a Workload that is not dispatched: it is evicted, and its worker may still have pods of it."""
RAYJOB_LABEL: Final = "slicebus.dev/rayjob"
"""On the pods of a worker's RayJob: its name. The pods may outlive their RayCluster."""
RAYSERVICE_LABEL: Final = "slicebus.dev/rayservice"
"""On the pods of a worker's RayService: its name. It has several RayClusters during an upgrade, and after it."""
OWNER_LABEL_PREFIX: Final = "slicebus.dev/of-"
"""With the name of a declared kind in lower case: a label on the pods of a worker's job, its name, where the kind's
controller gives them none."""
DISPATCHED_ANNOTATION: Final = "slicebus.dev/dispatched"
"""On a manager's Workload: version and hash of what its worker shall hold."""
ORDER_CONDITION: Final = "slicebus.dev/Order"
"""On a manager's Workload: True. Its message is as `DISPATCHED_ANNOTATION`, of an order that was written with an
admission. The newer of both counts."""
APPLIED_ANNOTATION: Final = "slicebus.dev/applied"
"""On a manager's Workload: the version that its worker has reported."""
APPLIED_CONDITION: Final = "slicebus.dev/Applied"
"""On a manager's Workload: True. Its message is as `APPLIED_ANNOTATION`, of a version that was written with the answer
of an AdmissionCheck. The higher of both counts."""
UNHEEDED_ANNOTATION: Final = "slicebus.dev/unheeded"
"""On a job of the manager that was taken: what somebody has changed since that has no effect."""
SHARD_ANNOTATION: Final = "slicebus.dev/shard"
"""On a ClusterQueue: the shard of the manager that has it; the first one where there is none."""
SHARDS_ANNOTATION: Final = "slicebus.dev/shards"
"""On the Lease of the manager's first shard: how many shards there are, or were, as long as somebody has to take the
place of one; absent where there is one."""
SETTINGS_ANNOTATION: Final = "slicebus.dev/settings"
"""On the Lease of the manager's first shard, JSON: the settings of its decisions that are not the default, so that a
command decides as it does."""
DRY_RUN_ANNOTATION: Final = "slicebus.dev/dry-run"
"""On the manager's job: "true" has it not run, unless slicebus runs it already."""
VERDICT_ANNOTATION: Final = "slicebus.dev/verdict"
"""On a job of the manager that has `DRY_RUN_ANNOTATION`, JSON: what the next admission cycle would decide about it."""
UNSHOWN_ANNOTATION: Final = "slicebus.dev/unshown-status"
"""On the manager's job, JSON: the parts of the worker's status that its own status does not show, as the API server
refuses them for a job made anew, or another controller writes it."""
BOUNDS_ANNOTATION: Final = "slicebus.dev/bounds"
"""On the worker's job, JSON: what its autoscaler goes by, as the manager has last set it."""
TAKEN_BACK_ANNOTATION: Final = "slicebus.dev/taken-back"
"""On the worker's job: the last scale-up that was taken back by order."""
WAITING_ANNOTATION: Final = "slicebus.dev/waiting"
"""On the manager's job, the worker's job and the RayCluster of a RayJob, JSON: why it does not have the size that it
wants (`waiting`). Nothing is decided by it."""
SCHEDULER_LABEL: Final = "slicebus.dev/scheduler"
"""On a job of the manager: the scheduler backend that it chooses. An annotation of its slices."""
DEFAULT_SCHEDULER: Final = "default"
"""Its value for the backend that makes no gangs: pods are scheduled as their templates say."""
SCHEDULER_ANNOTATION: Final = "slicebus.dev/scheduler-backend"
"""On the worker's job: the backend that it was made for, where that needs more than a scheduler's name."""
RESUMED_ANNOTATION: Final = "slicebus.dev/resumed-at"
"""On the worker's job: when its agent has last resumed what somebody else had suspended, RFC 3339."""
GANG_ANNOTATION: Final = "slicebus.dev/gang"
"""On the worker's job, JSON: how many pods of each pod set start together. On a manager's Workload: how many of them
the scheduler of its gang keeps together, as its worker has reported."""
SPEC_HASH_ANNOTATION: Final = "slicebus.dev/spec-hash"
"""On an object for a scheduler backend: a hash of what the agent has asked for."""
MAX_SIZE_ANNOTATION: Final = "slicebus.dev/max-size"
"""On a job of the manager: the most pods that its worker may ask for, a number for each pod set, or JSON by pod set."""
MIN_SIZE_ANNOTATION: Final = "slicebus.dev/min-size"
"""On a job of the manager and its slices: the least pods by pod set that are of use, `workers=2`. Such a job loses some
pods before it loses all."""
NOTICE_ANNOTATION: Final = "slicebus.dev/notice"
"""On the same: the time between the word and the deed where it loses pods, a duration as `120s`."""
RECLAIMED_ANNOTATION: Final = "slicebus.dev/reclaimed"
"""On a manager's Workload, JSON: which pods were taken back from its job, and for whom (`reclaimed`)."""
GROWN_AT_ANNOTATION: Final = "slicebus.dev/grown-at"
"""On a manager's Workload: when its job was last given more than somebody asked for, RFC 3339."""
FOLLOWS_ANNOTATION: Final = "slicebus.dev/follows"
"""On the worker's job: the id of the note by which the manager has set its size."""
EARLIER_WORDS_ANNOTATION: Final = "slicebus.dev/earlier-words"
"""On the same, JSON: ids and sizes of the notes before that one whose pods had not gone when that one came."""
CAPPED_ANNOTATION: Final = "slicebus.dev/capped"
"""On a worker's RayCluster, JSON: its user's bounds by group, while pods were taken back (`ray_caps`)."""
RECLAIM_ANNOTATION: Final = "slicebus.dev/reclaim"
"""On the worker's job, its RayCluster and the pods that go, JSON: what the job loses, when, why and for whom, while its
notice runs."""
RECLAIM_ACK_ANNOTATION: Final = "slicebus.dev/reclaim-ack"
"""On the worker's job, by its user or its program: the id of that. Its pods may go at once."""
RECLAIM_NOTICE: Final = "ReclaimNotice"
"""The reason of the Event on the worker's job where its notice begins."""
QUEUED_SINCE_ANNOTATION: Final = "slicebus.dev/queued-since"
"""On a manager's Workload that waits for what was taken back from its job: when the job was first admitted, RFC 3339.
By that time it is ranked."""
SPARE_ANNOTATION: Final = "slicebus.dev/spare"
"""On a ClusterQueue: `pods` where its slices take pods of every priority before they preempt a whole job of any."""
PODS_BEFORE_JOBS_ANNOTATION: Final = "slicebus.dev/pods-before-jobs"
"""On a ClusterQueue: "false" where its jobs lose all of their pods or none, whatever their least size; "true" where
they lose some first. Without it the manager's setting counts."""
OPPORTUNISTIC_ANNOTATION: Final = "slicebus.dev/opportunistic"
"""On a ClusterQueue: "false" where its jobs do not grow into quota that nobody waits for."""
BUDGET_ANNOTATION: Final = "slicebus.dev/budget"
"""On a ClusterQueue, a LocalQueue or a Cohort, JSON by resource: the quota-hours that may be spent in a time, as
`5000h/30d` (`budgets`)."""
BUDGET_MODE_ANNOTATION: Final = "slicebus.dev/budget-mode"
"""On the same: `soft`, `hard` or `drain`, what becomes of a budget that is spent."""
BUDGET_CONDITION: Final = "slicebus.dev/Budget"
"""On a ClusterQueue or a LocalQueue: False while a budget of it, or of its cohorts, is spent."""
SPENDING_CONDITION: Final = "slicebus.dev/Spending"
"""On the same: True. Its message has what was spent, JSON, where its users may not write; what it has no room for is in
that of `slicebus.dev/Spending-2`, and so on."""
BUDGET_SPENT: Final = "BudgetSpent"
"""The reason of a slice that waits for a budget, and of the condition of a queue whose budget is spent."""
PARTIAL_SCALE_UP_ANNOTATION: Final = "slicebus.dev/partial-scale-up"
"""On a job of the manager and its slices: "true" where a scale-up may be granted in part."""
SIZED_TOGETHER_ANNOTATION: Final = "slicebus.dev/sized-together"
"""On the manager's Workloads of a job with a least size: the pod sets that have their size from one number, as
`leader+worker`, several such groups with commas."""
REPLICA_SIZES_ANNOTATION: Final = "slicebus.dev/replica-sizes"
"""On a manager's Workload, JSON by pod set: how many pods start and stop together, where that is more than one."""
PLACEMENT_ANNOTATION: Final = "slicebus.dev/placement"
"""On a ClusterQueue: the placement strategy for its jobs."""
CLUSTER_SELECTOR_ANNOTATION: Final = "slicebus.dev/cluster-selector"
"""On a job of the manager and its slices: a label selector of the WorkerClusters that it may run on."""
AVOIDED_CLUSTERS_ANNOTATION: Final = "slicebus.dev/avoided-clusters"
"""On a manager's Workload, JSON by cluster: where its pods did not get ready in time, how often, and until when it does
not go there again (`readiness`)."""
SUSPENDED_ANNOTATION: Final = "slicebus.dev/suspended"
"""On a job of the manager: "true" where slicebus has suspended it, and not its user. On its Workload: "true" where that
is deactivated because its user has suspended the job."""
RUNNING_SINCE_ANNOTATION: Final = "slicebus.dev/running-since"
"""On a manager's Workload that replaces another one: since when its job runs, RFC 3339 (`execution_time`)."""
CHECK_CONTROLLER: Final = "slicebus.dev/dispatch"
"""The `controllerName` of the AdmissionChecks that a manager beside a Kueue answers."""
CLUSTER_ANNOTATION: Final = "slicebus.dev/cluster"
"""On a Workload of such a Kueue: the worker cluster of its chain; empty after an eviction. Kueue's own field
`status.clusterName` is not for others: it takes only names that MultiKueue has nominated. On the Lease of an agent: the
name of its cluster."""
DISPATCHED_FINALIZER: Final = "slicebus.dev/dispatched"
"""On the same: a worker may hold something of it."""
IN_TREE_AUTOSCALING_ANNOTATION: Final = "slicebus.dev/in-tree-autoscaling"
"""On a job of the manager: "true" turns on the Ray autoscaler in the worker's copy only."""
NOT_MANAGED_ANNOTATION: Final = "slicebus.dev/not-managed"
"""On a RayJob of the manager, which has no conditions: why slicebus leaves it alone."""
SET_ASIDE_ANNOTATION: Final = "slicebus.dev/set-aside"
"""On a job of the manager or of a worker: why nothing is done for it, as the decision about it raises."""
SET_ASIDE: Final = "SetAside"
"""The same as the reason of the Event, and of the condition `ACCEPTED_CONDITION`."""
ABSENT: Final = "absent"
"""In place of a hash: nothing is held, or shall be."""
WITHOUT_COPY: Final = "without copy"
"""The same: the job is there, and no Workload copy of it."""
RELEASE_ANNOTATION: Final = "slicebus.dev/release-deletes"
"""On a WorkerCluster: releases the held deletes with that id, from its status."""
AGENTS_OWN: Final = frozenset(
    {
        ORIGIN_LABEL,
        MANAGER_UID_ANNOTATION,
        SPEC_VERSION_ANNOTATION,
        GRANTED_ANNOTATION,
        EPOCH_ANNOTATION,
        REQUESTED_ANNOTATION,
        BASELINE_ANNOTATION,
        JOB_ANNOTATION,
        JOB_UID_ANNOTATION,
        DEFINITION_ANNOTATION,
        RAYJOB_LABEL,
        RAYSERVICE_LABEL,
        UNPLACED_LABEL,
        PLACEMENTS_ANNOTATION,
        NODES_ANNOTATION,
        FLAVORS_ANNOTATION,
        CHARGED_ANNOTATION,
        BOUNDS_ANNOTATION,
        TAKEN_BACK_ANNOTATION,
        FOLLOWS_ANNOTATION,
        EARLIER_WORDS_ANNOTATION,
        CAPPED_ANNOTATION,
        WAITING_ANNOTATION,
        SCHEDULER_ANNOTATION,
        GANG_ANNOTATION,
        RESUMED_ANNOTATION,
        SPEC_HASH_ANNOTATION,
        SET_ASIDE_ANNOTATION,
        RECLAIM_ANNOTATION,
        RECLAIM_ACK_ANNOTATION,
    }
)
"""The labels and annotations that only an agent gives to a worker's objects, whatever an order brings."""
