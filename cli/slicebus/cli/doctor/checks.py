"""The checks of `slicebus doctor`: whether a role has what it needs, and what to do where it does not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

import slicebus.agent.permissions
import slicebus.manager.permissions
from slicebus.agent.act.identity import cluster_uid
from slicebus.agent.act.policy import read_policy
from slicebus.agent.permissions import permissions_to_create_as
from slicebus.agent.state.policy import PolicyFile
from slicebus.cli.cluster.access import connected
from slicebus.cli.cluster.options import ClusterAccess
from slicebus.cli.doctor.broker_checks import CONNECT_S, BrokerNeeds, broker_checks, definitions_check
from slicebus.cli.doctor.check import Asked, Check, Checking, all_within, beside, within
from slicebus.cli.doctor.field_checks import fields_check
from slicebus.cli.leaders import look
from slicebus.cli.place import Place, place_of
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import ADMISSIONCHECKS, JOB_RESOURCES, WORKERCLUSTERS, Resource
from slicebus.kube.schemas import misfit
from slicebus.manager.decide.kueue import kueue_checks
from slicebus.manager.state.requirements import is_our_check
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError, SlicebusError
from slicebus.proto.messages import ClusterName, ClusterUid, Manifest
from slicebus.proto.topology import Queue
from slicebus.runtime.permissions import Permission, missing
from slicebus.slices.api import api_names
from slicebus.slices.jobs import LEFT_OUT
from slicebus.slices.schedulers import Profile, every_version, profiles_of

_API_SERVER = "api server"
_MOST_NAMED = 3
"""The most namespaces that are named, of those that a cluster lacks."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What a role needs."""

    journals: tuple[Queue, ...]
    """The stream with the limits from the settings."""
    crds: Sequence[Resource]
    permissions: Sequence[Permission]
    chart: str
    """The name of its chart, and of its Lease."""
    namespace: str
    beside_kueue: bool = False
    schedulers: tuple[str, ...] = ()
    """The scheduler backends that an agent's profiles enable."""
    shards: int = 1
    """The number of shards of the manager."""

    @property
    def at_broker(self) -> BrokerNeeds:
        """What it needs of the broker."""
        return BrokerNeeds(self.journals, self.shards)


def needs_of(
    cluster: str | None,
    namespace: str,
    journals: tuple[Queue, ...],
    admission: AdmissionModeName = AdmissionModeName.BUILTIN,
    namespaces: tuple[str, ...] = (),
    create_as: str | None = None,
    schedulers: tuple[str, ...] = (),
    shards: int = 1,
    *,
    counts_devices: bool = False,
) -> Needs:
    """What the agent of a cluster needs, in these namespaces or in all, to create jobs as itself or as a service
    account, with these scheduler backends; without a cluster, the manager with so many shards,
    which counts devices or does not."""
    if cluster:
        permissions = slicebus.agent.permissions.permissions(namespaces, schedulers)
        if create_as:
            permissions += permissions_to_create_as(create_as, own_namespace=namespace, namespaces=namespaces)
        return Needs(
            journals=journals,
            crds=slicebus.agent.permissions.REQUIRED_CRDS,
            permissions=permissions,
            chart="slicebus-agent",
            namespace=namespace,
            schedulers=schedulers,
        )
    return Needs(
        journals=journals,
        crds=slicebus.manager.permissions.required_crds(admission),
        permissions=slicebus.manager.permissions.permissions(admission, shards=shards, counts_devices=counts_devices),
        chart="slicebus-manager",
        namespace=namespace,
        beside_kueue=admission is AdmissionModeName.KUEUE,
        shards=shards,
    )


async def checks(
    needs: Needs, *, cluster: str | None, amqp_url: str, access: ClusterAccess, broker_api: str | None = None
) -> AsyncIterator[Check]:
    """Run the checks beside each other, and show the leader first. Each has a deadline, and the rest goes on.
    `broker_api` is the address of the broker's management API."""
    name = ClusterName(cluster) if cluster else None
    try:
        client = await connected(access)
    except SlicebusError as error:
        yield _no_api_server(error)
        async for check in broker_checks(amqp_url, cluster=name, uid=None, needs=needs.at_broker):
            yield check
        return
    async with client, beside() as begin:
        looking = begin(within("leader", _leaders(client, needs), failed=_no_api_server))
        misplaced, uid = await asyncio.gather(_misplaced(client, cluster), _uid(client, name))
        if misplaced is not None:
            # What it lacks for that role says nothing.
            yield misplaced
            return
        broker = begin(_listed(broker_checks(amqp_url, cluster=name, uid=uid, needs=needs.at_broker)))
        asked: Asked = _on_cluster(client, needs, looking=None if name else looking)
        if name is None and broker_api:
            asked = [*asked, ("definitions", definitions_check(client, broker_api, amqp_url, needs.shards))]
        rest = begin(_listed(all_within(asked, failed=_no_api_server)))
        leaders = await looking
        is_served = leaders[0].subject != _API_SERVER
        for found in (looking, broker, rest) if is_served else (looking, broker):
            for check in await found:
                yield check


def _on_cluster(
    client: KubeClient, needs: Needs, *, looking: Awaitable[list[Check]] | None
) -> Iterator[tuple[str, Checking]]:
    """The checks of the role's cluster, each with its subject. `looking` finds who leads; None for an agent."""
    yield _API_SERVER, _version(client)
    yield "crds", _definitions(client, needs)
    yield "job kinds", _job_kinds(client)
    for name in needs.schedulers:
        yield "schedulers", _backend(client, name)
    yield "permissions", _permissions(client, needs)
    if looking is None:
        return
    yield "fleet", _fleet(client, looking)
    if needs.beside_kueue:
        yield "admission", _kueue(client)
    else:
        yield "fields", fields_check(client)


async def _listed(found: AsyncIterator[Check]) -> list[Check]:
    return [check async for check in found]


def _no_api_server(error: SlicebusError) -> Check:
    return Check(_API_SERVER, str(error), "check KUBECONFIG, or the service account of the pod, and the network")


async def _misplaced(client: KubeClient, cluster: str | None) -> Check | None:
    """Whether it is another one's cluster; None for its own, and where nobody can tell, which other checks report."""
    with suppress(SlicebusError, TimeoutError):
        async with asyncio.timeout(CONNECT_S):
            return place_finding(await place_of(client), cluster)
    return None


async def _version(client: KubeClient) -> list[Check]:
    return [Check(_API_SERVER, f"{client.host} serves Kubernetes {await client.version()}")]


async def _uid(client: KubeClient, cluster: ClusterName | None) -> ClusterUid | None:
    """The UID of the agent's cluster; None for the manager, and where it cannot be read, which another check
    reports."""
    if cluster is None:
        return None
    with suppress(SlicebusError, TimeoutError):
        async with asyncio.timeout(CONNECT_S):
            return await cluster_uid(client)
    return None


def place_finding(place: Place, cluster: str | None) -> Check | None:
    """The check of the agent of a cluster, or of the manager, that looks at another one's cluster; None for its own."""
    subject = "cluster"
    if cluster is None:
        if place.is_managers or place.worker is None:
            return None
        advice = "run it with the kubeconfig of the manager's cluster, or with --role agent and --cluster"
        return Check(subject, f"this is {place.shown}, not the manager's cluster", advice)
    if place.worker in ("", cluster) or (place.worker is None and not place.is_managers):
        return None
    found = "the manager's cluster" if place.worker is None else place.shown
    return Check(subject, f"this is {found}, not worker {cluster}", f"run it with the kubeconfig of {cluster}")


def manager_user_check(user: str) -> Check:
    """Whether an agent knows whose orders it takes."""
    if user:
        return Check("manager user", f"orders have to come from {user}")
    return Check("manager user", "SLICEBUS_MANAGER_USER is not set", "set it: the agent does not start without it")


def policy_check(path: str | None) -> tuple[Check, PolicyFile]:
    """Whether an agent can read the policy of its cluster, and the policy; the default where it cannot."""
    if path is None:
        return Check("policy", "the default"), PolicyFile()
    try:
        policy = read_policy(Path(path))
    except ConfigurationError as error:
        return Check("policy", str(error), "repair it: the agent does not start with it"), PolicyFile()
    creator = f"the service account {policy.create_as}" if policy.create_as else "the agent"
    return Check("policy", f"{path} is valid; jobs are created as {creator}"), policy


def schedulers_check(text: str) -> tuple[Check, tuple[str, ...]]:
    """Whether an agent can read the profiles of its scheduler backends, and their names; none where it cannot."""
    try:
        names = tuple(profile.name for profile in profiles_of(text))
    except ValueError as error:
        return Check("schedulers", str(error), "repair SLICEBUS_SCHEDULERS: the agent does not start with it"), ()
    return Check("schedulers", f"enabled: {', '.join(names)}"), names


async def _definitions(client: KubeClient, needs: Needs) -> list[Check]:
    absent = [resource for resource in needs.crds if not await client.serves(resource)]
    if not absent:
        return [Check("crds", f"{len(needs.crds)} kinds are served")]
    names = ", ".join(f"{resource.plural}.{resource.group}/{resource.version}" for resource in absent)
    advice = f"install the chart {needs.chart} with crds.slicebus=true and crds.kueue=true"
    if needs.beside_kueue:
        advice = f"install Kueue 0.19 or later, and the chart {needs.chart} with crds.slicebus=true"
    return [Check("crds", f"missing: {names}", advice)]


async def _permissions(client: KubeClient, needs: Needs) -> list[Check]:
    refused = await missing(client, needs.permissions, namespace=needs.namespace)
    if not refused:
        return [Check("permissions", "everything that the role does is allowed")]
    advice = f"bind the ClusterRole of the chart {needs.chart} to the user who runs this"
    return [Check("permissions", f"not allowed: {', '.join(refused)}", advice)]


async def _job_kinds(client: KubeClient) -> list[Check]:
    """The check of the job kinds. A missing one is no fault: a cluster may do without it."""
    served = {kind: await client.serves(resource) for kind, resource in JOB_RESOURCES.items()}
    shown = f"the API server serves {', '.join(kind for kind in served if served[kind])}"
    left_out = [_served_by(JOB_RESOURCES[kind]) for kind in served if not served[kind]]
    if left_out:
        shown += f"; without {', '.join(left_out)} the jobs of those kinds are left alone"
    wrong = [*LEFT_OUT.values()]
    wrong += filter(None, [await misfit(client, JOB_RESOURCES[kind]) for kind in served if served[kind]])
    if wrong:
        advice = "repair or remove the package or the declaration of the kind; every other kind is run"
        return [Check("job kinds", f"{shown}; left out: {'; '.join(wrong)}", advice)]
    return [Check("job kinds", shown)]


async def _backend(client: KubeClient, name: str) -> list[Check]:
    """Whether the API server serves what a scheduler backend needs, in one of its versions."""
    needed_by_version = [(*profile.makes, *profile.reads) for profile in every_version(Profile(name))]
    absent = [[resource for resource in needed if not await client.serves(resource)] for needed in needed_by_version]
    if [] in absent:
        return [Check("schedulers", f"{name} can be used")]
    lacking = ", ".join(f"{resource.definition}/{resource.version}" for resource in absent[-1])
    advice = "install that scheduler, or take its profile out of the chart's schedulers: jobs that choose it wait"
    return [Check("schedulers", f"{name} lacks {lacking}", advice)]


def _served_by(resource: Resource) -> str:
    """What serves a resource: the definition of a custom kind, otherwise its group and version."""
    return resource.definition if resource.is_custom else f"{resource.plural} of {resource.api_version}"


async def _leaders(client: KubeClient, needs: Needs) -> list[Check]:
    return await asyncio.gather(*(_leader(client, needs, shard) for shard in range(needs.shards)))


async def _leader(client: KubeClient, needs: Needs, shard: int = 0) -> Check:
    """The leader of a shard, and whether it works, as its Lease says."""
    lease_name = slicebus.manager.permissions.lease_of(shard) if shard else needs.chart
    name, subject = f"{needs.namespace}/{lease_name}", f"leader {shard}" if needs.shards > 1 else "leader"
    try:
        leadership, _ = await look(client, needs.namespace, lease_name)
    except NotFoundError:
        advice = "start the role; where it runs in another namespace, say so with --namespace"
        if shard:
            advice = f"let as many processes run as there are shards, {needs.shards}"
        return Check(subject, f"nobody has ever led: there is no Lease {name}", advice)
    except ForbiddenError as error:
        return Check(subject, str(error), f"bind the Role of the chart {needs.chart} to the user who runs this")
    if leadership.is_at_work and leadership.problem:
        return Check(subject, leadership.problem, "repair that; the leader continues by itself")
    if not leadership.is_at_work:
        advice = "start the role, and look at its log and at /readyz of its pods"
        return Check(subject, f"{leadership.absence}, says the Lease {name}", advice)
    left_out = f"; it leaves out {leadership.left_out}" if leadership.left_out else ""
    shown = f"{leadership.holder} leads and works, epoch {leadership.epoch}{left_out}"
    if leadership.refused:
        advice = "give the role that right, or mend the policy or webhook: it tries again by itself"
        return Check(subject, f"{shown}; the API server refuses what it has to do for {leadership.refused}", advice)
    return Check(subject, shown)


async def _fleet(client: KubeClient, looking: Awaitable[list[Check]]) -> list[Check]:
    if not await client.serves(WORKERCLUSTERS):
        return []
    clusters = [WorkerCluster.from_manifest(manifest) for manifest in (await client.list(WORKERCLUSTERS)).items]
    if not clusters:
        return [Check("fleet", "no WorkerCluster", "let each worker cluster join: slicebus fleet join NAME")]
    leader_passes = (await asyncio.shield(looking))[0].ok
    return [_fleet_member(cluster, leader_passes=leader_passes) for cluster in clusters]


async def _kueue(client: KubeClient) -> list[Check]:
    """Whether Kueue has AdmissionChecks that slicebus answers."""
    if not await client.serves(ADMISSIONCHECKS):
        return []
    ours = [check for check in (await client.list(ADMISSIONCHECKS)).items if is_our_check(check)]
    if not ours:
        advice = "create one, and name it in the admissionChecksStrategy of your ClusterQueues: docs/kueue-mode.md"
        return [Check("admission", f"no AdmissionCheck has controllerName {api_names.CHECK_CONTROLLER}", advice)]
    return [_admission_check(check) for check in ours]


def _admission_check(check: Manifest) -> Check:
    subject = f"check {check['metadata']['name']}"
    conditions = check.get("status", {}).get("conditions", ())
    active = next((entry for entry in conditions if entry["type"] == kueue_checks.ACTIVE), None)
    if active is None:
        return Check(subject, "not reconciled yet", "start the manager with SLICEBUS_ADMISSION=kueue")
    if active["status"] != "True":
        return Check(
            subject, f"not active: {active['message']}", "repair that: until then its ClusterQueues admit nothing"
        )
    return Check(subject, "active")


def _fleet_member(cluster: WorkerCluster, *, leader_passes: bool) -> Check:
    """The state of a cluster. Its connection is known only while a manager works, and nothing holds that up."""
    subject = f"cluster {cluster.name}"
    if not cluster.accepted:
        advice = (
            f"let it join: slicebus fleet join {cluster.name}; where the broker has its user already, kubectl patch "
            f"""workercluster {cluster.name} --type merge -p '{{"spec":{{"accepted":true}}}}'"""
        )
        return Check(subject, "not accepted", advice)
    if not leader_passes:
        return Check(subject, "accepted; its connection is unknown until the check of the leader passes")
    if not cluster.connected:
        advice = f"run slicebus doctor where its agent runs; it has to log in as broker user {cluster.user}"
        return Check(subject, "not connected", advice)
    shown = f"connected, epoch {cluster.epoch}{', cordoned' if cluster.cordoned else ''}"
    if cluster.lacking:
        named = [f"{name} ({reason})" for name, reason in sorted(cluster.lacking.items())]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        shown += f"; takes no jobs of {', '.join(named[:_MOST_NAMED])}{more}"
    return Check(subject, shown)
