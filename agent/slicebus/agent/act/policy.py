"""Reads the policy of this cluster from a file, and the labels of the namespaces that it depends on.

`decide.order.policy` has the rules. No message changes either.
"""

import os
from pathlib import Path

import msgspec
import structlog
import yaml

from slicebus.agent.state.policy import Policy, PolicyFile
from slicebus.agent.state.store import POLICY, AgentStore
from slicebus.agent.state.views import JobKey
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES
from slicebus.proto.errors import ConfigurationError, NotFoundError, NotServedError, UnavailableError
from slicebus.proto.messages import JobRef

_log = structlog.get_logger()
_Stamp = tuple[int, int, int]


def read_policy(path: Path) -> PolicyFile:
    """The policy of a YAML file; the default where it is empty. Raises ConfigurationError, which names the field."""
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"the policy {path} cannot be read: {error}") from error
    try:
        return msgspec.convert(content if content is not None else {}, PolicyFile)
    except msgspec.ValidationError as error:
        text, _, field = str(error).partition(" - at `$.")
        named = f"{field.rstrip('`')}: {text}" if field else text
        raise ConfigurationError(f"the policy {path} is invalid: {named}") from error


class PolicySource:
    """Keeps the store's policy as the file has it, and the labels of namespaces as the API server has them."""

    def __init__(self, path: str | None, *, own_namespace: str, client: KubeClient, store: AgentStore) -> None:
        """`path` None is the default policy."""
        self._path = Path(path) if path else None
        self._own_namespace = own_namespace
        self._client = client
        self._store = store
        self._stamp: _Stamp | None = None

    def load(self) -> None:
        """Read the file. Raises ConfigurationError."""
        if self._path is None:
            self._take(PolicyFile())
            return
        self._stamp = _stamp(self._path)
        self._take(read_policy(self._path))

    async def refresh(self, job: JobRef) -> None:
        """Read what decides about an order for this job, where it has changed or may have."""
        self._reload()
        is_new = self._store.view(JobKey.of(job)).job is None
        if is_new and self._store.policy[POLICY].namespace_selector is not None:
            await self._read_labels(job.namespace)

    def _reload(self) -> None:
        """Read the file again where it has changed. One that cannot be read changes nothing."""
        if self._path is None or (stamp := _stamp(self._path)) == self._stamp:
            return
        self._stamp = stamp
        try:
            self._take(read_policy(self._path))
        except ConfigurationError as error:
            _log.error("policy.invalid", error=str(error), kept="the policy before it")

    def _take(self, file: PolicyFile) -> None:
        policy = Policy(**msgspec.structs.asdict(file), own_namespace=self._own_namespace)
        if self._store.policy.get(POLICY) != policy:
            self._store.policy[POLICY] = policy
            _log.info("policy.taken", **msgspec.to_builtins(policy))

    async def _read_labels(self, namespace: str) -> None:
        known = self._store.namespaces
        try:
            manifest = await self._client.get(NAMESPACES, namespace)
        except NotServedError as error:
            raise UnavailableError(f"namespaces are not served now: {error}") from error
        except NotFoundError:
            known.pop(namespace, None)
            return
        labels = manifest["metadata"].get("labels") or {}
        if known.get(namespace) != labels:
            known[namespace] = labels


def _stamp(path: Path) -> _Stamp | None:
    """A value that changes with the file's content; None where the file is missing."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_ino, stat.st_size
