"""Reads kubeconfigs as kubectl does, and the account of a pod. It refuses by name what slicebus cannot do."""

import base64
import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from slicebus.kube.server import ApiServer, Credentials, Fixed, Plugin, TokenFile
from slicebus.proto.errors import ConfigurationError

_HOME = Path("~/.kube/config")
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UNKNOWN = ("auth-provider", "as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a user that slicebus refuses: `exec` has replaced the first, and the roles impersonate by themselves."""
_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}

Entry = Mapping[str, Any]


class _Named(msgspec.Struct, frozen=True):
    """An entry of a kubeconfig, with the folder where its paths begin."""

    says: Entry
    folder: Path

    def path(self, name: str) -> Path | None:
        """A file that it names."""
        return self.folder / Path(self.says[name]).expanduser() if self.says.get(name) else None

    def content(self, name: str) -> Path | bytes | None:
        """The data that it has, or else the file that it names; None for neither."""
        data = self.says.get(f"{name}-data")
        return base64.b64decode(data, validate=True) if data else self.path(name)


def of_url(url: str) -> ApiServer:
    """The server at a URL, without authentication."""
    return ApiServer(host=url)


def of_kubeconfig(path: str | Path | None = None, context: str | None = None) -> ApiServer:
    """The server of a context, by default the current one, and of the files that kubectl uses. Raises
    ConfigurationError."""
    try:
        return _server(_merged(path), context)
    except ConfigurationError as error:
        raise ConfigurationError(f"kubeconfig: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"kubeconfig: {type(error).__name__}: {error}") from error


def of_pod(account: Path = _ACCOUNT, env: Mapping[str, str] = os.environ) -> ApiServer | None:
    """The server of the cluster that this process runs in; None where it runs in none. Raises ConfigurationError."""
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (account / "token").is_file():
        return None
    address = f"[{host}]" if ":" in host else host
    namespace = account / "namespace"
    return ApiServer(
        host=f"https://{address}:{port}",
        authority=account / "ca.crt",
        credentials=TokenFile(account / "token"),
        namespace=namespace.read_text().strip() if namespace.is_file() else "",
    )


def _merged(path: str | Path | None) -> dict[str, Any]:
    """The entries of every file by name, and the current context: the first file that has one wins."""
    named = str(path or os.environ.get("KUBECONFIG", "")).split(os.pathsep)
    files = [Path(part).expanduser() for part in named if part] or [_HOME.expanduser()]
    present = [file for file in files if file.exists()]
    if not present:
        raise ConfigurationError(f"there is no file {' and no '.join(map(str, files))}: KUBECONFIG names another")
    merged: dict[str, Any] = {name: {} for name in _LISTS} | {"current-context": ""}
    for file in present:
        read = _read(file)
        for name, field in _LISTS.items():
            for entry in read.get(name) or ():
                merged[name].setdefault(entry["name"], _Named(entry.get(field) or {}, file.parent))
        merged["current-context"] = merged["current-context"] or read.get("current-context") or ""
    return merged


def _read(file: Path) -> Entry:
    """The content of a file. Raises ConfigurationError, in one line without a word of the content."""
    try:
        content = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", see line {mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{file} is no YAML{where}") from error
    if not isinstance(content or {}, dict):
        raise ConfigurationError(f"{file} is no kubeconfig: it has no clusters, contexts and users")
    return content or {}


def _server(merged: dict[str, Any], wanted: str | None) -> ApiServer:
    chosen = wanted or merged["current-context"]
    if not chosen:
        raise ConfigurationError("it has no current-context: kubectl config use-context NAME sets one")
    context = _entry(merged, "contexts", chosen).says
    cluster = _entry(merged, "clusters", context.get("cluster", ""))
    user = _entry(merged, "users", context["user"]) if context.get("user") else _Named({}, Path())
    if not cluster.says.get("server"):
        raise ConfigurationError(f"the cluster {context.get('cluster')!r} has no server")
    return ApiServer(
        host=str(cluster.says["server"]).rstrip("/"),
        authority=cluster.content("certificate-authority"),
        certificate=user.content("client-certificate"),
        key=user.content("client-key"),
        verify=not cluster.says.get("insecure-skip-tls-verify"),
        name=cluster.says.get("tls-server-name"),
        proxy=cluster.says.get("proxy-url"),
        credentials=_credentials(user),
        namespace=context.get("namespace") or "",
    )


def _entry(merged: dict[str, Any], kind: str, name: str) -> _Named:
    if name not in merged[kind]:
        others = ", ".join(map(repr, sorted(merged[kind]))) or "none"
        near = difflib.get_close_matches(name, merged[kind], n=1)
        meant = f"; did you mean {near[0]}?" if near else f": it has {others}"
        raise ConfigurationError(f"there is no {name!r} among its {kind}{meant}")
    entry: _Named = merged[kind][name]
    return entry


def _credentials(user: _Named) -> Credentials:
    says = user.says
    if unknown := [name for name in _UNKNOWN if says.get(name)]:
        raise ConfigurationError(f"slicebus knows no {', '.join(unknown)} of a user, but tokens, certificates and exec")
    if file := user.path("tokenFile"):
        return TokenFile(file)
    if says.get("token"):
        return Fixed(f"Bearer {says['token']}")
    if says.get("exec"):
        return _plugin(says["exec"], user.folder)
    if says.get("username"):
        return Fixed.basic(says["username"], says.get("password", ""))
    return Fixed()


def _plugin(says: Entry, folder: Path) -> Plugin:
    if says.get("provideClusterInfo") or says.get("interactiveMode") == "Always":
        raise ConfigurationError("slicebus runs no exec with provideClusterInfo, or with interactiveMode: Always")
    command = str(says["command"])
    if os.sep in command:
        command = str(folder / Path(command).expanduser())
    env = {entry["name"]: entry["value"] for entry in says.get("env") or ()}
    info = {"apiVersion": says["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    return Plugin((command, *map(str, says.get("args") or ())), env, info)
