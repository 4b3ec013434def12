"""How far the agent is behind with its work."""

from collections.abc import Iterable


def lag_s(waiting_since: Iterable[float | None], now_s: float) -> float:
    """Age of the oldest thing that the agent still has to do, in seconds; 0 when nothing waits.

    `waiting_since` has the oldest of each kind of work, by the same clock as `now_s`; None where there is none.
    """
    return max((now_s - since_s for since_s in waiting_since if since_s is not None), default=0.0)
