"""Who may ask the view: the user's own browser, by the address that the view has printed."""

from typing import Any

import msgspec
import pytest

from slicebus.cli.view.guard import HEADERS, Asked, Guard

GUARD = Guard(8439, secret="s3cret")
OWN = Asked(method="GET", host="127.0.0.1:8439", fetch_site="same-origin", fetch_dest="empty", token="s3cret")

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another name for this address": ({"host": "evil.example:8439"}, "by no other name"),
    "another port": ({"host": "127.0.0.1:80"}, "by no other name"),
    "no host": ({"host": ""}, "by no other name"),
    "a request of another site": ({"fetch_site": "cross-site"}, "another site"),
    "a frame of another site": ({"fetch_site": "cross-site", "fetch_dest": "iframe"}, "another site"),
    "a script on another port": ({"fetch_site": "same-site", "fetch_dest": "script"}, "another site"),
    "something that changes": ({"method": "POST"}, "changes nothing"),
    "another user of this machine": ({"token": ""}, "has printed"),
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


def test_each_view_has_its_own_secret() -> None:
    assert Guard(1).secret != Guard(1).secret
    assert Guard(1).cookie != Guard(2).cookie


def test_the_policy_allows_no_script_but_its_own() -> None:
    policy = HEADERS["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'", "trusted-types 'none'"} <= set(policy)
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
