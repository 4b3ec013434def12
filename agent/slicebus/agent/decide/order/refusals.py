"""The refusals of well-formed orders that this cluster does not carry out."""

from slicebus.decisions.commands import Command, Publish
from slicebus.proto.errors import ConflictError, ForbiddenError, PermanentError, TransientError, WebhookError
from slicebus.proto.messages import ClusterName, Delete, Refused, Relabel, Suspend, WorkloadSpec

_REFUSAL_LENGTH = 4000
"""The most characters of a refusal. It may quote the order, and becomes a condition's message, which has at most
32768."""
_NO_IMPERSONATION = "cannot impersonate resource "
"""The API server's words where a user lacks the right to act as another: on the account, or on an extra."""


class RefusedOrder(PermanentError):
    """An order that this cluster cannot carry out unless it changes. The agent answers with `Refused`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class KindNotServed(RefusedOrder):
    """An order for a job kind that this cluster or its agent lacks."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__("KindNotServed", f"it does not serve {kind}: {why}")


def reason_of(error: PermanentError | ConflictError | TransientError) -> str:
    """Why an order is refused, as one CamelCase word; `Conflict` where it waits for an object before it."""
    if isinstance(error, RefusedOrder):
        return error.reason
    if isinstance(error, WebhookError):
        return "WebhookUnavailable"
    if isinstance(error, ForbiddenError) and _NO_IMPERSONATION in str(error):
        return "ImpersonationForbidden"
    return type(error).__name__.removesuffix("Error")


def refusal(
    order: WorkloadSpec | Relabel | Suspend | Delete,
    error: PermanentError | ConflictError | TransientError,
    cluster: ClusterName,
) -> list[Command]:
    """Reports to the manager that an order cannot be carried out now, and why."""
    refused = Refused(
        job=order.job,
        workload=_slice_of(order),
        spec_version=order.spec_version,
        reason=reason_of(error),
        message=str(error)[:_REFUSAL_LENGTH],
    )
    return [Publish(cluster=cluster, message=refused)]


def _slice_of(order: WorkloadSpec | Relabel | Suspend | Delete) -> str:
    """The slice that an order is about; empty for a delete."""
    match order:
        case WorkloadSpec(workload=workload):
            name: str = workload["metadata"]["name"]
            return name
        case Relabel(to_workload=name) | Suspend(workload=name):
            return name
        case Delete():
            return ""
