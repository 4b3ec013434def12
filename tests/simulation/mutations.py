"""What each safeguard is good for: switch one off, and the simulation has to notice."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from slicebus.agent import marks, watching
from slicebus.slices import admission
from slicebus.slices.ungate import to_ungate

Manifest = dict[str, Any]

_POD_SETS = ("main", "head", "small-group", "submitter")


def _everything_may_start(pods: Any, granted: Mapping[str, int], **how: Any) -> list[Manifest]:
    return to_ungate(pods, dict.fromkeys(_POD_SETS, 1000), **how)


MUTATIONS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "versions": lambda: patch.object(marks, "spec_version", lambda _: 0),
    "delta charging": lambda: patch.object(admission, "_minus", lambda used, _: used),
    "ungate cap": lambda: patch.object(watching, "to_ungate", _everything_may_start),
}
"""Each switches one safeguard off for as long as the context lasts."""


@contextmanager
def mutated(name: str | None) -> Iterator[None]:
    """The product without one of its safeguards; as it is without a name."""
    if name is None:
        yield
        return
    with MUTATIONS[name]():
        yield
