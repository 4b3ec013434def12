"""Refusals, as the Status object that the API server answers with."""

from typing import Any

Manifest = dict[str, Any]

_REASONS = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
}


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(self, code: int, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS[code]

    def to_status(self) -> Manifest:
        """The answer's body."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }


def not_found(plural: str, name: str) -> Refusal:
    """No such object."""
    return Refusal(404, f'{plural} "{name}" not found')


def conflict(plural: str, name: str) -> Refusal:
    """Another resourceVersion than the one that the request was made for."""
    detail = "the object has been modified; please apply your changes to the latest version and try again"
    return Refusal(409, f'Operation cannot be fulfilled on {plural} "{name}": {detail}')


def invalid(kind: str, name: str, detail: str) -> Refusal:
    """Content that the schema or a rule does not allow."""
    return Refusal(422, f'{kind} "{name}" is invalid: {detail}')
