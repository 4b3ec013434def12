"""How to reach an API server: by a kubeconfig, or as the account of the pod. kubernetes-asyncio reads both.

Two of its packages import 700 generated models, which take 38 MB of every process, and nothing here uses one. So
`_reader` puts empty packages with their names and folders in their place while it imports the modules below them. Where
somebody else has imported kubernetes-asyncio already, that is used.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slicebus.proto.errors import ConfigurationError

if TYPE_CHECKING:
    from kubernetes_asyncio.client.configuration import Configuration

_PACKAGE = "kubernetes_asyncio"
_CLIENT = f"{_PACKAGE}.client"


def of_url(url: str) -> "Configuration":
    """Of a server without authentication."""
    return _new(host=url)


async def of_kubeconfig(path: str | Path | None = None) -> "Configuration":
    """Of a kubeconfig; by default the one that kubectl uses. Raises ConfigurationError."""
    found = _new()
    try:
        await _CONFIG.load_kube_config(str(path) if path else None, client_configuration=found)
    except (_CONFIG.ConfigException, OSError) as error:
        raise ConfigurationError(f"kubeconfig: {error}") from error
    return found


def of_pod() -> "Configuration | None":
    """Of the cluster that this process runs in; None where it runs in none."""
    found = _new()
    try:
        _CONFIG.load_incluster_config(client_configuration=found)
    except _CONFIG.ConfigException:
        return None
    return found


def _reader() -> Any:
    """`kubernetes_asyncio.config`."""
    if _PACKAGE in sys.modules:
        return import_module(f"{_PACKAGE}.config")
    spec = find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    package, client = ModuleType(_PACKAGE), ModuleType(_CLIENT)
    package.__path__, client.__path__ = folders, [str(Path(folder, "client")) for folder in folders]
    sys.modules |= {_PACKAGE: package, _CLIENT: client}
    try:
        vars(client).update(ApiClient=None, Configuration=import_module(f"{_CLIENT}.configuration").Configuration)
        return import_module(f"{_PACKAGE}.config")
    finally:
        del sys.modules[_PACKAGE], sys.modules[_CLIENT]


_CONFIG = _reader()


def _new(**fields: str) -> "Configuration":
    made: Configuration = sys.modules[f"{_CLIENT}.configuration"].Configuration(**fields)
    return made
