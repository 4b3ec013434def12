"""What a command says first where no manager works: by the Leases, whatever the clocks say."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
import typer

from slicebus.ambient.clock import ambient
from slicebus.cli.leaders import Leaders, leaders
from slicebus.kube.times import micro_time_text, time_text
from slicebus.proto.errors import ForbiddenError, NotFoundError
from slicebus.proto.messages import Manifest
from slicebus.runtime.leadership import NOT_READY_ANNOTATION
from slicebus.slices.api.api_names import SHARDS_ANNOTATION
from unit.kube.loop_time import START_S, LoopTime

BEGAN = datetime(2026, 5, 1, 10, 0, tzinfo=UTC)


@pytest.fixture
def clocks(jumping: LoopTime) -> Iterator[None]:
    """The reader's clock, which goes on with the loop's time."""
    with ambient(clock=lambda: BEGAN + timedelta(seconds=jumping.now - START_S), random=Random(1)):
        yield


def lease(holder: str = "manager-1", *, age_s: float = 1.0, notes: Mapping[str, str] = {}) -> Manifest:
    spec = {"holderIdentity": holder, "renewTime": micro_time_text(BEGAN - timedelta(seconds=age_s))}
    return {
        "metadata": {"annotations": dict(notes)},
        "spec": spec | {"leaseDurationSeconds": 12, "leaseTransitions": 7},
    }


class Client:
    """A cluster whose Leases are looked at several times: the last look goes on."""

    def __init__(self, **leases: Sequence[Manifest] | Exception) -> None:
        self._leases: dict[str, Any] = {name.replace("_", "-"): looks for name, looks in leases.items()}
        self.looks = 0

    async def get(self, _: object, name: str, namespace: str) -> Manifest:
        assert namespace == "there"
        looks = self._leases.get(name, NotFoundError(name))
        if isinstance(looks, Exception):
            raise looks
        self.looks += 1
        found: Manifest = looks[min(self.looks, len(looks)) - 1]
        return found


def since(age_s: float) -> str:
    return time_text(BEGAN - timedelta(seconds=age_s))


WAITS = {NOT_READY_ANNOTATION: "there is no connection to the broker"}
TOLD: dict[str, tuple[Client, Leaders]] = {
    "one works": (Client(slicebus_manager=[lease()]), Leaders(holders=("manager-1",))),
    "nobody ever led": (
        Client(),
        Leaders(
            ("no manager has ever led: there is no Lease there/slicebus-manager (--manager-namespace)",),
            fleet_is_known=False,
        ),
    ),
    "both were stopped": (
        Client(slicebus_manager=[lease("")]),
        Leaders((f"no manager leads since {since(1)}",), fleet_is_known=False, holders=("",)),
    ),
    "its leader does not work": (
        Client(slicebus_manager=[lease(notes=WAITS)]),
        Leaders(
            ("the manager does not work: manager-1 leads and does not work: there is no connection to the broker",),
            fleet_is_known=False,
            holders=("manager-1",),
        ),
    ),
    "the reader's clock is wrong": (
        Client(slicebus_manager=[lease(age_s=300), lease(age_s=300), lease(age_s=298)]),
        Leaders(holders=("manager-1",)),
    ),
    "one shard of two is led": (
        Client(slicebus_manager=[lease(notes={SHARDS_ANNOTATION: "2"})], slicebus_manager_1=[lease("")]),
        Leaders((f"no manager leads shard 1 since {since(1)}",), holders=("manager-1", "")),
    ),
    "a tenant may not know": (
        Client(slicebus_manager=ForbiddenError("no rights")),
        Leaders(unknown="no rights"),
    ),
}


@pytest.mark.parametrize(("client", "told"), TOLD.values(), ids=TOLD.keys())
async def test_what_is_said_first(client: Any, told: Leaders, clocks: None) -> None:
    assert await leaders(client, "there") == told


async def test_a_lease_that_looks_expired_is_watched_before_anybody_says_so(clocks: None) -> None:
    client: Any = Client(slicebus_manager=[lease(age_s=60)])
    [problem] = (await leaders(client, "there")).problems
    assert problem.startswith(f"no manager leads since {since(60)}: manager-1 has not renewed its Lease for 6")
    assert client.looks > 10, "for half of its 12 s"


def test_it_is_said_and_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    found = Leaders(("no manager leads",), unknown="no rights")
    found.say()
    assert capsys.readouterr().err == "✗ no manager leads\nwhether a manager leads is unknown: no rights\n"
    with pytest.raises(typer.Exit) as ended:
        found.exit()
    assert ended.value.exit_code == 1
    Leaders(unknown="no rights").exit()
