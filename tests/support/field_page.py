"""The page docs/fields.md: every field of the definitions, what becomes of it, and the test that holds it.

It is made of the definitions, of `slicebus.slices.api.fields`, and of `HELD_BY`. `make fields` writes it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slicebus.kube.crds import custom_resource_definitions
from slicebus.slices.api.fields import FIELDS, JOB_KEYS, Field, FieldUse

Manifest = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs" / "fields.md"
_CYCLE, _PREEMPTION = "slices/admission/test_cycle.py", "slices/admission/test_preemption.py"
_USAGE = "slices/admission/test_usage_order.py"
_ORDER, _SHARES = f"{_CYCLE}::TestOrder", "slices/admission/test_sharing.py"
_BORROWS, _IN_FLAVORS = f"{_PREEMPTION}::TestBorrowWithinTheCohort", f"{_PREEMPTION}::TestFlavors"
_COHORTS, _FLAVORS = "slices/quota/test_cohorts.py", "slices/placement/test_flavors.py"
_FLEET = "slices/placement/test_fleet.py"
_TOLD = "manager/test_honoring.py"
_WRITTEN = {
    "ClusterQueue": "manager/test_queue_status.py::test_a_chain_is_counted_once_and_its_workloads_each",
    "Cohort": "manager/test_queue_status.py::test_with_fair_sharing_queues_and_cohorts_show_their_share",
    "LocalQueue": "manager/test_queue_status.py::test_a_local_queue_shows_what_its_own_workloads_use",
    "ResourceFlavor": f"{_TOLD}::test_an_object_says_what_is_not_honored_of_it",
    "WorkerCluster": "manager/test_worker_cluster_status.py::test_what_the_agent_reports_is_written",
    "Workload": "manager/test_admission_writes.py::test_quota_and_admission_come_in_one_write",
}
"""The tests of what slicebus writes."""
_OF_QUOTA = {
    "coveredResources[]": f"{_FLAVORS}::TestOrder::test_each_group_chooses_for_itself",
    "flavors[].name": f"{_FLAVORS}::TestOrder::test_the_first_flavor_with_room_is_taken",
    "flavors[].resources[].name": f"{_FLAVORS}::TestOrder::test_all_resources_of_a_group_come_from_one_flavor",
}
_LIMITS_OF_QUEUES = {
    "nominalQuota": f"{_COHORTS}::TestFlat::test_a_queue_without_a_cohort_has_its_own",
    "borrowingLimit": f"{_COHORTS}::TestFlat::test_no_more_than_the_borrowing_limit",
    "lendingLimit": f"{_COHORTS}::TestFlat::test_no_more_than_the_lending_limit",
}
_LIMITS_OF_COHORTS = {
    "nominalQuota": f"{_COHORTS}::TestFlat::test_a_cohort_may_have_quota_of_its_own",
    "borrowingLimit": f"{_COHORTS}::TestNested::test_a_cohort_borrows_up_to_its_limit",
    "lendingLimit": f"{_COHORTS}::TestNested::test_a_cohort_lends_up_to_its_limit",
}


def _quota(limits: dict[str, str]) -> dict[str, str]:
    of_flavors = {f"flavors[].resources[].{name}": test for name, test in limits.items()}
    return {f"spec.resourceGroups[].{name}": test for name, test in (_OF_QUOTA | of_flavors).items()}


_TAINTS = f"{_FLAVORS}::test_a_taint_needs_a_toleration_of_the_pod_or_of_the_flavor"
_TOLERATIONS = "agent/test_pod_placement.py::test_nodes_and_tolerations_are_added_to_those_that_a_pod_has"
_TENANTS = f"{_FLEET}::test_a_cluster_takes_the_jobs_of_its_tenants_whatever_they_select"
_PRIORITY = "manager/test_builtin.py::test_a_slice_has_the_priority_of_its_jobs_class"
HELD_BY: dict[str, dict[str, str]] = {
    "ClusterQueue": {
        **_quota(_LIMITS_OF_QUEUES),
        "spec.cohortName": f"{_CYCLE}::TestCohort::test_a_queue_borrows_what_another_lends",
        "spec.queueingStrategy": f"{_ORDER}::test_a_later_slice_passes_one_that_waits_unless_the_queue_is_strict",
        "spec.namespaceSelector": f"{_CYCLE}::test_a_queue_takes_workloads_of_the_namespaces_that_it_selects",
        "spec.stopPolicy": "slices/quota/test_quota.py::test_a_stopped_queue_is_held",
        "spec.fairSharing.weight": f"{_SHARES}::TestShare::test_divided_by_the_weight",
        "spec.admissionScope.admissionMode": f"{_USAGE}::test_who_used_less_comes_first_where_the_queue_goes_by_that",
        "spec.preemption.withinClusterQueue": f"{_PREEMPTION}::TestWithinTheQueue::test_the_policy_selects_candidates",
        "spec.preemption.reclaimWithinCohort": f"{_PREEMPTION}::TestReclaim::test_only_from_lower_priority",
        "spec.preemption.borrowWithinCohort.policy": f"{_BORROWS}::test_not_without_the_policy",
        "spec.preemption.borrowWithinCohort.maxPriorityThreshold": (f"{_BORROWS}::test_up_to_the_threshold_only"),
        "spec.flavorFungibility.whenCanBorrow": (
            f"{_IN_FLAVORS}::test_the_next_flavor_rather_than_borrowing_where_the_queue_says_so"
        ),
        "spec.flavorFungibility.whenCanPreempt": (f"{_IN_FLAVORS}::test_a_victim_in_the_first_where_the_queue_says_so"),
        "spec.flavorFungibility.preference": f"{_IN_FLAVORS}::test_borrowing_or_preempting",
    },
    "Cohort": {
        **_quota(_LIMITS_OF_COHORTS),
        "spec.parentName": f"{_COHORTS}::TestNested::test_quota_is_lent_through_all_levels",
        "spec.fairSharing.weight": f"{_SHARES}::TestTurns::test_a_cohort_by_the_share_of_all_its_queues",
    },
    "LocalQueue": {
        "spec.clusterQueue": "slices/quota/test_quota.py::test_a_local_queue_names_its_cluster_queue",
        "spec.stopPolicy": "slices/admission/test_eviction.py::test_the_holder_of_the_chain_is_evicted",
        "spec.fairSharing.weight": f"{_USAGE}::test_use_counts_by_the_weight",
    },
    "ResourceFlavor": {
        "spec.nodeLabels": f"{_FLAVORS}::test_selector_and_required_affinity_choose_among_flavors",
        **{f"spec.nodeTaints[].{name}": _TAINTS for name in ("key", "value", "effect")},
        **{f"spec.tolerations[].{name}": _TAINTS for name in ("key", "operator", "value", "effect")},
        "spec.tolerations[].tolerationSeconds": _TOLERATIONS,
    },
    "WorkloadPriorityClass": {"value": _PRIORITY},
    "Workload": {
        "spec.active": f"{_CYCLE}::test_a_deactivated_slice_waits_with_that_reason",
        "spec.queueName": f"{_CYCLE}::test_a_waiting_slice_names_the_reason_and_what_would_admit_it",
        "spec.priority": f"{_CYCLE}::TestOrder::test_by_priority_then_age_then_uid",
        "spec.maximumExecutionTimeSeconds": (
            "manager/test_execution_time.py::test_a_job_whose_time_is_over_is_evicted_and_deactivated"
        ),
        "spec.podSets[].name": "slices/workload/test_workload.py::test_a_pod_set_has_the_defaults_of_the_api",
        "spec.podSets[].count": f"{_CYCLE}::TestDelta::test_from_3_to_10_of_10_needs_quota_for_7",
        "spec.podSets[].template": f"{_FLAVORS}::test_selector_and_required_affinity_choose_among_flavors",
    },
    "WorkerCluster": {
        "spec.accepted": f"{_FLEET}::test_why_not_names_every_obstacle",
        "spec.cordoned": f"{_FLEET}::test_why_not_names_every_obstacle",
        "spec.drain": "manager/test_relocation.py::test_which_chains_leave",
        "spec.brokerUser": "manager/test_worker_cluster_status.py::test_who_may_speak_for_which_cluster",
        "spec.labels": f"{_CYCLE}::TestRoom::test_a_job_selects_its_clusters",
        "spec.weight": f"{_FLEET}::test_jobs_spread_by_weight",
        "spec.priority": f"{_FLEET}::test_ordered_goes_by_priority_and_then_by_name",
        "spec.capacity": "manager/test_worker_cluster_status.py::test_what_our_jobs_may_use_of_a_cluster",
        "spec.flavorCapacity": "manager/test_worker_cluster_status.py::test_what_our_jobs_may_use_of_a_cluster",
        "spec.namespaceSelector": _TENANTS,
        "spec.clusterQueues[]": _TENANTS,
        "spec.maxRoom": f"{_FLEET}::test_a_cluster_gets_no_more_than_its_cap_whatever_it_reports",
    },
}
"""The test, below tests/unit, that fails where an honored field is not; by kind and path."""
_TOLD_BY = f"{_TOLD}::test_an_object_says_what_is_not_honored_of_it"
_TOLD_OF_JOBS = f"{_TOLD}::test_a_job_says_on_its_workloads_what_is_not_honored"
_HEAD = """# Which fields are honored

No field is ignored without a word. This page has every field of the definitions that slicebus brings, and what becomes
of it where the manager admits (`admission.mode: builtin`); beside a Kueue, Kueue honors its own. It is made of the
definitions and of `core/slicebus/slices/api/fields.py` by `make fields`, and tests keep the three together.

- **honored**: decisions depend on it. The test, below `tests/unit`, fails where they do not.
- **told**: set, it changes nothing. The object says so by the condition `slicebus.dev/Honored=False`: its message
  names the field and what happens instead; so do `slicebus doctor`, and `slicebus explain` of each job that has it.
  What a job asks for, its Workloads say, and the job gets an Event `NotHonored`.
- *describes*: nothing depends on it, in Kueue neither. *written*: slicebus writes it. *unused*: a part of a status that
  nobody here writes.

A value that makes no sense is told too, such as a quota or a weight below 0, or a toleration with which API servers
refuse pods. So is a field that slicebus' definitions have not, where Kueue's, which have it, are installed.
These have no status of a ResourceFlavor: there `doctor` and `explain` say it alone.
"""
_KEYS = """
## Labels and annotations of Kueue on jobs and their pods

The Workloads of a job say what of these is not honored. Any other key of Kueue is told too.
"""


def fields_of(definition: Manifest) -> Iterator[str]:
    """The path of every field of a definition that has no fields below it."""
    [version] = definition["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    for name, schema in properties.items():
        if name not in ("apiVersion", "kind", "metadata"):
            yield from _below(schema, name)


def _below(schema: Manifest, path: str) -> Iterator[str]:
    if schema.get("type") == "array":
        yield from _below(schema["items"], f"{path}[]")
    elif properties := schema.get("properties"):
        for name, inner in properties.items():
            yield from _below(inner, f"{path}.{name}")
    else:
        yield path


def definitions() -> dict[str, list[str]]:
    """The fields of each kind, in the order of its definition."""
    kinds = {definition["spec"]["names"]["kind"]: definition for definition in custom_resource_definitions()}
    return {kind: list(fields_of(kinds[kind])) for kind in sorted(kinds)}


def test_for(kind: str, path: str, field: Field) -> str:
    """The test that holds what is said of a field, below tests/unit; empty where nothing depends on it."""
    match field.use:
        case FieldUse.HONORED:
            return HELD_BY[kind][path]
        case FieldUse.TOLD:
            return _TOLD_BY if kind != "Workload" else _TOLD_OF_JOBS
        case FieldUse.WRITTEN:
            return _WRITTEN[kind]
        case _:
            return ""


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for kind, paths in definitions().items():
        rows = "".join(_row(path, FIELDS[kind][path], test_for(kind, path, FIELDS[kind][path])) for path in paths)
        parts.append(f"\n## {kind}\n\n| field | | test |\n|---|---|---|\n{rows}")
    tests = {FieldUse.TOLD: _TOLD_OF_JOBS}
    keys = "".join(_row(key, field, tests.get(field.use, "")) for key, field in JOB_KEYS.items())
    parts.append(f"{_KEYS}\n| key | | test |\n|---|---|---|\n{keys}")
    return "".join(parts)


def _row(name: str, field: Field, test: str) -> str:
    what = f"**{field.use}**" if field.use in (FieldUse.HONORED, FieldUse.TOLD) else f"*{field.use}*"
    said = f"{what}: {field.instead}" if field.instead else what
    return f"| `{name}` | {said} | {f'`{test}`' if test else ''} |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
