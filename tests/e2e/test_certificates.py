"""Roles that log in with certificates, which are replaced amid resizes: nobody starts again, and nothing is lost."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest

from slicebus.cli.demo.world import World
from support.controlplane import ControlPlane
from support.fleet import Fleet, Jobs, nothing_is_left, queues_of
from support.rabbitmq import RabbitBroker
from support.scenario import set_quota
from support.waiting import eventually

pytestmark = [pytest.mark.rabbitmq, pytest.mark.controlplane]

NAMES = ["one", "two", "three"]
RESIZES = 30


class Secrets:
    """A Secret for each role, mounted as a folder."""

    def __init__(self, broker: RabbitBroker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder

    def issue(self, user: str) -> dict[str, str]:
        """A certificate in place of the one before; the settings that name it."""
        issued = self._broker.authority.issue_cert(f"{user}.example", common_name=user)
        files = {
            "ca": self._broker.authority.cert_pem.bytes(),
            "cert": issued.private_key_and_cert_chain_pem.bytes(),
        }
        for name, content in files.items():
            path = self._folder / f"{user}.{name}"
            path.with_suffix(".new").write_bytes(content)
            os.replace(path.with_suffix(".new"), path)
        return {f"SLICEBUS_AMQP_{name.upper()}_FILE": str(self._folder / f"{user}.{name}") for name in files}


@pytest.fixture
def secrets(rabbitmq: RabbitBroker, tmp_path: Path) -> Secrets:
    return Secrets(rabbitmq, tmp_path)


@pytest.fixture
async def fleet(
    clusters: World, control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path, secrets: Secrets
) -> AsyncIterator[Fleet]:
    """A manager and two agents without passwords."""
    made = Fleet(tmp_path)
    made.add_all(control_plane, lambda _: rabbitmq.tls_url(vhost), secrets.issue)
    async with made.kept():
        await made.ready()
        yield made


async def test_certificates_are_replaced_amid_resizes(
    fleet: Fleet, clusters: World, rabbitmq: RabbitBroker, vhost: str, secrets: Secrets
) -> None:
    """Over 20 s: the roles look at their files every 5 s, and one after the other gets new ones."""
    await set_quota(clusters, 20)
    jobs = Jobs(clusters, NAMES)
    await jobs.submit()

    async def renewed(name: str) -> bool:
        return any(line["event"] == "bus.renewed" for line in fleet.roles[name].log())

    replaced = iter(fleet.roles)
    for number in range(RESIZES):
        await jobs.resize(NAMES[number % len(NAMES)], 1 + number % 5)
        if number % (RESIZES // len(fleet.roles)) == 0:
            secrets.issue(next(replaced))
        await asyncio.sleep(0.2)
    for name in fleet.roles:
        await eventually(lambda name=name: renewed(name), f"{name} uses its new certificate")
    await jobs.agreed()
    for name, role in fleet.roles.items():
        events = [line["event"] for line in role.log()]
        assert events.count("lease.acquired") == 1, f"{name} did not start again"
        assert not {"bus.lost", "delivery.stale", "process.failed"} & {*events}, f"{name} was not cut off"
    fleet.expect_no_tracebacks()
    doctor = await asyncio.to_thread(fleet.roles["east"].doctor)
    assert f"amqps://localhost:{rabbitmq.tls_port}/{quote(vhost)}, as user east" in doctor.stdout, doctor.stdout
    await nothing_is_left(rabbitmq.url(vhost, "manager"), await queues_of(clusters))
