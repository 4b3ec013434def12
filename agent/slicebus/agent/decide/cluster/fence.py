"""Decides whether pods may start: the manager may give the jobs of a cluster that it does not hear to another cluster.

With a fence of some seconds, pods start only for so long after the publication of the newest heartbeat that the manager
has heard. Times are those of the agent's own loop, so no clocks are compared.
"""

import math

from slicebus.proto.messages import Heard

NEVER_S = -math.inf
"""The time of the newest heard heartbeat before the manager has heard any."""
UNREADABLE_S = 1.0
"""The length of a fence that cannot be read. Short is safe: the fence opens only while heartbeats are being heard."""


def is_closed(fence_s: float, *, heard_s: float, now_s: float) -> bool:
    """Whether no pod may start at `now_s`. `fence_s` is 0 without a fence; `heard_s` is when the newest heard heartbeat
    was published."""
    return fence_s > 0 and now_s >= heard_s + fence_s


def newest_heard_s(heard_s: float, heard: Heard, *, epoch: int) -> float:
    """When the newest heard heartbeat was published, after the manager has heard `heard`.

    Heartbeats of an agent before this one count for nothing: its loop has another time.
    """
    return max(heard_s, heard.said_s) if heard.epoch == epoch else heard_s


def parse_seconds(text: str) -> float | None:
    """The length of a stored fence in seconds, at least 0; None where the text is no number."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return None
