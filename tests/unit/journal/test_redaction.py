"""What is taken out of recorded messages, and what is left in."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.journal.redaction import MARK, redacted, redacted_headers

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def env(name: str, **value: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"env": [{"name": name, **value}]}]}}


def manifest_text(value: str) -> str:
    return orjson.dumps({"kind": "Job"} | env("DB_PASSWORD", value=value)).decode()


OUT: dict[str, tuple[Any, Any]] = {
    "password": (env("DB_PASSWORD", value="x"), env("DB_PASSWORD", value=MARK)),
    "passwd": (env("passwd", value="x"), env("passwd", value=MARK)),
    "token": (env("HF_TOKEN", value="x"), env("HF_TOKEN", value=MARK)),
    "secret": (env("AWS_SECRET_ACCESS_KEY", value="x"), env("AWS_SECRET_ACCESS_KEY", value=MARK)),
    "access key": (env("AWS_ACCESS_KEY_ID", value="x"), env("AWS_ACCESS_KEY_ID", value=MARK)),
    "api key": (env("OPENAI_API_KEY", value="x"), env("OPENAI_API_KEY", value=MARK)),
    "apikey": (env("apikey", value="x"), env("apikey", value=MARK)),
    "private key": (env("private-key", value="x"), env("private-key", value=MARK)),
    "credential": (env("GIT_CREDENTIALS", value="x"), env("GIT_CREDENTIALS", value=MARK)),
    "annotation": ({"annotations": {"example.com/token": "x"}}, {"annotations": {"example.com/token": MARK}}),
    "deep in lists": ([[{"token": "x"}]], [[{"token": MARK}]]),
    "an ordinary variable": (env("PATH", value="/bin"), env("PATH", value=MARK)),
    "credentials of a URL": (
        env("REDIS_URL", value="redis://user:pw@host/0"),
        env("REDIS_URL", value=MARK),
    ),
    "credentials of several URLs": (
        "a://u:p@h/x b://u:p@h",
        f"a://{MARK}@h/x b://{MARK}@h",
    ),
    "a password with an at sign": ("amqp://u:p@ss@host/v", f"amqp://{MARK}@host/v"),
    "credentials in an argument": (
        {"args": ["--db=postgres://u:p@h/d"]},
        {"args": [f"--db=postgres://{MARK}@h/d"]},
    ),
    "data of a Secret": (
        {"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "x"}},
        {"kind": "Secret", "metadata": {"name": "s"}, "data": MARK, "stringData": MARK},
    ),
    "a manifest as text in an annotation": (
        {"annotations": {LAST_APPLIED: manifest_text("x")}},
        {"annotations": {LAST_APPLIED: manifest_text(MARK)}},
    ),
    "a list of manifests as text, ending in a newline": (
        {"annotations": {"a": f"[{manifest_text('x')}]\n"}},
        {"annotations": {"a": f"[{manifest_text(MARK)}]"}},
    ),
}

IN: dict[str, Any] = {
    "a variable by reference": env("DB_PASSWORD", valueFrom={"secretKeyRef": {"name": "db", "key": "password"}}),
    "a variable that slicebus sets": env("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", value="86400"),
    "the name of a Secret": {"volumes": [{"secret": {"secretName": "tls"}}], "imagePullSecrets": [{"name": "pull"}]},
    "a switch": {"automountServiceAccountToken": False, "tokenExpirationSeconds": 3600},
    "data of a ConfigMap": {"kind": "ConfigMap", "data": {"a": "b"}},
    "a URL without credentials": "https://host/path?q=1",
    "an address in a URL's query": "https://host/path?mail=a@b",
    "an address right after a URL's host": "https://host?mail=a@b",
    "an image by digest": {"image": "registry.example/app@sha256:0123"},
    "text that is almost JSON": {"command": ["{", "[ -f x ]", "{}", '{"a": 1 }', "[1, 2]"]},
    "numbers and nothing": [1, 1.5, None, True],
}


@pytest.mark.parametrize(("value", "expected"), OUT.values(), ids=OUT.keys())
def test_secrets_are_taken_out(value: Any, expected: Any) -> None:
    before = copy.deepcopy(value)
    assert redacted(value) == expected
    assert value == before
    assert redacted(expected) == expected


@pytest.mark.parametrize("value", IN.values(), ids=IN.keys())
def test_everything_else_stays(value: Any) -> None:
    assert redacted(value) == value


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
)


@given(value=JSON)
def test_redacting_again_changes_nothing(value: Any) -> None:
    once = redacted(value)
    assert redacted(once) == once


def test_headers_lose_the_values_of_secret_names_and_what_looks_like_a_secret() -> None:
    headers = {
        "x-api-token": "x",
        "note": "--password=x1",
        "uri": "amqp://u:p@h",
        "slicebus-type": "status",
        "empty": "",
    }
    assert redacted_headers(headers) == {
        "x-api-token": MARK,
        "note": f"--password={MARK}",
        "uri": f"amqp://{MARK}@h",
        "slicebus-type": "status",
        "empty": "",
    }
    assert headers["x-api-token"] == "x"
