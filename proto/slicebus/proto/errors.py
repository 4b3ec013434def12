"""The errors of slicebus, one tree.

    SlicebusError
    ├── TransientError            the same call may succeed later; retried where the call is made
    │   ├── UnavailableError      a server cannot be reached, or answered 5xx, or did not answer in time
    │   │   └── WebhookError      a webhook that has to agree does not answer the API server
    │   ├── ThrottledError        a server asked to come back later (429, a blocked connection)
    │   └── UnauthorizedError     the API server does not take the caller's credentials now (401)
    ├── PermanentError            the same call fails until somebody changes something; retried slowly, and said
    │   ├── NotFoundError         the object, queue or stream does not exist
    │   │   └── NotServedError    the API server does not serve the path now: that says nothing about an object
    │   ├── ForbiddenError        the caller may not do this (403, ACCESS_REFUSED)
    │   ├── InvalidError          the server refused the content (400, 422)
    │   └── ConfigurationError    the process was started with settings that cannot work
    ├── ConflictError             the object changed since it was read; read it again and decide again
    │   ├── AlreadyExistsError    a create found the name taken
    │   └── ExpiredError          a watch or a list continuation is older than the server's history (410)
    ├── DecisionError             a decision raised what it must not: its object or message is set aside, and no other
    └── ProtocolError             a message that this version cannot or must not act on; it carries a `DeadReason`

Adapters translate foreign errors into these through one table each, with `raise … from`.
"""

import hashlib
import traceback
from enum import StrEnum
from typing import Self

MALFORMED = (LookupError, TypeError, ValueError, AttributeError)
"""What reading an object raises whose shape nobody has checked: a recording or a file may have any."""


class SlicebusError(Exception):
    """Any error that slicebus raises on purpose."""


class TransientError(SlicebusError):
    """The same call may succeed later."""

    retry_after_s: float = 0.0
    """The least pause before it is made again, in seconds, as the server has asked for."""


class UnavailableError(TransientError):
    """A server cannot be reached, failed, or did not answer in time. The call may or may not have taken effect."""

    is_answer: bool = False
    """Whether the server has answered that it fails at this call, by 500 or as it serves no such path of an object: it
    may do so for ever, and at no other."""


class WebhookError(UnavailableError):
    """A webhook that has to agree does not answer the API server. The call has not taken effect."""

    is_answer = True


class ThrottledError(TransientError):
    """A server asked to come back later."""


class UnauthorizedError(TransientError):
    """The API server does not take the caller's credentials now: a token rotates, or the server has just begun."""


class PermanentError(SlicebusError):
    """The same call fails until somebody changes something: a right, a policy, a definition, or the content."""


class NotFoundError(PermanentError):
    """The object, queue or stream does not exist."""


class NotServedError(NotFoundError):
    """The API server does not serve the path now. An object that the path names may exist all the same."""


class ForbiddenError(PermanentError):
    """The caller may not do this."""


class InvalidError(PermanentError):
    """The server refused the content; the message is the server's."""


class ConfigurationError(PermanentError):
    """The process has settings that cannot work."""


class ConflictError(SlicebusError):
    """The object changed since it was read."""


class AlreadyExistsError(ConflictError):
    """A create found the name taken."""


class ExpiredError(ConflictError):
    """A watch or a list continuation is older than the server's history."""


class DecisionError(SlicebusError):
    """A decision raised what no decision may raise: something from outside has a shape that its code does not expect.

    The text has a digest of the traceback, by which people find it in the log, and no word of the input.
    """

    def __init__(self, decision: str, digest: str, cause: str) -> None:
        super().__init__(f"the decision {decision} raised {cause}, traceback {digest}")
        self.decision = decision
        self.digest = digest

    @classmethod
    def of(cls, decision: str, error: Exception) -> Self:
        """The error for what a decision has raised. Equal causes have equal digests, also in other processes."""
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.name}:{frame.lineno}" for frame in frames]
        digest = hashlib.sha256("\n".join([type(error).__name__, *where]).encode()).hexdigest()
        return cls(decision, digest[:12], type(error).__name__)


class DeadReason(StrEnum):
    """Why a message lies in the dead-letter queue."""

    MALFORMED = "malformed"
    """Not JSON, not the type's shape, or an attribute is missing."""
    TOO_LARGE = "too-large"
    """Larger than the limit. Its body was cut off before anybody read it."""
    UNKNOWN_VERSION = "unknown-version"
    """A schema major version that this side does not know."""
    UNKNOWN_TYPE = "unknown-type"
    """A message type that this side does not know."""
    UNKNOWN_CLUSTER = "unknown-cluster"
    """No WorkerCluster of that name, or it is not accepted."""
    WRONG_CLUSTER = "wrong-cluster"
    """Another cluster uses the name, or the cluster has another name: by the UID of its namespace kube-system."""
    WRONG_USER = "wrong-user"
    """The broker-verified user may not speak for that cluster, or there is no such user."""
    FENCED_EPOCH = "fenced-epoch"
    """The agent has lost its lease since."""
    FUTURE_EPOCH = "future-epoch"
    """Its epoch lies further ahead than clocks may differ: no Lease that was acquired by now has it."""
    REFUSED = "refused"
    """Well-formed, but acting on it failed for good; the detail says how."""
    FAILED = "failed"
    """A decision about it raised; the detail has the digest of the traceback, which is in the log."""
    UNDELIVERABLE = "undeliverable"
    """The broker gave up: the delivery limit was reached, or the queue overflowed."""


class ProtocolError(SlicebusError):
    """A message that must not be acted on. `reason` is its class, the text has the detail."""

    def __init__(self, reason: DeadReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
