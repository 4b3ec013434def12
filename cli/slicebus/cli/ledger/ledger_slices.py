"""Defines what a ledger knows of the slices of a moment."""

from collections.abc import Mapping

import msgspec


class HeldPods(msgspec.Struct, frozen=True, kw_only=True):
    """Pods of one pod set with quota."""

    pod_set: str
    pods: int
    ready: int
    queue: str
    """The ClusterQueue."""
    cluster: str
    flavor: str
    requests: Mapping[str, float]
    """What one pod was admitted with, in cores, bytes or pieces."""


class LedgerSlice(msgspec.Struct, kw_only=True):
    """A slice that held quota at a moment, or waited for some."""

    job: tuple[str, str, str]
    """The kind, the namespace and the name of its job; of one without a job, its own."""
    held: list[HeldPods] = []
    waits: bool = False
    queue: str = ""
    """The ClusterQueue that it waits in."""
    reason: str = ""
    message: str = ""
    since_ms: int = 0
    """Since when the ledger knows it."""
    evicted: bool = False
    """Whether it had lost its quota, which its pods held still."""
