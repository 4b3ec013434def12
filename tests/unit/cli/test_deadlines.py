"""Each check of `slicebus doctor` has a deadline, and the rest goes on: all of them end within half a minute."""

import asyncio
import gc
from typing import Any

import pytest

from slicebus.cli.cluster.options import ClusterAccess
from slicebus.cli.doctor import broker_checks, checks
from slicebus.cli.doctor.check import Check, all_within, within
from slicebus.proto.errors import UnavailableError
from slicebus.proto.topology import journal_queues
from unit.kube.loop_time import LoopTime

FINE, HOPELESS = Check("a", "fine"), Check("broker", "takes nothing", "mend it")


def failed(error: Exception) -> Check:
    return Check("api server", str(error), "look")


async def after(pause_s: float, error: Exception | None = None) -> list[Check]:
    await asyncio.sleep(pause_s)
    if error is not None:
        raise error
    return [FINE]


async def test_a_check_that_answers_is_shown(jumping: LoopTime) -> None:
    assert await within("a", after(3), failed=failed) == [FINE]


async def test_an_error_is_a_finding(jumping: LoopTime) -> None:
    assert await within("a", after(1, UnavailableError("away")), failed=failed) == [Check("api server", "away", "look")]


async def test_a_check_that_hangs_is_given_up(jumping: LoopTime) -> None:
    began_s = asyncio.get_running_loop().time()
    [check] = await within("journal", after(3600), failed=failed)
    assert (check.subject, check.found, check.ok) == ("journal", "no answer within 15 s", False)
    assert asyncio.get_running_loop().time() - began_s < 16


async def test_a_check_without_hope_ends_at_once(jumping: LoopTime) -> None:
    began_s = asyncio.get_running_loop().time()

    def hopeless() -> Check | None:
        return HOPELESS if asyncio.get_running_loop().time() > began_s + 1 else None

    assert await within("rights", after(3600), failed=failed, hopeless=hopeless) == [HOPELESS]
    assert asyncio.get_running_loop().time() - began_s < 2


async def shown_after(pause_s: float, *found: str) -> list[Check]:
    await asyncio.sleep(pause_s)
    return [Check("a", text) for text in found]


async def test_checks_run_beside_each_other_and_are_shown_in_their_order_once_each(jumping: LoopTime) -> None:
    began_s = asyncio.get_running_loop().time()
    asked = [("a", shown_after(9, "first", "same")), ("b", shown_after(1, "same", "last")), ("c", after(3600))]
    found = [check.found async for check in all_within(asked, failed=failed)]
    assert found == ["first", "same", "last", "no answer within 15 s"]
    assert asyncio.get_running_loop().time() - began_s < 16


async def test_what_is_under_way_ends_with_whoever_reads(jumping: LoopTime) -> None:
    asked = [("a", after(1)), ("b", after(3600))]
    found = all_within(asked, failed=failed)
    assert await anext(found) == FINE
    await found.aclose()
    assert len(asyncio.all_tasks()) == 1


async def test_an_interrupted_doctor_leaves_no_check_that_was_never_begun(jumping: LoopTime) -> None:
    async def all_of_them() -> list[Check]:
        return [found async for found in all_within([("a", after(3600)), ("b", after(3600))], failed=failed)]

    asking = asyncio.create_task(all_of_them())
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    gc.collect()  # A coroutine that nobody has awaited is told when it is collected.
    assert len(asyncio.all_tasks()) == 1


class Silent:
    """An API server, or a broker, that takes requests and answers none."""

    host, user, blocked = "https://silent", "east", ""

    async def __aenter__(self) -> "Silent":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def aclose(self) -> None:
        await asyncio.sleep(5)

    def __getattr__(self, name: str) -> Any:
        async def never(*_: object, **__: object) -> None:
            await asyncio.sleep(3600)

        return never


@pytest.mark.parametrize("cluster", [None, "east"], ids=["manager", "agent"])
async def test_the_doctor_ends_within_half_a_minute_whatever_hangs(
    cluster: str | None, jumping: LoopTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object, **__: object) -> Silent:
        await asyncio.sleep(1)
        return Silent()

    monkeypatch.setattr(checks, "connected", silent)
    monkeypatch.setattr(broker_checks, "connect", silent)
    began_s = asyncio.get_running_loop().time()
    needs = checks.needs_of(cluster, "slicebus-system", journal_queues(), shards=3)
    made = checks.checks(needs, cluster=cluster, amqp_url="amqp://u@localhost/v", access=ClusterAccess())
    found = [check.subject async for check in made if not check.ok]
    assert {"leader", "topology", "rights", "crds", "permissions"} <= set(found)
    assert ("manager" if cluster else "dead letters") in found
    assert asyncio.get_running_loop().time() - began_s < 30
