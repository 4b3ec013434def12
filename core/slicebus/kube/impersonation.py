"""Names the user as whom a request is made, where that is not the client itself."""

from typing import Self
from urllib.parse import quote

import msgspec


class Impersonation(msgspec.Struct, frozen=True):
    """Another user, in whose name a request is made. It names no groups: the API server adds a service account's.

    The client needs the verb `impersonate` on the user and on each extra.
    https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
    """

    user: str
    extra: dict[str, str] = {}
    """More about the user, one value for each key. Keys are in lower case: the API server makes them so."""

    @classmethod
    def of_service_account(cls, namespace: str, name: str, *, extra: dict[str, str]) -> Self:
        """A service account, under the name by which the API server knows it."""
        return cls(f"system:serviceaccount:{namespace}:{name}", extra)

    def to_headers(self) -> dict[str, str]:
        """The headers of a request. A key may have characters that a header's name may not."""
        extra = {f"Impersonate-Extra-{quote(key, safe='')}": value for key, value in self.extra.items()}
        return {"Impersonate-User": self.user, **extra}
