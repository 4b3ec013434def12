"""Who may ask the view: the user's own browser, by the address that the view has printed, or whom a proxy lets in."""

from typing import Any

import msgspec
import pytest

from slicebus.cli.view.guard import HEADERS, HEALTH_PATH, Asked, Guard, public_name
from slicebus.proto.errors import ConfigurationError

GUARD = Guard(8439, secret="s3cret")
OWN = Asked(
    method="GET", path="/jobs", host="127.0.0.1:8439", fetch_site="same-origin", fetch_dest="empty", token="s3cret"
)
NAME = "slicebus.example.com"
PROXIED = Guard(8439, public_name=NAME)
THROUGH = msgspec.structs.replace(OWN, host=NAME, token="")

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another name for this address": ({"host": "evil.example:8439"}, "by no other name"),
    "another port": ({"host": "127.0.0.1:80"}, "by no other name"),
    "no host": ({"host": ""}, "by no other name"),
    "a request of another site": ({"fetch_site": "cross-site"}, "another site"),
    "a frame of another site": ({"fetch_site": "cross-site", "fetch_dest": "iframe"}, "another site"),
    "a script on another port": ({"fetch_site": "same-site", "fetch_dest": "script"}, "another site"),
    "something that changes": ({"method": "POST"}, "changes nothing"),
    "another user of this machine": ({"token": ""}, "has printed"),
    "a probe": ({"path": HEALTH_PATH, "token": ""}, "has printed"),
    "a guess": ({"token": "\u00e9"}, "has printed"),
}


@pytest.mark.parametrize(("changed", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_who_gets_no_answer(changed: dict[str, Any], told: str) -> None:
    assert told in GUARD.refusal(msgspec.structs.replace(OWN, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"host": "localhost:8439"},
        {"host": "[::1]:8439"},
        {"fetch_site": "none", "fetch_dest": "document"},
        {"fetch_site": "cross-site", "fetch_dest": "document"},
        {"fetch_site": "", "fetch_dest": ""},
    ],
)
def test_who_gets_one(changed: dict[str, Any]) -> None:
    assert GUARD.refusal(msgspec.structs.replace(OWN, **changed)) == ""


REFUSED_BEHIND_A_PROXY: dict[str, tuple[dict[str, Any], str]] = {
    "another name for the proxy's address": ({"host": "evil.example"}, f"by the name {NAME}"),
    "a name that begins as the proxy's": ({"host": f"{NAME}.evil.example"}, f"by the name {NAME}"),
    "another port": ({"host": f"{NAME}:8443"}, f"by the name {NAME}"),
    "the loopback address, by way of kubectl port-forward": ({"host": "127.0.0.1:8439"}, f"by the name {NAME}"),
    "no host": ({"host": ""}, f"by the name {NAME}"),
    "another name, which a proxy has replaced": ({"forwarded_host": "evil.example"}, f"by the name {NAME}"),
    "another name beside its own": ({"forwarded_host": f"{NAME}, evil.example"}, f"by the name {NAME}"),
    "its own name only as a proxy tells it": ({"host": "evil.example", "forwarded_host": NAME}, f"by the name {NAME}"),
    "a request of another site": ({"fetch_site": "cross-site"}, "another site"),
    "a frame of another site": ({"fetch_site": "cross-site", "fetch_dest": "iframe"}, "another site"),
    "a script of a neighbour": ({"fetch_site": "same-site", "fetch_dest": "script"}, "another site"),
    "something that no browser sends": ({"fetch_site": "SAME-ORIGIN, cross-site"}, "another site"),
    "something that changes": ({"method": "POST"}, "changes nothing"),
    "a probe that changes": ({"method": "POST", "path": HEALTH_PATH}, "changes nothing"),
}


@pytest.mark.parametrize(("changed", "told"), REFUSED_BEHIND_A_PROXY.values(), ids=REFUSED_BEHIND_A_PROXY.keys())
def test_who_gets_no_answer_behind_a_proxy(changed: dict[str, Any], told: str) -> None:
    assert told in PROXIED.refusal(msgspec.structs.replace(THROUGH, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"host": NAME.upper()},
        {"forwarded_host": NAME},
        {"forwarded_host": f"{NAME.upper()}, {NAME}"},
        {"fetch_site": "none", "fetch_dest": "document"},
        {"fetch_site": "cross-site", "fetch_dest": "document"},
        {"fetch_site": "", "fetch_dest": ""},
        {"token": "whatever"},
        {"path": HEALTH_PATH, "host": "127.0.0.1:8439"},
    ],
    ids=str,
)
def test_who_gets_one_behind_a_proxy(changed: dict[str, Any]) -> None:
    assert PROXIED.refusal(msgspec.structs.replace(THROUGH, **changed)) == ""


def test_behind_a_proxy_there_is_no_secret() -> None:
    assert PROXIED.secret == ""
    assert Guard(8439).secret


@pytest.mark.parametrize("text", [NAME, "Slicebus.Example.COM", "slicebus", "10.0.0.1:8443", f"{NAME}:8443"])
def test_a_public_name(text: str) -> None:
    assert public_name(text) == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"https://{NAME}",
        f"{NAME}/view",
        f"{NAME}:",
        f"{NAME}:0",
        f"user@{NAME}",
        f"{NAME}, evil.example",
        f"{NAME}\n",
        "*",
        "localhost",
        "localhost:4180",
        "127.0.0.1",
        "127.1.2.3:80",
        "0.0.0.0:80",
        "[::1]:80",
    ],
)
def test_what_is_no_public_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--behind-proxy"):
        public_name(text)


def test_each_view_has_its_own_secret() -> None:
    assert Guard(1).secret != Guard(1).secret
    assert Guard(1).cookie != Guard(2).cookie


def test_the_policy_allows_no_script_but_its_own() -> None:
    policy = HEADERS["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "trusted-types 'none'"} <= set(policy)
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
