"""What a kubeconfig and the account of a pod say: every way to authenticate, several files, and what is refused."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.kube import client, server
from slicebus.kube.client import KubeClient
from slicebus.kube.kubeconfig import of_kubeconfig, of_pod
from slicebus.kube.server import ApiServer
from slicebus.proto.errors import ConfigurationError, UnavailableError

Manifest = dict[str, Any]
HOST = "https://api.example:6443"
PEM = b"a certificate"


def written(path: Path, *, user: Manifest | None = None, name: str = "it", **cluster: Any) -> Path:
    """A kubeconfig with one context."""
    manifest = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": HOST} | cluster}],
        "users": [{"name": name, "user": user or {}}],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(manifest))
    return path


async def says(found: ApiServer) -> str | None:
    return await found.credentials.authorization()


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({}, None),
        ({"token": "t"}, "Bearer t"),
        ({"username": "u", "password": "p"}, f"Basic {base64.b64encode(b'u:p').decode()}"),
    ],
    ids=["nobody", "a token", "a password"],
)
async def test_who_asks(user: Manifest, header: str | None, tmp_path: Path) -> None:
    assert await says(of_kubeconfig(written(tmp_path / "config", user=user))) == header


async def test_a_file_with_a_token_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_READ_AGAIN_S", -1.0)
    (tmp_path / "token").write_text("one\n")
    found = of_kubeconfig(written(tmp_path / "config", user={"tokenFile": "token", "token": "other"}))
    assert await says(found) == "Bearer one"
    (tmp_path / "token").write_text("two\n")
    assert await says(found) == "Bearer two"
    (tmp_path / "token").unlink()
    assert await says(found) == "Bearer two"


def plugin(code: str, **more: Any) -> Manifest:
    args = {"command": sys.executable, "args": ["-c", code], "env": [{"name": "WHO", "value": "me"}]}
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", **args, **more}}


COUNTS = """
import json, os, pathlib
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
calls = pathlib.Path("{calls}")
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
status = {{"token": os.environ["WHO"] + str(len(calls.read_text())), "expirationTimestamp": "{until}"}}
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}}))
"""


@pytest.mark.parametrize(("until", "second"), [("2099-01-01T00:00:00Z", "me1"), ("2001-01-01T00:00:00Z", "me2")])
async def test_a_plugin_runs_again_when_its_token_has_expired(until: str, second: str, tmp_path: Path) -> None:
    code = COUNTS.format(calls=tmp_path / "calls", until=until)
    found = of_kubeconfig(written(tmp_path / "config", user=plugin(code)))
    assert [await says(found), await says(found)] == ["Bearer me1", f"Bearer {second}"]


NO_TIME = """print('{"status": {"token": "x", "expirationTimestamp": "soon"}}')"""


@pytest.mark.parametrize("code", ["print('no JSON')", "print('{}')", "raise SystemExit(1)", NO_TIME])
async def test_a_plugin_that_prints_no_token_is_told(code: str, tmp_path: Path) -> None:
    found = of_kubeconfig(written(tmp_path / "config", user=plugin(code)))
    with pytest.raises(UnavailableError, match="prints no token"):
        await says(found)


def test_what_it_says_of_the_connection(tmp_path: Path) -> None:
    data = base64.b64encode(PEM).decode()
    user = {"client-certificate-data": data, "client-key": "keys/key.pem"}
    cluster = {"certificate-authority": "/ca.pem", "tls-server-name": "other", "proxy-url": "http://proxy:3128"}
    found = of_kubeconfig(written(tmp_path / "config", user=user, **cluster))
    assert (found.host, found.authority, found.name, found.proxy) == (
        HOST,
        Path("/ca.pem"),
        "other",
        "http://proxy:3128",
    )
    assert (found.certificate, found.key, found.verify) == (PEM, tmp_path / "keys" / "key.pem", True)
    assert not of_kubeconfig(written(tmp_path / "config", **{"insecure-skip-tls-verify": True})).verify


async def test_of_several_files_the_first_that_says_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = written(tmp_path / "a" / "config", user={"tokenFile": "token"})
    (first.parent / "token").write_text("a")
    second = written(tmp_path / "b" / "config", user={"token": "b"}, server="https://b")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (tmp_path / "none", first, second))))
    found = of_kubeconfig()
    assert (found.host, await says(found)) == (HOST, "Bearer a")


def without(name: str) -> Manifest:
    return {"current-context": "it", "contexts": [{"name": "it", "context": {"cluster": name, "user": name}}]}


REFUSED: dict[str, tuple[str, str]] = {
    "no context": (json.dumps({}), "no current-context"),
    "no such context": (json.dumps({"current-context": "x"}), "'x' among its contexts"),
    "no such cluster": (json.dumps(without("x")), "'x' among its clusters"),
    "no YAML": ("{", "config is no YAML, see line 1"),
    "a list": ("[1]", "config is no kubeconfig"),
}


@pytest.mark.parametrize(("text", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_used_is_told(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"kubeconfig: .*{told}"):
        of_kubeconfig(path)


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ({"auth-provider": {"name": "gcp"}}, "auth-provider"),
        ({"token": "t", "as": "admin"}, "as of a user"),
        (plugin("", interactiveMode="Always"), "interactiveMode"),
        (plugin("", provideClusterInfo=True), "provideClusterInfo"),
        ({"tokenFile": "none"}, "token: "),
        ({"client-certificate-data": "?"}, "kubeconfig: "),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_it_does_not_do_is_refused_by_name(user: Manifest, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=told):
        of_kubeconfig(written(tmp_path / "config", user=user))


async def test_a_pod_has_the_account_of_its_cluster(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert of_pod(tmp_path, env) is None
    (tmp_path / "token").write_text("t")
    assert of_pod(tmp_path, {}) is None
    (tmp_path / "namespace").write_text("team-a\n")
    found = of_pod(tmp_path, env)
    assert found is not None
    assert (found.host, found.authority, await says(found), found.namespace) == (
        "https://[fd00::1]:443",
        tmp_path / "ca.crt",
        "Bearer t",
        "team-a",
    )


def test_a_context_is_chosen_by_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "config", name="east")
    manifest = yaml.safe_load(path.read_text())
    west = {"name": "west", "context": {"cluster": "east", "user": "east", "namespace": "team-b"}}
    path.write_text(yaml.safe_dump(manifest | {"contexts": [*manifest["contexts"], west]}))
    assert (of_kubeconfig(path).namespace, of_kubeconfig(path, "west").namespace) == ("", "team-b")
    with pytest.raises(ConfigurationError, match="there is no 'wets' among its contexts; did you mean west"):
        of_kubeconfig(path, "wets")


async def test_the_files_of_the_variable_come_before_the_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also several of them, as kubectl joins them."""
    first, second = written(tmp_path / "first", name="east"), written(tmp_path / "second", name="west")
    monkeypatch.setenv("KUBECONFIG", f"{first}{os.pathsep}{second}")
    monkeypatch.setattr(client, "of_pod", lambda: pytest.fail("the pod is not asked"))
    async with await KubeClient.connect(context="west") as found:
        assert (found.host, found.namespace) == (HOST, "default")
