"""The checks of `slicebus doctor` at the broker: queues and exchanges, the journal, and the rights of the user.

The rights of the role's own user are tried out, which changes nothing. With the management API of the broker, every
user is compared with its definitions.

That is tried on a connection of its own: a broker whose memory or disk is short takes nothing more from a connection
that has published, and the other checks go on.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec

from slicebus.ambient.clock import now
from slicebus.bus.access.address import CA_FILE
from slicebus.bus.contract import Bus
from slicebus.bus.factory import connect
from slicebus.bus.settings import BusSettings
from slicebus.cli.broker.addresses import manager_of
from slicebus.cli.broker.api import BrokerApi
from slicebus.cli.broker.compare import differences, viewers
from slicebus.cli.broker.connection import broker_settings
from slicebus.cli.broker.members import accepted_members, definitions_of
from slicebus.cli.doctor.check import Asked, Check, all_within, beside, within
from slicebus.cli.doctor.dead_letter_check import dead_letters_check
from slicebus.journal.streams import read_journals
from slicebus.kube.client import KubeClient
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError, SlicebusError
from slicebus.proto.messages import ClusterName, ClusterUid, Lane
from slicebus.proto.rights import AGENT_EXCHANGES, Action, Use, agent_uses, manager_uses, too_much
from slicebus.proto.topology import (
    JOURNAL,
    JOURNALS,
    Exchange,
    Queue,
    Topology,
    agent_queue,
    cluster_queue,
    manager_topology,
)

CONNECT_S = 5.0
_NOT_CHECKED = "what the manager needs of the broker is not checked, its own doctor does that"
_DEFINITIONS = "load what `slicebus broker definitions` prints"


class BrokerNeeds(msgspec.Struct, frozen=True):
    """What the manager needs of the broker."""

    journals: Sequence[Queue]
    """With the limits from the settings."""
    shards: int = 1


async def broker_checks(
    url: str, *, cluster: ClusterName | None, uid: ClusterUid | None, needs: BrokerNeeds
) -> AsyncIterator[Check]:
    """The checks of what the agent of a cluster finds at the broker; without a cluster, the manager. Without the
    cluster's UID nobody knows its queues. They run beside each other, each has a deadline, and the rest goes on."""
    if not url:
        yield Check("broker", "AMQP_URL is not set", "set it: amqps://USER:PASSWORD@HOST:5671/VHOST")
        return
    connections: list[Bus] = []

    async def connection(name: str) -> Bus:
        patience = BusSettings(connect_s=CONNECT_S)
        connections.append(await connect(url, name=name, settings=patience, access=settings.access))
        return connections[-1]

    try:
        settings = broker_settings(url)
        bus, publishing = await connection("slicebus doctor"), await connection("slicebus doctor: rights")
        yield Check("broker", f"{settings.shown}, as user {bus.user}")
        async with beside() as begin:
            tried = _rights(publishing, cluster, 1 if cluster else needs.shards)
            rights = begin(within("rights", tried, failed=_unclear, hopeless=lambda: _blocked(publishing)))
            asked = _of_agent(bus, cluster, uid) if cluster else _of_manager(bus, needs)
            others = begin(_collected(all_within(asked, failed=_unclear)))
            if not cluster and (told := await begin(_of_viewer(bus, publishing, needs.shards))):
                yield told[0]
                return
            for check in [*await others, *await rights]:
                yield check
    except ConfigurationError as error:
        yield Check("broker", str(error), "change that setting: the role does not start with it")
    except ForbiddenError as error:
        advice = "see that the broker has the vhost, the user and the password of the address"
        advice += f"; slicebus fleet join {cluster} --new-password gives another" if cluster else ""
        yield Check("broker", f"{settings.shown}: {error}", advice)
    except SlicebusError as error:
        advice = "check the address with its scheme and port, the user, and the network from this machine"
        yield Check("broker", f"{settings.shown}: {error}", advice)
    finally:
        await asyncio.gather(*(each.aclose() for each in connections))


async def _collected(checks: AsyncIterator[Check]) -> list[Check]:
    return [check async for check in checks]


async def _of_viewer(bus: Bus, publishing: Bus, shards: int) -> list[Check]:
    """What to say of a user that may send nothing of what a manager sends, and read the journal: it is somebody's who
    looks. Nothing where that is not so, or cannot be found out in time."""
    sent = [use for use in manager_uses(shards) if use.action is Action.WRITE]
    try:
        async with asyncio.timeout(CONNECT_S):
            if await publishing.refused(sent) != sent:
                return []
            async with aclosing(read_journals(bus, now(), follow=False)) as records:
                await anext(records, None)
    except (SlicebusError, TimeoutError):
        return []
    return [Check("rights", f"user {bus.user} reads the journal and sends nothing, as a viewer: {_NOT_CHECKED}")]


def _of_manager(bus: Bus, needs: BrokerNeeds) -> Asked:
    yield "journal", _journals(bus, needs.journals)
    yield "topology", _manager_topology(bus, needs.shards)
    yield "dead letters", _dead_letters(bus)


def _of_agent(bus: Bus, cluster: ClusterName, uid: ClusterUid | None) -> Asked:
    yield "manager", _manager(bus, cluster)
    yield "topology", _agent_topology(bus, cluster, uid)


def _unclear(error: SlicebusError) -> Check:
    return Check("topology", str(error), _DEFINITIONS)


def _blocked(bus: Bus) -> Check | None:
    """What there is to do where the broker takes nothing from this connection any more."""
    if not bus.blocked:
        return None
    advice = "give it memory or disk, or read what fills it: rabbitmqctl list_queues name messages message_bytes"
    return Check("broker", f"it takes nothing from publishers: {bus.blocked}", advice)


async def _journals(bus: Bus, journals: Sequence[Queue]) -> list[Check]:
    return [_journal(journal, await bus.check(Topology((), (journal,), ()))) for journal in journals]


async def _manager_topology(bus: Bus, shards: int) -> list[Check]:
    topology = manager_topology(shards)
    queues = tuple(queue for queue in topology.queues if queue.name not in JOURNALS)
    problems = await bus.check(Topology(topology.exchanges, queues, ()))
    advice = "start the manager, which declares what is missing; delete a queue that differs once it is empty"
    return _topology(problems, len(queues), advice)


async def _dead_letters(bus: Bus) -> list[Check]:
    """What the manager may not read, or has not made yet, the checks of the rights and of the topology say."""
    try:
        return [await dead_letters_check(bus)]
    except (ForbiddenError, NotFoundError):
        return []


async def _manager(bus: Bus, cluster: ClusterName) -> list[Check]:
    """Whether a manager reads what the cluster sends."""
    try:
        readers = (await bus.depth(cluster_queue(cluster, Lane.CONTROL))).consumers
    except NotFoundError:
        readers = 0
    if readers:
        return [Check("manager", f"one reads what {cluster} sends")]
    advice = f"run slicebus doctor with the manager; where one works, accept the cluster: slicebus fleet join {cluster}"
    return [Check("manager", f"nobody reads what {cluster} sends", advice)]


async def _agent_topology(bus: Bus, cluster: ClusterName, uid: ClusterUid | None) -> list[Check]:
    checks = []
    if cluster != bus.user:
        shown = f"the agent of {cluster} logs in as {bus.user}: its WorkerCluster needs brokerUser: {bus.user}"
        checks.append(Check("broker user", shown))
    problems = list(await bus.check(Topology(tuple(map(Exchange, AGENT_EXCHANGES)), (), ())))
    queues = [agent_queue(cluster, lane, uid) for lane in Lane] if uid else []
    for queue in queues:
        try:
            await bus.depth(queue)
        except NotFoundError:
            problems.append(f"queue {queue} is missing")
    advice = f"start the manager, and accept the cluster there: slicebus fleet join {cluster}"
    return [*checks, *_topology(problems, len(queues), advice)]


async def definitions_check(client: KubeClient, api_url: str, amqp_url: str, shards: int) -> list[Check]:
    """Whether the broker has the users, rights and bounds of every accepted WorkerCluster, and no others."""
    manager, vhost = manager_of(amqp_url)
    subject = "definitions"
    try:
        members = await accepted_members(client)
        async with BrokerApi.connect(api_url, vhost, ca_file=os.environ.get(CA_FILE)) as api:
            exported = await api.definitions()
        others = {manager, *(member.user for member in members)}
        readers = [viewer for viewer in viewers(exported, vhost) if viewer.user not in others]
        definitions = definitions_of(members, manager, shards, readers)
    except SlicebusError as error:
        return [Check(subject, str(error), "check SLICEBUS_BROKER_API: an administrator of the broker")]
    problems = differences(definitions, vhost, exported)
    if problems:
        return [
            Check(subject, "; ".join(problems), f"{_DEFINITIONS}; slicebus fleet join and revoke do it for a cluster")
        ]
    count = len(definitions.users)
    return [Check(subject, f"the broker has the rights and bounds of {count} users, and nobody else has any")]


def _topology(problems: Sequence[str], count: int, advice: str) -> list[Check]:
    if not problems:
        return [Check("topology", f"{count} queues are there as they should be")]
    return [Check("topology", problem, advice) for problem in problems]


async def _rights(bus: Bus, cluster: ClusterName | None, shards: int) -> list[Check]:
    """Whether the user may do what it needs, and no more."""
    needed = agent_uses(cluster) if cluster else manager_uses(shards)
    refused, beyond = await bus.refused(needed), too_much(cluster)
    kept_out = await bus.refused(beyond)
    if refused is None or kept_out is None:
        return []
    checks = []
    if refused:
        checks.append(Check("rights", f"too narrow, user {bus.user} may not: {_names(refused)}", _DEFINITIONS))
    if allowed := [use for use in beyond if use not in kept_out]:
        checks.append(Check("rights", f"too broad, user {bus.user} may: {_names(allowed)}", _DEFINITIONS))
    return checks or [Check("rights", f"user {bus.user} may do what it needs, and nothing else that was tried")]


def _names(uses: Sequence[Use]) -> str:
    return ", ".join(map(str, uses))


def _journal(wanted: Queue, problems: Sequence[str]) -> Check:
    """The check of the journal's limits. Limits other than those of the settings are shown, but are no fault.

    A stream keeps the limits that it was created with, and a policy of the broker, which nothing here can read,
    overrides them.
    """
    limits = f"{wanted.arguments['x-max-age']} or {wanted.arguments['x-max-length-bytes']} bytes"
    subject = "journal" if wanted.name == JOURNAL else "agent journal"
    if not problems:
        return Check(subject, f"keeps {limits}, unless a policy says otherwise")
    if any("is missing" in problem for problem in problems):
        return Check(subject, "; ".join(problems), "start the manager, which declares what is missing")
    differences = "; ".join(problems)
    return Check(
        subject, f"was made with other limits than {limits}, which only a policy can change now: {differences}"
    )
