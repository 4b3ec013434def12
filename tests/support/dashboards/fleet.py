"""The fleet: who works, which clusters are there, and whether the roles keep up."""

from support.dashboards.grafana import BYTES, PER_SECOND, SECONDS, SHARE, Board, Query, Table, Variable, curves, figures
from support.dashboards.queries import CLUSTER, OURS, RATE, most, quantile, rate, total

_A_POD_OF_OURS = f"and on (pod) slicebus_build_info{{{OURS}}}"

FLEET = Board(
    uid="slicebus-fleet",
    title="slicebus: fleet",
    text="Who works, which clusters are there, and whether the roles keep up. docs/operations.md says what to do.",
    variables=(
        Variable("namespace", "Namespace of slicebus", "label_values(slicebus_build_info, namespace)"),
        Variable("cluster", "Cluster", 'label_values(slicebus_cluster_connected{namespace=~"$namespace"}, cluster)'),
    ),
    rows={
        "Now": (
            *figures(
                (
                    "Managers that lead",
                    f'count(slicebus_leader{{{OURS},lease=~"slicebus-manager.*"}} == 1) or vector(0)',
                    "Without one nothing is admitted, resized or ended, and nobody knows what is missing below. "
                    "With shards each has one.",
                    {"good_above": True},
                ),
                (
                    "Silent clusters",
                    f"sum(1 - {most('slicebus_cluster_connected', 'cluster')})",
                    "Accepted clusters whose agents are not heard.",
                    {"empty": "nobody knows"},
                ),
                (
                    "Oldest change",
                    most("slicebus_oldest_unreconciled_seconds"),
                    "The age of the oldest change that a role has not dealt with.",
                    {"unit": SECONDS, "bounds": (30, 300)},
                ),
                (
                    "Pods without a broker",
                    f"sum(1 - slicebus_broker_connected{{{OURS}}})",
                    "They try again for ever, and lose nothing.",
                    {},
                ),
                (
                    "The broker takes nothing",
                    most("slicebus_broker_blocked"),
                    "1 while memory or disk is short there.",
                    {},
                ),
                (
                    "First certificate ends in",
                    f"min(slicebus_certificate_expiry_timestamp_seconds{{{OURS}}}) - time()",
                    "Of the files of the broker's login.",
                    {"unit": SECONDS, "bounds": (14 * 86400,), "good_above": True, "empty": "no certificate files"},
                ),
                (
                    "Dead letters",
                    most("slicebus_dead_letters"),
                    "Messages that could not be used: slicebus dead list.",
                    {"empty": "nobody knows"},
                ),
                (
                    "Held deletes",
                    f"sum({most('slicebus_deletes_held', 'cluster')})",
                    "Jobs that wait for somebody who says that their deletes are meant.",
                    {"empty": "none"},
                ),
                (
                    "Set aside",
                    f"sum(slicebus_set_aside{{{OURS}}})",
                    "Jobs and quota trees whose decision raises.",
                    {},
                ),
            ),
            Table(
                title="Alerts",
                queries=(Query('ALERTS{alertname=~"Slicebus.*",alertstate="firing"}', ""),),
                text="What fires, of the charts' alerts.",
                width=12,
                empty="none fires",
            ),
        ),
        "Clusters": (
            Table(
                title="Clusters",
                queries=(
                    Query(most("slicebus_cluster_connected", "cluster", selecting=CLUSTER), "connected"),
                    Query(
                        "time() - "
                        + most("slicebus_cluster_last_heartbeat_timestamp_seconds", "cluster", selecting=CLUSTER),
                        "last heartbeat",
                        SECONDS,
                    ),
                    Query(most("slicebus_cluster_lag_seconds", "cluster", selecting=CLUSTER), "lag", SECONDS),
                    Query(most("slicebus_cluster_out_of_sync", "cluster", selecting=CLUSTER), "out of sync"),
                    Query(most("slicebus_cluster_jobs", "cluster", selecting=CLUSTER), "jobs"),
                ),
                text="By each agent's last report. A heartbeat shows once in half a minute.",
                width=24,
            ),
            curves(
                "Lag",
                "The age of the oldest work that the agent has not done.",
                (most("slicebus_cluster_lag_seconds", "cluster", selecting=CLUSTER), "{{cluster}}"),
                unit=SECONDS,
            ),
            curves(
                "Out of sync",
                "Jobs that are not at the newest order that the agent has.",
                (most("slicebus_cluster_out_of_sync", "cluster", selecting=CLUSTER), "{{cluster}}"),
            ),
            curves(
                "Jobs",
                "Jobs on each cluster.",
                (most("slicebus_cluster_jobs", "cluster", selecting=CLUSTER), "{{cluster}}"),
            ),
            curves(
                "Resizes",
                "From a worker's request until it has applied the answer, with the wait for quota.",
                (quantile(0.5, "slicebus_resize_seconds", "cluster", selecting=CLUSTER), "{{cluster}} half"),
                (quantile(0.9, "slicebus_resize_seconds", "cluster", selecting=CLUSTER), "{{cluster}} nine in ten"),
                unit=SECONDS,
                empty="none yet",
            ),
            curves(
                "Orders on their way",
                "From an admission until the worker has applied its order: nine in ten take less.",
                (quantile(0.9, "slicebus_spec_propagation_seconds", "cluster", selecting=CLUSTER), "{{cluster}}"),
                unit=SECONDS,
                empty="none yet",
            ),
            curves(
                "Messages that are refused",
                "What the manager could not use of an agent's messages: tried again, or a dead letter. Since it began.",
                (
                    total("slicebus_dead_lettered_total", "cluster, reason", selecting=CLUSTER),
                    "{{cluster}} dead: {{reason}}",
                ),
                (
                    total("slicebus_dead_letters_dropped_total", "cluster", selecting=CLUSTER),
                    "{{cluster}} not kept",
                ),
                (
                    total("slicebus_manager_refused_messages_total", "cluster", selecting=CLUSTER),
                    "{{cluster}} API server",
                ),
                (total("slicebus_manager_fenced_total", "cluster", selecting=CLUSTER), "{{cluster}} old epoch"),
                (total("slicebus_manager_ahead_total", "cluster", selecting=CLUSTER), "{{cluster}} clock"),
                (
                    total("slicebus_manager_of_other_clusters_total", "cluster", selecting=CLUSTER),
                    "{{cluster}} another's name",
                ),
                empty="none",
            ),
        ),
        "Roles": (
            curves(
                "Oldest change",
                "The age of the oldest change, of an object or by a message, that each pod has not dealt with.",
                (most("slicebus_oldest_unreconciled_seconds", "pod"), "{{pod}}"),
                unit=SECONDS,
            ),
            curves(
                "Work queue",
                "Jobs that wait for a worker of the role.",
                (most("slicebus_work_queue_depth", "pod"), "{{pod}}"),
            ),
            curves(
                "Oldest in the work queue",
                "Too few workers, or each is slow.",
                (most("slicebus_work_queue_oldest_seconds", "pod"), "{{pod}}"),
                unit=SECONDS,
            ),
            curves(
                "Retries",
                "Jobs queued again after a failure: transient, refused by the API server, or set aside.",
                (rate("slicebus_work_queue_retries_total", "pod, reason"), "{{pod}} {{reason}}"),
                unit=PER_SECOND,
                empty="none",
            ),
            curves(
                "Messages",
                "Handled, by type and result.",
                (rate("slicebus_message_handling_seconds_count", "type, result"), "{{type}} {{result}}"),
                unit=PER_SECOND,
            ),
            curves(
                "Time of a message",
                "From its receipt until it was settled, with waits and retries: nine in ten take less.",
                (quantile(0.9, "slicebus_message_handling_seconds", "type"), "{{type}}"),
                unit=SECONDS,
            ),
            curves(
                "Requests to the API servers",
                "By answer. None is a request without one.",
                (rate("slicebus_api_requests_total", "code"), "{{code}}"),
                unit=PER_SECOND,
            ),
            curves(
                "Scale requests, and pods let go",
                "What agents ask for, and pods whose gate they removed.",
                (rate("slicebus_agent_scale_requests_total", "pod"), "{{pod}} requests"),
                (rate("slicebus_agent_ungated_pods_total", "pod"), "{{pod}} pods"),
                unit=PER_SECOND,
                empty="no agent is scraped here",
            ),
            curves(
                "Gated pods",
                "Pods that wait behind the gate for their grant.",
                (most("slicebus_gated_pods", "pod"), "{{pod}}"),
                empty="no agent is scraped here",
            ),
        ),
        "The broker": (
            curves(
                "Confirms",
                "From a publish until the broker has confirmed it: nine in ten take less.",
                (quantile(0.9, "slicebus_broker_confirm_seconds", "exchange"), "{{exchange}}"),
                unit=SECONDS,
            ),
            curves(
                "Publishes that failed",
                "What is lost by that is published again. Since each pod began.",
                (total("slicebus_broker_publish_failures_total", "pod, reason"), "{{pod}} {{reason}}"),
                empty="none",
            ),
            curves(
                "Recorded decisions",
                "What the broker has confirmed, and records that could not be kept.",
                (rate("slicebus_recording_bytes_total", "pod"), "{{pod}}"),
                (total("slicebus_recording_dropped_total", "pod"), "{{pod}} dropped"),
                unit="Bps",
            ),
        ),
        "Processes": (
            curves(
                "Processor",
                "Cores that each pod uses.",
                (
                    f"rate(process_cpu_seconds_total{{{OURS}}}{RATE}) {_A_POD_OF_OURS}",
                    "{{pod}}",
                ),
            ),
            curves(
                "Memory",
                "Resident memory of each pod.",
                (f"process_resident_memory_bytes{{{OURS}}} {_A_POD_OF_OURS}", "{{pod}}"),
                unit=BYTES,
            ),
            curves(
                "Open files",
                "Of those that a process may have.",
                (
                    f"process_open_fds{{{OURS}}} / process_max_fds{{{OURS}}} {_A_POD_OF_OURS}",
                    "{{pod}}",
                ),
                unit=SHARE,
            ),
            Table(
                title="Versions",
                queries=(Query(f"sum by (role, version, python_version) (slicebus_build_info{{{OURS}}})", "pods"),),
                text="What runs.",
                width=24,
            ),
        ),
    },
)
