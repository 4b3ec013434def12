"""How soon the agent asks again for the rights that a scheduler backend needs."""

import asyncio

import pytest

from slicebus.agent.act.schedulers import SchedulerBackends
from slicebus.agent.state.settings import AgentDecisionSettings
from slicebus.agent.state.store import AgentStore
from slicebus.kube.resources import Resource
from slicebus.slices.schedulers import Profile
from unit.kube.loop_time import LoopTime, settle


class Authorizer:
    """Answers in place of an API server what the agent may do."""

    def __init__(self) -> None:
        self.allows = True
        self.asked_at: list[float] = []

    async def can_i(self, verb: str, resource: Resource, **_: object) -> bool:
        self.asked_at.append(asyncio.get_running_loop().time())
        return self.allows


class Looking:
    """An agent that has looked once, as when it starts, and goes on."""

    def __init__(self) -> None:
        self.store, self.authorizer = AgentStore(), Authorizer()
        self.store.configure(AgentDecisionSettings(profiles=(Profile("default"), Profile("kai"))))
        self.backends = SchedulerBackends(
            self.store,
            self.authorizer,  # type: ignore[arg-type]
            own_namespace="slicebus",
            namespaces=(),
            requeue=lambda _: None,
            changed=lambda: None,
        )

    @property
    def usable(self) -> list[str]:
        return self.store.schedulers.usable


@pytest.mark.parametrize("rounds", [1, 20], ids=["a moment", "long"])
async def test_a_right_that_is_missing_is_asked_for_again_within_half_a_minute(
    loop_time: LoopTime, rounds: int
) -> None:
    """It was asked for again after five minutes."""
    looking = Looking()
    looking.authorizer.allows = False
    await looking.backends.look()
    running = asyncio.ensure_future(looking.backends.run())
    await settle()
    for _ in range(rounds):
        await loop_time.advance(30.0)
    assert looking.usable == ["default"]
    times = sorted(set(looking.authorizer.asked_at))
    assert len(times) == rounds + 1
    looking.authorizer.allows = True
    await loop_time.advance(30.0)
    assert looking.usable == ["default", "kai"]
    running.cancel()


async def test_rights_that_are_there_are_looked_at_seldom(loop_time: LoopTime) -> None:
    looking = Looking()
    await looking.backends.look()
    running = asyncio.ensure_future(looking.backends.run())
    await settle()
    looking.authorizer.asked_at.clear()
    await loop_time.advance(290.0)
    assert looking.authorizer.asked_at == []
    await loop_time.advance(10.0)
    assert looking.authorizer.asked_at
    running.cancel()
