"""The rule of the fence: when it is closed."""

import pytest

from slicebus.agent.decide.cluster.fence import NEVER_S, is_closed, newest_heard_s, parse_seconds
from slicebus.proto.messages import Heard

EPOCH = 3
NOW_S = 1000.0


@pytest.mark.parametrize(
    ("fence_s", "heard_s", "closed"),
    [
        pytest.param(0.0, NEVER_S, False, id="no fence, never heard"),
        pytest.param(0.0, NOW_S - 1e6, False, id="no fence, heard long ago"),
        pytest.param(60.0, NEVER_S, True, id="never heard"),
        pytest.param(60.0, NOW_S, False, id="heard now"),
        pytest.param(60.0, NOW_S - 59.9, False, id="heard within the fence"),
        pytest.param(60.0, NOW_S - 60.0, True, id="heard exactly the fence ago"),
        pytest.param(60.0, NOW_S - 61.0, True, id="heard before the fence"),
    ],
)
def test_when_the_fence_is_closed(fence_s: float, heard_s: float, closed: bool) -> None:
    assert is_closed(fence_s, heard_s=heard_s, now_s=NOW_S) is closed


@pytest.mark.parametrize(
    ("before_s", "epoch", "said_s", "after_s"),
    [
        pytest.param(NEVER_S, EPOCH, 7.0, 7.0, id="the first"),
        pytest.param(7.0, EPOCH, 9.0, 9.0, id="a newer one"),
        pytest.param(7.0, EPOCH, 5.0, 7.0, id="an older one, late"),
        pytest.param(7.0, EPOCH - 1, 9.0, 7.0, id="of the agent before"),
        pytest.param(NEVER_S, EPOCH + 1, 9.0, NEVER_S, id="of the agent after"),
    ],
)
def test_which_heartbeats_count(before_s: float, epoch: int, said_s: float, after_s: float) -> None:
    assert newest_heard_s(before_s, Heard(epoch=epoch, said_s=said_s), epoch=EPOCH) == after_s


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 60.0), ("0.5", 0.5), ("0", 0.0), ("-3", 0.0), ("soon", None), ("", None)]
)
def test_what_a_stored_fence_says(text: str, seconds: float | None) -> None:
    assert parse_seconds(text) == seconds
