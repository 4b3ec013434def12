"""Starts the `slicebus` process. A role is started without what only people's commands need: typer, the commands, and
rich, which structlog imports where it is installed. A role would keep them for as long as it runs, and they take 13 MB.
A command starts a tenth faster where structlog does not take rich's tracebacks with it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import TracebackType

ROLES: Mapping[str, str] = {"manager": "slicebus.manager.app", "agent": "slicebus.agent.app"}
"""The module of each role: `run` in it is the process."""
_RICH = "rich"


def main() -> None:
    """The entry point."""
    module = ROLES.get(sys.argv[1]) if len(sys.argv) == 2 else None
    with _without_rich():
        import_module("structlog")
    if module is None:
        import_module("slicebus.cli.main").main()
        return
    sys.excepthook = _show_unexpected
    import_module(module).run()


@contextmanager
def _without_rich() -> Iterator[None]:
    """Let rich count as missing."""
    sys.modules[_RICH] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[_RICH]


def _show_unexpected(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    import_module("slicebus.cli.screen").show_unexpected(kind, error, where)
