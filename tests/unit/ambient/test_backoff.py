"""The pauses before retries."""

from itertools import pairwise
from random import Random

import pytest
from tenacity import AsyncRetrying, stop_after_attempt

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.clock import ambient, now
from unit.kube.loop_time import LoopTime

BACKOFF = Backoff(first_s=0.2, most_s=6.0)


class Middle(Random):
    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


@pytest.mark.parametrize(
    ("failures", "pause_s"), [(1, 0.2), (2, 0.4), (3, 0.8), (5, 3.2), (6, 4.0), (7, 4.0), (10_000, 4.0)]
)
def test_pauses_double_up_to_the_longest(failures: int, pause_s: float) -> None:
    with ambient(clock=now, random=Middle()):
        assert BACKOFF.pause_s(failures) == pause_s


def test_jitter_comes_from_the_randomness_of_the_context() -> None:
    def pauses() -> list[float]:
        with ambient(clock=now, random=Random(7)):
            return [BACKOFF.pause_s(1) for _ in range(1000)]

    found = pauses()
    assert pauses() == found
    assert 0.1 <= min(found) < 0.11
    assert 0.29 < max(found) <= 0.3


async def test_tenacity_takes_a_backoff_as_its_wait(jumping: LoopTime) -> None:
    tried: list[float] = []

    async def fail() -> None:
        tried.append(round(jumping.now, 6))
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await AsyncRetrying(wait=BACKOFF, stop=stop_after_attempt(4), reraise=True)(fail)
    assert [later - before for before, later in pairwise(tried)] == pytest.approx([0.2, 0.4, 0.8])
