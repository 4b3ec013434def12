"""Where tests/tools keeps what it builds and unpacks."""

import os
from pathlib import Path


def cache() -> Path:
    """The folder of all of it: `TOOLS_CACHE`."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("TOOLS_CACHE") or caches / "slicebus" / "tools")


def tools() -> Path:
    """Where tests/tools/build.sh links the binaries."""
    return cache() / "bin"
