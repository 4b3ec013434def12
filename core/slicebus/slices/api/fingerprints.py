"""Hashes what manager and agent hold, so that they compare it without sending it.

What is hashed is part of the protocol (`proto/README.md`): a change here makes every job look out of sync.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from slicebus.proto.messages import ClusterName, Counts, JobPhase

_DIGEST_BYTES = 8


def content_hash(content: object) -> str:
    """A short hash of any value of plain types, the same for equal values: BLAKE2b-64 of its JSON with sorted keys."""
    encoded = msgspec.json.encode(content, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()


def spec_hash(cluster: ClusterName, slice: str, granted: Counts, baseline: Counts | None) -> str:
    """The hash of what a worker holds for a job: slice, granted counts, and the counts of the manager's spec."""
    return content_hash([cluster, slice, granted, baseline])


def status_hash(
    job_status: Mapping[str, Any],
    phase: JobPhase,
    pods_ready: bool | None,
    *,
    left: Mapping[str, int] | None = None,
    problems: Mapping[str, str] | None = None,
    waits: str = "",
    gang: Mapping[str, int] | None = None,
) -> str:
    """The hash of a job's state as the manager mirrors it. Ready pods, the reason why it `waits` and the minimum of its
    `gang` count only while it runs. `left` are the pods that run on after its end, `problems` the reasons why pods do
    not run, by pod set."""
    present = pods_ready if phase is JobPhase.RUNNING else None
    left = {name: count for name, count in (left or {}).items() if count}
    content: list[Any] = [job_status, present]
    waits, gang = (waits, gang) if phase is JobPhase.RUNNING else ("", None)
    if left or problems or waits or gang is not None:
        content.append(left)
    if problems or waits or gang is not None:
        content.append(problems or {})
    if waits or gang is not None:
        content.append(waits)
    if gang is not None:
        content.append(gang)
    return content_hash(content)


def all_ready(granted: Counts, ready: Mapping[str, int], succeeded: Mapping[str, int]) -> bool:
    """Whether every pod set has as many pods that are ready or have succeeded as it is granted."""
    return all(ready.get(name, 0) + succeeded.get(name, 0) >= count for name, count in granted.items())
