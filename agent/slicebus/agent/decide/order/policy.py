"""Checks whether the policy of the agent's own cluster allows what an order would make.

It is checked when a job would be created, and when a RayService would take over what was edited at the manager.
Otherwise an existing job runs on when the policy becomes stricter: an order changes only its size and whether it is
suspended.
"""

from collections.abc import Iterator, Mapping

from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state.policy import Policy
from slicebus.kube.impersonation import Impersonation
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.selectors import selects
from slicebus.slices.jobs.cluster_policy import Objection, objections, objections_text

NAMESPACE = "NamespaceNotAllowed"
NOT_FOUND = "NotFound"
TERMINATING = "Terminating"
"""The phase of a namespace that is being deleted."""
_SYSTEM = "kube-"


def ensure_namespace(policy: Policy, namespace: str) -> None:
    """Raises RefusedOrder for a namespace that no policy allows."""
    if namespace.startswith(_SYSTEM) or namespace == policy.own_namespace:
        text = f"no job may be in the namespace {namespace}: it belongs to the cluster or to its agent"
        raise RefusedOrder(NAMESPACE, text)


def why_lacking(policy: Policy, namespace: str, manifest: Manifest | None) -> str | None:
    """Why no job may come from a namespace, in the words of a heartbeat; None where jobs may. `manifest` is the
    namespace on this cluster."""
    try:
        ensure_namespace(policy, namespace)
    except RefusedOrder:
        return NAMESPACE
    if manifest is None:
        return NOT_FOUND
    if manifest.get("status", {}).get("phase") == TERMINATING:
        return TERMINATING
    selector = policy.namespace_selector
    labels = manifest["metadata"].get("labels") or {}
    return None if selector is None or selects(selector.to_manifest(), labels) else NAMESPACE


def ensure_allowed(policy: Policy, copy: Manifest, *, namespace_labels: Mapping[str, str] | None) -> None:
    """Raises RefusedOrder, which names the rules, for a job that the policy does not allow to be created.

    `copy` is the job as it would be created. `namespace_labels` are those of its namespace; None where there is no such
    namespace, or nobody had to read them.
    """
    _ensure_none([*_namespace(policy, copy, namespace_labels), *objections(policy, copy)])


def ensure_edit_allowed(policy: Policy, copy: Manifest) -> None:
    """Raises RefusedOrder, which names the rules, for a job that the policy does not allow to become what `copy` is.
    Its namespace was checked when it was created."""
    _ensure_none([*objections(policy, copy)])


def _ensure_none(found: list[Objection]) -> None:
    if found:
        raise RefusedOrder(found[0].reason, objections_text(found))


def creator(policy: Policy, namespace: str) -> Impersonation | None:
    """The service account as which a job is created in a namespace, where the policy names one; None for the agent
    itself. The extra tells the cluster's admission which agent stands behind it."""
    if policy.create_as is None:
        return None
    extra = {api_names.AGENT_EXTRA: policy.own_namespace}
    return Impersonation.of_service_account(namespace, policy.create_as, extra=extra)


def _namespace(policy: Policy, copy: Manifest, labels: Mapping[str, str] | None) -> Iterator[Objection]:
    selector = policy.namespace_selector
    if selector is not None and (labels is None or not selects(selector.to_manifest(), labels)):
        name = copy["metadata"]["namespace"]
        yield Objection(NAMESPACE, "namespaceSelector", f"jobs in the namespace {name}")
