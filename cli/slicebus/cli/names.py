"""Finds jobs by the names that users give."""

import difflib
from collections.abc import Iterable

from slicebus.proto.errors import ConfigurationError

_NEAREST = 3


def is_asked_for(key: str, job: str) -> bool:
    """Whether a key, `Kind/namespace/name`, matches a name, namespace/name or Kind/namespace/name."""
    return key == job or key.endswith(f"/{job}")


def in_namespace(job: str, namespace: str) -> str:
    """A name, namespace/name or Kind/namespace/name, as `namespace/name` at least. Raises ConfigurationError for a job
    of another namespace."""
    if not job:
        raise ConfigurationError("--namespace goes with the name of a job")
    if (own := namespace_of(job)) not in (None, namespace):
        raise ConfigurationError(f"{job} is in namespace {own}, not in {namespace}")
    return job if own else f"{namespace}/{job}"


def namespace_of(job: str) -> str | None:
    """The namespace in `namespace/name` or `Kind/namespace/name`; None for a name alone."""
    return job.split("/")[-2] if "/" in job else None


def nearest(job: str, others: Iterable[str]) -> str:
    """A suggestion of similar names for an unknown job; empty where there are none."""
    keys = set(others)
    by_name = {key: key for key in keys} | {key.rpartition("/")[2]: key for key in keys}
    near = difflib.get_close_matches(job, by_name, n=_NEAREST, cutoff=0.5)
    return f"; did you mean {', '.join(sorted({by_name[name] for name in near}))}?" if near else ""
