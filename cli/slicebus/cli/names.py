"""Jobs by what a user calls them."""

import difflib
from collections.abc import Iterable

_NEAREST = 3


def is_asked_for(key: str, job: str) -> bool:
    """Whether a job's `Kind/namespace/name` is what somebody calls name, namespace/name or Kind/namespace/name."""
    return key == job or key.endswith(f"/{job}")


def nearest(job: str, others: Iterable[str]) -> str:
    """What to add to the message that there is no such job: the names that look like it, if any do."""
    keys = set(others)
    by_name = {key: key for key in keys} | {key.rpartition("/")[2]: key for key in keys}
    near = difflib.get_close_matches(job, by_name, n=_NEAREST, cutoff=0.5)
    return f"; did you mean {', '.join(sorted({by_name[name] for name in near}))}?" if near else ""
