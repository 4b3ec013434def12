"""Keeps what one object makes a pure function raise from everything else."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from slicebus.proto.errors import DecisionError, SlicebusError

P = ParamSpec("P")
R = TypeVar("R")


def guarded(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a pure function that nobody records. Raises the errors of slicebus that it raises, and DecisionError for any
    other: some object has a shape that the function does not expect."""
    try:
        return function(*args, **kwargs)
    except SlicebusError:
        raise
    except Exception as error:
        raise DecisionError.of(function.__name__, error) from error
