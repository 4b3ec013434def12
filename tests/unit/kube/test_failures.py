"""Every answer of an API server, and every way in which a connection fails, as one of our errors."""

import asyncio
import ssl

import aiohttp
import orjson
import pytest

from slicebus.kube.failures import error_of, translated
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


def status(reason: str = "", message: str = "no") -> bytes:
    return orjson.dumps({"kind": "Status", "status": "Failure", "message": message, "reason": reason})


ANSWERS: dict[str, tuple[int, bytes, type[SlicebusError]]] = {
    "bad request": (400, status("BadRequest"), InvalidError),
    "unauthorized": (401, status("Unauthorized"), UnauthorizedError),
    "forbidden": (403, status("Forbidden"), ForbiddenError),
    "not found": (404, status("NotFound", 'jobs.batch "a" not found'), NotFoundError),
    "not served": (404, status("NotFound", "the server could not find the requested resource"), NotServedError),
    "not served, in plain text": (404, b"404 page not found\n", NotServedError),
    "method not allowed": (405, status("MethodNotAllowed"), InvalidError),
    "conflict": (409, status("Conflict"), ConflictError),
    "the name is taken": (409, status("AlreadyExists"), AlreadyExistsError),
    "gone": (410, status("Gone"), ExpiredError),
    "expired": (410, status("Expired"), ExpiredError),
    "too large": (413, status("RequestEntityTooLarge"), InvalidError),
    "media type": (415, status("UnsupportedMediaType"), InvalidError),
    "invalid": (422, status("Invalid"), InvalidError),
    "too many requests": (429, status("TooManyRequests"), ThrottledError),
    "internal": (500, status("InternalError"), UnavailableError),
    "a webhook is down": (
        500,
        status("InternalError", 'Internal error occurred: failed calling webhook "a.example.dev": connection refused'),
        WebhookError,
    ),
    "a proxy's page": (502, b"<html>Bad Gateway</html>", UnavailableError),
    "unavailable": (503, status("ServiceUnavailable"), UnavailableError),
    "timeout": (504, status("Timeout"), UnavailableError),
    "a code that no table knows": (418, b"", UnavailableError),
}


@pytest.mark.parametrize(("code", "body", "expected"), ANSWERS.values(), ids=ANSWERS.keys())
def test_an_answer(code: int, body: bytes, expected: type[SlicebusError]) -> None:
    error = error_of(code, body)
    assert type(error) is expected
    assert str(error).startswith(f"{code}: ")


BODIES = {
    "a Status": (status(message='jobs "a" not found'), '404: jobs "a" not found'),
    "text": (b"404 page not found", "404: 404 page not found"),
    "not UTF-8": (b"\xff\xfe", "404: \ufffd\ufffd"),
    "a JSON list": (b"[1]", "404: [1]"),
    "a JSON number": (b"7", "404: 7"),
    "an object without a message": (b'{"a":1}', '404: {"a":1}'),
    "endless": (b"x" * 10_000, "404: " + "x" * 300),
}


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES.keys())
def test_the_text_is_the_servers_or_an_excerpt(body: bytes, expected: str) -> None:
    assert str(error_of(404, body)) == expected


@pytest.mark.parametrize(
    ("code", "retry_after", "pause_s"),
    [
        (429, "7", 7.0),
        (503, " 1 ", 1.0),
        (429, "86400", 30.0),
        (503, "9" * 5000, 30.0),
        (429, "", 0.0),
        (429, "-1", 0.0),
        (429, "1.5", 0.0),
        (429, "\u0663", 0.0),
        (503, "Wed, 21 Oct 2026 07:28:00 GMT", 0.0),
        (500, "7", 0.0),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_server_says_how_long_to_wait(code: int, retry_after: str, pause_s: float) -> None:
    error = error_of(code, b"{}", retry_after=retry_after)
    assert isinstance(error, TransientError)
    assert error.retry_after_s == pause_s


WEBHOOK = 'admission webhook "jobs.example.dev" denied the request: not on a Friday'
POLICY = "jobs.batch \"a\" is forbidden: ValidatingAdmissionPolicy 'frozen' with binding 'all' denied request: frozen"


@pytest.mark.parametrize("message", [WEBHOOK, POLICY], ids=["a webhook", "a policy"])
@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (401, "Unauthorized", ForbiddenError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", ForbiddenError),
        (409, "Conflict", ForbiddenError),
        (409, "AlreadyExists", ForbiddenError),
        (410, "Expired", ForbiddenError),
        (413, "RequestEntityTooLarge", InvalidError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", ForbiddenError),
        (500, "InternalError", ForbiddenError),
        (503, "", ForbiddenError),
    ],
)
def test_whoever_denies_a_request_chooses_its_code(
    code: int, reason: str, expected: type[SlicebusError], message: str
) -> None:
    error = error_of(code, status(reason, message))
    assert type(error) is expected
    assert str(error) == f"{code}: {message}"


EXCEPTIONS = {
    "refused": ConnectionRefusedError(111, "refused"),
    "reset": ConnectionResetError(104, "reset"),
    "disconnected": aiohttp.ServerDisconnectedError(),
    "cut short": aiohttp.ClientPayloadError("cut"),
    "timeout": TimeoutError(),
    "aiohttp's timeout": aiohttp.ServerTimeoutError("sock read"),
    "no such host": aiohttp.ClientOSError(-2, "Name or service not known"),
    "TLS": ssl.SSLError(1, "handshake failure"),
}


@pytest.mark.parametrize("foreign", EXCEPTIONS.values(), ids=EXCEPTIONS.keys())
async def test_connection_failures_are_unavailable(foreign: Exception) -> None:
    with pytest.raises(UnavailableError, match=r"GET /version: .+") as raised, translated("GET /version"):
        raise foreign
    assert raised.value.__cause__ is foreign


@pytest.mark.parametrize("own", [NotFoundError("x"), ValueError("a bug")], ids=repr)
async def test_other_errors_pass_through(own: BaseException) -> None:
    with pytest.raises(type(own)), translated("GET /version"):
        raise own


async def test_a_request_that_a_library_cancels_is_unavailable() -> None:
    said = "GET /version: the request was cancelled by a library"
    with pytest.raises(UnavailableError, match=said), translated("GET /version"):
        raise asyncio.CancelledError


async def test_a_cancelled_task_ends_its_request() -> None:
    async def request() -> None:
        with translated("GET /version"):
            await asyncio.Event().wait()

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
