"""Who may ask the view for a page: only the browser of the user who started it.

Everybody on the machine reaches a port of the loopback interface, and so does a page of another site: by the name of a
host of its own that it lets point here (DNS rebinding), by a link, a frame or a request. The view answers with what its
user may see, so it asks each request for a name of its own as the host, for a browser that comes from nowhere else, and
for a secret that it printed on its user's terminal.
"""

import hmac
import secrets
from collections.abc import Mapping

import msgspec

TOKEN = "token"
"""The parameter of an address that has the secret."""
_NAVIGATIONS = {"document"}
"""The `Sec-Fetch-Dest` of a link that somebody follows."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""Of every answer. No script, style or frame but our own, and no text becomes markup in the browser."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What of a request says who asks."""

    method: str
    host: str
    fetch_site: str
    """`Sec-Fetch-Site`; empty where the client is no browser, or an old one."""
    fetch_dest: str
    token: str
    """The secret of the address or of the cookie; empty for none."""


class Guard:
    """Knows the names and the secret of one view."""

    def __init__(self, port: int, *, secret: str = "") -> None:
        self.secret = secret or secrets.token_urlsafe(24)
        self.cookie = f"slicebus-view-{port}"
        """Cookies do not know ports: another view of the same user has another name."""
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    def refusal(self, asked: Asked) -> str:
        """Why a request gets no answer, in words; empty where it gets one."""
        if asked.host not in self._hosts:
            return "the view answers on the loopback address that it has printed, and by no other name"
        if asked.method not in ("GET", "HEAD"):
            return "the view shows, and changes nothing"
        if asked.fetch_site not in ("", "same-origin", "none") and asked.fetch_dest not in _NAVIGATIONS:
            return "another site has asked for this"
        if not hmac.compare_digest(asked.token.encode(), self.secret.encode()):
            return "open the address that `slicebus view` has printed: it has the secret that this browser lacks"
        return ""
