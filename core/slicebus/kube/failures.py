"""Translates Kubernetes' answers and aiohttp's exceptions to slicebus errors, by one table each."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
import orjson

from slicebus.ambient.cancellation import Cancellation
from slicebus.ambient.connection_failures import reason_of
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotServedError,
    SlicebusError,
    ThrottledError,
    TransientError,
    UnauthorizedError,
    UnavailableError,
    WebhookError,
)

_BY_STATUS: dict[int, type[SlicebusError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    405: InvalidError,
    409: ConflictError,
    410: ExpiredError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
    429: ThrottledError,
}
_BY_REASON: dict[str, type[SlicebusError]] = {"AlreadyExists": AlreadyExistsError, "Expired": ExpiredError}
"""The reason of a Status distinguishes two kinds of 409; a watch reports 410 as a Status too."""
_WEBHOOK = "failed calling webhook"
"""The API server's words, since Kubernetes 1.9: k8s.io/apiserver, `webhook.ErrCallingWebhook`."""
_DENIALS = (("admission webhook", "denied the request"), ("AdmissionPolicy", "denied request"))
"""The API server's words where a webhook or a policy denies a request, since 1.9: `webhook/errors.ToStatusErr` and
`policy/validating` of k8s.io/apiserver. The code and the reason are those of whoever denies: any, also 401, 409 and
500."""
_UNSERVED = ("the server could not find the requested resource", "404 page not found")
"""The API server's words for a path, where other 404s are about an object: apimachinery, `NewGenericServerResponse`,
and Go's `http.NotFound`."""
_INTERNAL = 500
_ASK_TO_WAIT = (429, 503)
"""The statuses whose Retry-After counts (RFC 9110, 10.2.3; RFC 6585)."""
_MOST_WAIT_S = 30.0
"""A server, or a proxy before it, must not put the work off for long."""
_EXCERPT = 300


def error_of(status: int, body: bytes, *, retry_after: str = "") -> SlicebusError:
    """The error for an answer that is not 2xx; UnavailableError for a status that the table lacks. `retry_after` is the
    header Retry-After, empty without one."""
    message, reason = _message(body)
    error = _BY_REASON.get(reason) or _BY_STATUS.get(status, UnavailableError)
    if any(all(part in message for part in words) for words in _DENIALS):
        # Somebody has to change something, whatever the code says: neither a moment nor a newer version helps.
        error = InvalidError if error is InvalidError else ForbiddenError
    elif reason == "InternalError" and tells_of_webhook(message):
        error = WebhookError
    if status == 404 and message.strip() in _UNSERVED:
        error = NotServedError
    if error is UnauthorizedError:
        message = f"{message}: the API server does not take these credentials"
    made = error(f"{status}: {message}")
    if isinstance(made, UnavailableError) and status == _INTERNAL:
        made.is_answer = True
    if isinstance(made, TransientError) and status in _ASK_TO_WAIT:
        made.retry_after_s = _seconds(retry_after)
    return made


def tells_of_webhook(message: str) -> bool:
    """Whether the API server says that a webhook does not answer it, and not that anybody has denied a request."""
    return _WEBHOOK in message


def _seconds(retry_after: str) -> float:
    """The seconds of a Retry-After, at most `_MOST_WAIT_S`; 0 for a date, which no API server sends, and for anything
    else."""
    text = retry_after.strip()
    if not (text.isascii() and text.isdigit()):
        return 0.0
    return min(float(text), _MOST_WAIT_S)


def _message(body: bytes) -> tuple[str, str]:
    """The text and the reason of a Status; an excerpt where a proxy sent something else."""
    try:
        status = orjson.loads(body)
        return str(status["message"]), str(status.get("reason", ""))
    except (orjson.JSONDecodeError, TypeError, KeyError, AttributeError):
        return body[:_EXCERPT].decode(errors="replace"), ""


@contextmanager
def translated(action: str) -> Iterator[None]:
    """Raise UnavailableError where a server cannot be reached or stops in the middle of an answer, and where aiohttp
    cancels a request that nobody has cancelled.

    `action` begins the text of an error on the way; a server that was not reached did nothing of it.
    """
    cancellation = Cancellation()
    try:
        yield
    except asyncio.CancelledError as error:
        if cancellation.is_asked:
            raise
        raise UnavailableError(f"{action}: the request was cancelled by a library") from error
    except TimeoutError as error:
        raise UnavailableError(f"{action}: no answer in time") from error
    except aiohttp.ClientConnectorError as error:
        server, cause = f"the API server {error.host}:{error.port}", error.os_error
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            cause = error.certificate_error  # type: ignore[assignment]
        raise UnavailableError(f"{server} cannot be reached: {reason_of(cause)}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise UnavailableError(f"{action}: {error or type(error).__name__}") from error
