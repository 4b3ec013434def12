"""Each check of `slicebus doctor` has a deadline, and the rest goes on."""

import asyncio

from slicebus.cli.doctor.check import Check, within
from slicebus.proto.errors import UnavailableError
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
