"""Short hashes by which both sides tell without sending it that they hold the same.

What is hashed is part of the protocol (`proto/README.md`): manager and agent make the same hash from what each of them
has, and a change here makes every job differ from its other side.
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
    """What a worker holds for a job: the slice, what may run, and the counts of the manager's spec."""
    return content_hash([cluster, slice, granted, baseline])


def status_hash(job_status: Mapping[str, Any], phase: JobPhase, pods_ready: bool | None) -> str:
    """How a job stands, as the manager mirrors it. Whether its pods are ready counts only while it runs."""
    return content_hash([job_status, pods_ready if phase is JobPhase.RUNNING else None])


def all_ready(granted: Counts, ready: Mapping[str, int]) -> bool:
    """Whether every pod set has as many ready pods as it was granted."""
    return all(ready.get(name, 0) >= count for name, count in granted.items())
