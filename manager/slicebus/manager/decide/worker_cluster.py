"""The worker clusters: who they are, whether they are there, and what they last said of themselves."""

from collections.abc import Mapping
from typing import Self

import msgspec
from msgspec import UNSET

from slicebus.decisions.commands import Command, Emit, Patch
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.decide import identity
from slicebus.manager.decide.delete_breaker import Hold
from slicebus.manager.decide.intake import Sender
from slicebus.manager.decide.manifests import merge_difference
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import DeadReason, ProtocolError
from slicebus.proto.messages import ClusterUid, Heartbeat, Hello, Manifest
from slicebus.slices.conditions import Finding, has_finding, with_findings
from slicebus.slices.fleet import Cluster, describe_room
from slicebus.slices.quantities import amounts
from slicebus.slices.quota import FlavorResource
from slicebus.slices.workload import FlavorName

CONNECTED = "Connected"
DELETES_HELD = "DeletesHeld"
"""True while too many jobs of the cluster would be deleted at once."""
GIVEN_UP = "GivenUp"
"""True while the jobs of a lost cluster go elsewhere, and until it has nothing left of them."""
_UNLIMITED = "Unlimited"
"""Of `spec.capacity`, and of a flavor in `spec.flavorCapacity`: nodes come as they are needed."""


class WorkerCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A WorkerCluster object (slicebus.dev/v1alpha1) as the manager uses it."""

    name: str
    accepted: bool
    cordoned: bool
    weight: int
    user: str
    epoch: int
    uid: ClusterUid | None
    connected: bool
    draining: bool = False
    given_up: bool = False
    fence_s: float | None = None
    """Its agent lets no pod start after so long without being heard; None where it keeps no fence."""
    priority: int = 0
    labels: dict[str, str] = {}
    capacity: dict[FlavorName, dict[str, int]] | None = None
    others: dict[FlavorName, dict[str, int]] = {}
    unlimited: frozenset[FlavorName] = frozenset()

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> Self:
        """The cluster of an object that its schema has validated. Raises ValueError for what is not a quantity."""
        name, spec, status = manifest["metadata"]["name"], manifest.get("spec", {}), manifest.get("status", {})
        return cls(
            name=name,
            accepted=spec.get("accepted", False),
            cordoned=spec.get("cordoned", False),
            weight=spec.get("weight", 1),
            user=spec.get("brokerUser") or name,
            epoch=status.get("epoch", 0),
            uid=identity.pinned(manifest),
            connected=_is(manifest, CONNECTED),
            draining=spec.get("drain", False),
            given_up=_is(manifest, GIVEN_UP),
            fence_s=status.get("fenceSeconds"),
            priority=spec.get("priority", 0),
            labels=(manifest["metadata"].get("labels") or {}) | spec.get("labels", {}),
            capacity=None if spec.get("capacity") == _UNLIMITED else _reported(status),
            others=_others(status),
            unlimited=frozenset(
                FlavorName(flavor) for flavor, said in spec.get("flavorCapacity", {}).items() if said == _UNLIMITED
            ),
        )

    def without_room(self) -> Self:
        """Everything but what is there and what is used of it."""
        return msgspec.structs.replace(self, capacity=None, others={})

    def has_more_room_than(self, before: Self) -> bool:
        """Whether something fits that did not fit before."""
        if self.capacity is None or before.capacity is None:
            return self.capacity is None and before.capacity is not None
        now, then = self.place, before.place
        keys = [(flavor, resource) for flavor, found in self.capacity.items() for resource in found]
        return any((now.limit(key) or 0) > (then.limit(key) or 0) for key in keys)

    @property
    def place(self) -> Cluster:
        """As a placement sees it."""
        return Cluster(
            name=self.name,
            accepted=self.accepted,
            cordoned=self.cordoned,
            connected=self.connected,
            draining=self.draining,
            given_up=self.given_up,
            weight=self.weight,
            priority=self.priority,
            labels=self.labels,
            capacity=self.capacity,
            others=self.others,
            unlimited=self.unlimited,
        )


def _reported(status: Manifest) -> dict[FlavorName, dict[str, int]] | None:
    """The capacity by flavor; None where the agent does not say what of the use is ours: it is an older one."""
    if "ours" not in status:
        return None
    return {FlavorName(flavor): amounts(said) for flavor, said in status.get("capacity", {}).items()}


def _others(status: Manifest) -> dict[FlavorName, dict[str, int]]:
    """What is used and not accounted for by what our jobs were granted."""
    used, ours = ({f: amounts(said) for f, said in status.get(name, {}).items()} for name in ("used", "ours"))
    return {
        FlavorName(flavor): {name: max(0, value - ours.get(flavor, {}).get(name, 0)) for name, value in said.items()}
        for flavor, said in used.items()
    }


def sender(cluster: Manifest) -> Sender:
    """Who may speak for a cluster."""
    spec, status = cluster.get("spec", {}), cluster.get("status", {})
    return Sender(
        accepted=spec.get("accepted", False),
        user=spec.get("brokerUser") or cluster["metadata"]["name"],
        epoch=status.get("epoch", 0),
        uid=identity.pinned(cluster),
    )


def hello(cluster: Manifest, message: Hello, envelope: Envelope, *, now: str) -> list[Command]:
    """The agent's versions and its epoch, which fences every lower one from here on."""
    told = {
        "epoch": envelope.epoch,
        "agentVersion": message.agent_version,
        "kubernetesVersion": message.kubernetes_version,
        "schemaVersion": message.schema_version,
    }
    return _report(cluster, told, envelope, now=now)


def heartbeat(
    cluster: Manifest,
    message: Heartbeat,
    envelope: Envelope,
    *,
    now: str,
    fence_s: float | None = None,
    granted: Mapping[FlavorResource, int] = {},
) -> list[Command]:
    """What the agent last said of its cluster. Its epoch counts too: the hello may have come before the acceptance.

    `fence_s` is what it is about to be told. Where it keeps a fence already the longer one is written down, because it
    may go by either. `granted` is what our jobs have there. Raises ProtocolError for what is not a quantity.
    """
    told = {
        "epoch": envelope.epoch,
        "capacity": message.capacity,
        "used": message.used,
        "ours": None if message.ours is UNSET else message.ours,
        "jobs": message.jobs,
        "lagSeconds": round(message.lag_s),
        "outOfSync": message.out_of_sync,
        "fenceSeconds": _fence_of(message, fence_s),
    }
    told["room"] = _room(cluster, told, granted)
    return _report(cluster, told, envelope, now=now)


def lost(cluster: Manifest, *, silent_s: float, now: str) -> list[Command]:
    """A cluster that has not been heard of for too long is not connected; its jobs run on."""
    message = f"No heartbeat for {silent_s:.0f} seconds"
    if not _is(cluster, CONNECTED):
        return []
    finding = Finding(CONNECTED, False, "HeartbeatLost", message)
    body = {"status": {"conditions": with_findings(cluster, finding, now=now)}}
    return [
        Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status"),
        Emit(regarding=cluster, reason="HeartbeatLost", note=message, warning=True),
    ]


def is_held(cluster: Manifest) -> bool:
    """Whether deletes to the cluster are held, as it is written on it."""
    return _is(cluster, DELETES_HELD)


def deletes_held(cluster: Manifest, hold: Hold | None, *, now: str) -> list[Command]:
    """How many deletes are held, and under which id they are released; nothing when that is written there already."""
    name, was_held = cluster["metadata"]["name"], is_held(cluster)
    if hold is None and not was_held:
        return []
    shown = {"id": hold.id, "jobs": len(hold.jobs)} if hold else None
    if hold:
        note = f"{len(hold.jobs)} jobs would be deleted at once: look, then `slicebus fleet release {name}`"
        finding = Finding(DELETES_HELD, True, "TooManyDeletes", note)
    else:
        note = "No deletes are held any more"
        finding = Finding(DELETES_HELD, False, "NothingHeld", note)
    if was_held and hold and has_finding(cluster, finding) and cluster["status"].get("heldDeletes") == shown:
        return []
    body = {"status": {"heldDeletes": shown, "conditions": with_findings(cluster, finding, now=now)}}
    write = Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status")
    if was_held and hold:
        return [write]
    reason = DELETES_HELD if hold else "DeletesReleased"
    return [write, Emit(regarding=cluster, reason=reason, note=note, warning=hold is not None)]


def _room(cluster: Manifest, told: Manifest, granted: Mapping[FlavorResource, int]) -> str:
    """What a job may still have there, by what its agent has just said."""
    status = {name: value for name, value in told.items() if value is not None}
    try:
        return describe_room(WorkerCluster.from_manifest(cluster | {"status": status}).place, granted)
    except ValueError as error:
        raise ProtocolError(DeadReason.REFUSED, str(error)) from error


def _fence_of(message: Heartbeat, told_s: float | None) -> float | None:
    return max(message.fence_s, told_s or 0) if isinstance(message.fence_s, float) and message.fence_s else None


def _is(cluster: Manifest, condition: str) -> bool:
    conditions = cluster.get("status", {}).get("conditions", ())
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


def _report(cluster: Manifest, told: Manifest, envelope: Envelope, *, now: str) -> list[Command]:
    connected = Finding(CONNECTED, True, "Connected", "The agent speaks")
    told = told | identity.told(envelope)
    findings, over = identity.settled(cluster, envelope, now=now)
    known = {name: value for name, value in cluster.get("status", {}).items() if name in told}
    # The difference, because a merge patch of what was told would keep a resource that is no longer there.
    status = merge_difference(known, told) | {
        "lastHeartbeatTime": now,
        "conditions": with_findings(cluster, connected, *findings, now=now),
        **over,
    }
    commands: list[Command] = [
        Patch(resource=WORKERCLUSTERS, target=cluster, body={"status": status}, subresource="status")
    ]
    if not has_finding(cluster, connected):
        note = f"The agent speaks, epoch {envelope.epoch}"
        commands.append(Emit(regarding=cluster, reason="Connected", note=note))
    return commands
