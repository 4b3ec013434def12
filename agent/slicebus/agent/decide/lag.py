"""How far the agent is behind with its work."""

from collections.abc import Iterable


def lag_s(waiting_since: Iterable[float | None], now_s: float) -> float:
    """The age of the agent's oldest pending work in seconds; 0 when nothing waits.

    `waiting_since` has a time for each kind of work, by the clock of `now_s`; None where none waits.
    """
    return max((now_s - since_s for since_s in waiting_since if since_s is not None), default=0.0)
