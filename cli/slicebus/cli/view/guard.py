"""Who may ask the view for a page: only the browser of the user who started it, or whom a proxy lets in.

Everybody on the machine reaches a port of the loopback interface, and so does a page of another site: by the name of a
host of its own that it lets point here (DNS rebinding), by a link, a frame or a request. The view answers with what its
user may see, so it asks each request for a name of its own as the host, for a browser that comes from nowhere else, and
for a secret that it printed on its user's terminal.

Behind a proxy, which is alone with the view in a pod, the proxy decides who asks, so there is no secret. The name is
then the public one, also where another proxy before it has changed the host and says what it was.
"""

import hmac
import re
import secrets
from collections.abc import Iterator, Mapping

import msgspec

from slicebus.proto.errors import ConfigurationError

TOKEN = "token"
"""The parameter of an address that has the secret."""
HEALTH_PATH = "/healthz"
"""Says that the view answers, and nothing else: behind a proxy, to whoever asks."""
_PUBLIC_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?(:[1-9][0-9]{0,4})?")
_LOOPBACK_NAME = re.compile(r"(localhost|127(\.[0-9]+){3}|0(\.0){3})(:|$)")
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
    path: str
    host: str
    forwarded_host: str = ""
    """`X-Forwarded-Host`, which is whatever the client or a proxy has written; empty for none."""
    fetch_site: str
    """`Sec-Fetch-Site`; empty where the client is no browser, or an old one."""
    fetch_dest: str
    token: str
    """The secret of the address or of the cookie; empty for none."""


class Guard:
    """Knows the names of one view, and its secret unless a proxy is before it."""

    def __init__(self, port: int, *, secret: str = "", public_name: str | None = None) -> None:
        """`public_name`: what browsers have as the host of the proxy before the view; None where there is no proxy."""
        self.public_name = public_name
        self.secret = "" if public_name else secret or secrets.token_urlsafe(24)
        """Empty where a proxy decides who asks."""
        self.cookie = f"slicebus-view-{port}"
        """Cookies do not know ports: another view of the same user has another name."""
        self._hosts = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}

    def refusal(self, asked: Asked) -> str:
        """Why a request gets no answer, in words; empty where it gets one."""
        if asked.method not in ("GET", "HEAD"):
            return "the view shows, and changes nothing"
        if self.public_name and asked.path == HEALTH_PATH:
            return ""
        if self.public_name and not self._is_proxied(asked):
            return f"the view answers by the name {self.public_name}: its proxies have to pass on the browser's Host"
        if not self.public_name and asked.host not in self._hosts:
            return "the view answers on the loopback address that it has printed, and by no other name"
        if asked.fetch_site not in ("", "same-origin", "none") and asked.fetch_dest not in _NAVIGATIONS:
            return "another site has asked for this"
        if self.secret and not hmac.compare_digest(asked.token.encode(), self.secret.encode()):
            return "open the address that `slicebus view` has printed: it has the secret that this browser lacks"
        return ""

    def _is_proxied(self, asked: Asked) -> bool:
        """Whether the browser had the public name in its address, as far as any proxy on the way has told."""
        return all(name == self.public_name for name in (asked.host.lower(), *_names(asked.forwarded_host)))


def public_name(text: str) -> str:
    """The name of a proxy as browsers send it: `slicebus.example.com`, with its port where that is not the usual one.

    Raises ConfigurationError for what is none, and for a loopback name: there everybody on the machine could ask.
    """
    name = text.lower()
    if not _PUBLIC_NAME.fullmatch(name):
        raise ConfigurationError(
            f"--behind-proxy {text}: give a name as slicebus.example.com, or with a port NAME:PORT"
        )
    if _LOOPBACK_NAME.match(name):
        raise ConfigurationError(f"--behind-proxy {text}: a proxy has a public name; leave the option out without one")
    return name


def _names(forwarded_host: str) -> Iterator[str]:
    return filter(None, (name.strip().lower() for name in forwarded_host.split(",")))
