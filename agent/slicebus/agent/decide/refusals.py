"""The refusals of well-formed orders that this cluster does not carry out."""

from slicebus.proto.errors import ForbiddenError, PermanentError

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


def reason_of(error: PermanentError) -> str:
    """Why an order is refused, as one CamelCase word."""
    if isinstance(error, RefusedOrder):
        return error.reason
    if isinstance(error, ForbiddenError) and _NO_IMPERSONATION in str(error):
        return "ImpersonationForbidden"
    return type(error).__name__.removesuffix("Error")
