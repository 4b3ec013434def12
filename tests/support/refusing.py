"""An embedded API server that refuses requests for a while, as tokens, rights, policies and webhooks do."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from slicebus.kube.transport import Request
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.status import ApiError

UNAUTHORIZED = ApiError(401, "Unauthorized")
FORBIDDEN = ApiError(403, 'jobs.batch "some" is forbidden: User "slicebus" cannot patch resource "jobs"')
POLICY = ApiError(
    422,
    'jobs.batch "some" is forbidden: ValidatingAdmissionPolicy "frozen" with binding "frozen" denied request: frozen',
    reason="Invalid",
)
WEBHOOK_DENIES = ApiError(403, 'admission webhook "jobs.example.dev" denied the request: not on a Friday')
WEBHOOK_FAILS = ApiError(409, 'admission webhook "jobs.example.dev" denied the request: it cannot write its own record')
WEBHOOK_DOWN = ApiError(500, 'Internal error occurred: failed calling webhook "jobs.example.dev": connection refused')
UNSERVED = ApiError(404, "the server could not find the requested resource")


class Refused:
    """What was refused, as `VERB path`."""

    def __init__(self) -> None:
        self.requests: list[str] = []


@contextmanager
def refusing(
    api: Api,
    error: ApiError | Callable[[], ApiError],
    *,
    verbs: str = "POST PUT PATCH DELETE",
    path: str = "",
) -> Iterator[Refused]:
    """Refuse with this error every request with one of the verbs whose path has what the pattern says. A function makes
    one for each request."""
    before, seen = api.refuses, Refused()

    def refuses(request: Request) -> ApiError | None:
        if request.method in verbs.split() and re.search(path, request.path):
            seen.requests.append(f"{request.method} {request.path}")
            return error() if callable(error) else error
        return before(request)

    api.refuses = refuses
    try:
        yield seen
    finally:
        api.refuses = before
