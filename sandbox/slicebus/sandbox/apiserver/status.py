"""Refusals, and their Status objects."""

from typing import Any

from slicebus.kube.resources import Resource

Manifest = dict[str, Any]

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    500: "InternalError",
}


class ApiError(Exception):
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


def not_found(resource: Resource, name: str) -> ApiError:
    """The error for an object that does not exist."""
    return ApiError(404, f'{_qualified(resource.plural, resource)} "{name}" not found')


def already_exists(resource: Resource, name: str) -> ApiError:
    """The error for a name that is taken."""
    return ApiError(409, f'{_qualified(resource.plural, resource)} "{name}" already exists', reason="AlreadyExists")


def conflict(
    resource: Resource,
    name: str,
    detail: str = "the object has been modified; please apply your changes to the latest version and try again",
) -> ApiError:
    """The error for an object that has another version than the request."""
    return ApiError(409, f'Operation cannot be fulfilled on {_qualified(resource.plural, resource)} "{name}": {detail}')


def invalid(resource: Resource, name: str, *details: str) -> ApiError:
    """The error for content that the schema or a rule does not allow."""
    detail = details[0] if len(details) == 1 else f"[{', '.join(details)}]"
    return ApiError(422, f'{_qualified(resource.kind, resource)} "{name}" is invalid: {detail}')


def unserved() -> ApiError:
    """The error for a path that is not served."""
    return ApiError(404, "the server could not find the requested resource")


def _qualified(name: str, resource: Resource) -> str:
    return f"{name}.{resource.group}" if resource.group else name
