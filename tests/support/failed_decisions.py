"""Notes every decision that raises: the roles set its object aside, and a test would not see it."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from slicebus.proto.errors import DecisionError

_of = DecisionError.of


@contextmanager
def failed_decisions() -> Iterator[list[str]]:
    """What raised while the context lasts, each with its traceback."""
    failed: list[str] = []
    before = DecisionError.of

    def noting(decision: str, error: Exception) -> DecisionError:
        failed.append(f"{decision}: {''.join(traceback.format_exception(error))}")
        return _of(decision, error)

    DecisionError.of = noting  # type: ignore[method-assign,assignment]
    try:
        yield failed
    finally:
        DecisionError.of = before  # type: ignore[method-assign]
