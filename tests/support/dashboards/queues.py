"""The queues: who waits for quota, how long, and who uses it."""

from support.dashboards.grafana import PER_MINUTE, SECONDS, SHARE, Board, Query, Table, Variable, curves, figures
from support.dashboards.queries import COHORT, OURS, QUEUE, most, quantile, rate, total

_OF_QUOTA = "cluster_queue, cohort, flavor, resource"


def _a_minute(metric: str) -> str:
    return f"60 * {rate(metric, 'cluster_queue', selecting=QUEUE)}"


QUEUES = Board(
    uid="slicebus-queues",
    title="slicebus: queues",
    text="Who waits for quota, how long, and who uses it. Where a Kueue admits, its namespace is the one to select.",
    variables=(
        Variable("namespace", "Namespace of the manager", "label_values(kueue_admitted_active_workloads, namespace)"),
        Variable(
            "cluster_queue",
            "ClusterQueue",
            'label_values(kueue_admitted_active_workloads{namespace=~"$namespace"}, cluster_queue)',
        ),
        Variable("cohort", "Cohort", 'label_values(kueue_cohort_subtree_quota{namespace=~"$namespace"}, cohort)'),
    ),
    rows={
        "Now": (
            *figures(
                (
                    "Workloads that wait",
                    f"sum({most('kueue_pending_workloads', 'cluster_queue, status', selecting=QUEUE)})",
                    "For quota, in the selected queues.",
                    {"bounds": (1e9,), "width": 6},
                ),
                (
                    "Oldest of them",
                    most("slicebus_pending_oldest_seconds", selecting=QUEUE),
                    "Since it was made or requeued. slicebus explain says what would admit it.",
                    {"unit": SECONDS, "bounds": (3600, 86400), "width": 6, "empty": "a Kueue admits"},
                ),
                (
                    "Workloads that may run",
                    f"sum({most('kueue_admitted_active_workloads', 'cluster_queue', selecting=QUEUE)})",
                    "Admitted, in the selected queues.",
                    {"bounds": (1e9,), "width": 6},
                ),
                (
                    "Longest admission cycle",
                    quantile(0.99, "slicebus_admission_cycle_seconds"),
                    "With the writes of what it decided: one in a hundred takes longer.",
                    {"unit": SECONDS, "bounds": (1, 10), "width": 6, "empty": "a Kueue admits"},
                ),
            ),
        ),
        "Quota": (
            Table(
                title="Use of quota",
                queries=(
                    Query(
                        most(
                            "kueue_cluster_queue_resource_usage",
                            _OF_QUOTA,
                            selecting=QUEUE,
                        ),
                        "used",
                    ),
                    Query(
                        most(
                            "kueue_cluster_queue_nominal_quota",
                            _OF_QUOTA,
                            selecting=QUEUE,
                        ),
                        "nominal",
                    ),
                    Query(
                        most(
                            "kueue_cluster_queue_borrowing_limit",
                            _OF_QUOTA,
                            selecting=QUEUE,
                        ),
                        "may borrow",
                    ),
                    Query(
                        most(
                            "kueue_cluster_queue_lending_limit",
                            _OF_QUOTA,
                            selecting=QUEUE,
                        ),
                        "may lend",
                    ),
                ),
                text="In cores, bytes or pieces. Without a limit it is infinite.",
                width=24,
            ),
            curves(
                "Share of the nominal quota that is used",
                "Above one it is borrowed.",
                (
                    f"{most('kueue_cluster_queue_resource_usage', _OF_QUOTA, selecting=QUEUE)} / "
                    f"({most('kueue_cluster_queue_nominal_quota', _OF_QUOTA, selecting=QUEUE)} > 0)",
                    "{{cluster_queue}} {{flavor}} {{resource}}",
                ),
                unit=SHARE,
                width=12,
            ),
            curves(
                "Weighted shares",
                "The borrowed part of what could be, in thousandths, by the weight.",
                (most("kueue_cluster_queue_weighted_share", "cluster_queue", selecting=QUEUE), "{{cluster_queue}}"),
                (most("kueue_cohort_weighted_share", "cohort", selecting=COHORT), "cohort {{cohort}}"),
                width=12,
                empty="no fair sharing",
            ),
            Table(
                title="Cohorts",
                queries=(
                    Query(
                        most(
                            "kueue_cohort_subtree_resource_reservations", "cohort, flavor, resource", selecting=COHORT
                        ),
                        "used",
                    ),
                    Query(most("kueue_cohort_subtree_quota", "cohort, flavor, resource", selecting=COHORT), "quota"),
                ),
                text="Of the cohort and of what is below it.",
                width=24,
                empty="no queue is in a cohort",
            ),
        ),
        "Waits": (
            curves(
                "Workloads that wait",
                "Active ones are tried in each cycle; inadmissible ones wait until somebody changes something.",
                (
                    most("kueue_pending_workloads", "cluster_queue, status", selecting=QUEUE),
                    "{{cluster_queue}} {{status}}",
                ),
            ),
            curves(
                "Oldest that waits",
                "Since it was made or requeued.",
                (most("slicebus_pending_oldest_seconds", "cluster_queue", selecting=QUEUE), "{{cluster_queue}}"),
                unit=SECONDS,
                empty="a Kueue admits",
            ),
            curves(
                "Wait until admission",
                "Of those that were admitted: half, and nine in ten, waited less.",
                (
                    quantile(0.5, "kueue_admission_wait_time_seconds", "cluster_queue", selecting=QUEUE),
                    "{{cluster_queue}} half",
                ),
                (
                    quantile(0.9, "kueue_admission_wait_time_seconds", "cluster_queue", selecting=QUEUE),
                    "{{cluster_queue}} nine in ten",
                ),
                unit=SECONDS,
                empty="none yet",
            ),
            curves(
                "Wait until quota is reserved",
                "The part of it until there was quota: nine in ten waited less.",
                (
                    quantile(0.9, "kueue_quota_reserved_wait_time_seconds", "cluster_queue", selecting=QUEUE),
                    "{{cluster_queue}}",
                ),
                unit=SECONDS,
                empty="none yet",
            ),
            curves(
                "Admission cycles",
                "With the writes of what they decided.",
                (quantile(0.5, "slicebus_admission_cycle_seconds"), "half"),
                (quantile(0.99, "slicebus_admission_cycle_seconds"), "99 in a hundred"),
                unit=SECONDS,
                empty="a Kueue admits",
            ),
            Table(
                title="LocalQueues",
                queries=(
                    Query(
                        f"sum by (exported_namespace, name) (kueue_local_queue_pending_workloads{{{OURS}}})", "waiting"
                    ),
                ),
                text="Workloads that wait, by the namespace and the queue of their users.",
            ),
        ),
        "What happened": (
            curves(
                "Admitted, finished and grown",
                "Workloads a minute, and slices that a larger one has replaced.",
                (
                    _a_minute("kueue_quota_reserved_workloads_total"),
                    "{{cluster_queue}} got quota",
                ),
                (
                    _a_minute("kueue_admitted_workloads_total"),
                    "{{cluster_queue}} admitted",
                ),
                (
                    _a_minute("kueue_finished_workloads_total"),
                    "{{cluster_queue}} finished",
                ),
                (
                    _a_minute("kueue_replaced_workload_slices_total"),
                    "{{cluster_queue}} grown",
                ),
                unit=PER_MINUTE,
                empty="nothing",
            ),
            curves(
                "Evictions",
                "By reason, since the manager began.",
                (
                    total("kueue_evicted_workloads_total", "cluster_queue, reason", selecting=QUEUE),
                    "{{cluster_queue}} {{reason}}",
                ),
                empty="none",
            ),
            curves(
                "Preemptions",
                "By the queue that they were for, since it began. InCohortFairSharing for ever: they take turns.",
                (
                    total(
                        "kueue_preempted_workloads_total",
                        "preempting_cluster_queue, reason",
                        selecting=f'{OURS},preempting_cluster_queue=~"$cluster_queue"',
                    ),
                    "for {{preempting_cluster_queue}}: {{reason}}",
                ),
                empty="none",
            ),
            curves(
                "Time of an eviction",
                "Until its quota was given back: nine in ten take less.",
                (
                    quantile(0.9, "kueue_workload_eviction_latency_seconds", "cluster_queue", selecting=QUEUE),
                    "{{cluster_queue}}",
                ),
                unit=SECONDS,
                empty="none",
            ),
            curves(
                "Workloads with quota",
                "Those that may run, and those whose worker is waited for.",
                (
                    most("kueue_reserving_active_workloads", "cluster_queue", selecting=QUEUE),
                    "{{cluster_queue}} with quota",
                ),
                (
                    most("kueue_admitted_active_workloads", "cluster_queue", selecting=QUEUE),
                    "{{cluster_queue}} may run",
                ),
            ),
            curves(
                "Charged more",
                "Pods that requested more than was admitted, or ran without a grant, since the manager began.",
                (
                    total("slicebus_charged_more_total", "cluster_queue, reason", selecting=QUEUE),
                    "{{cluster_queue}} {{reason}}",
                ),
                empty="none",
            ),
        ),
    },
)
