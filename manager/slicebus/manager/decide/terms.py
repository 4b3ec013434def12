"""What agents are told to go by: the flavors that they report room by, and the fence that they keep."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from slicebus.decisions.commands import Command, Publish
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import Flavor, Heard, Heartbeat, Hello, Manifest, Terms
from slicebus.slices.fingerprints import content_hash

_KNOWN_SINCE = (1, 1)
"""The schema version of the first agents that know the type."""


def terms_of(flavors: Iterable[Manifest], *, fence_s: float | None = None) -> Terms:
    """The terms for ResourceFlavors: the same version for the same ones, in any order."""
    ordered = [
        Flavor(
            name=flavor["metadata"]["name"],
            node_labels=flavor.get("spec", {}).get("nodeLabels", {}),
            taints=flavor.get("spec", {}).get("nodeTaints", []),
            tolerations=flavor.get("spec", {}).get("tolerations", []),
        )
        for flavor in sorted(flavors, key=lambda flavor: str(flavor["metadata"]["name"]))
    ]
    version = content_hash([ordered, fence_s])
    return Terms(version=version, flavors=ordered, fence_s=UNSET if fence_s is None else fence_s)


def answer(
    message: Hello | Heartbeat,
    envelope: Envelope,
    flavors: Iterable[Manifest],
    *,
    fence_s: float | None = None,
    is_back: bool = True,
) -> list[Command]:
    """The terms, where the agent may go by others: a message that is lost is said again after the next heartbeat.

    With a fence every heartbeat is answered, so that the fence stays open; unless the cluster is not `is_back`: it may
    have something left of jobs that went elsewhere.
    """
    major, _, minor = envelope.schema_version.partition(".")
    if (int(major), int(minor)) < _KNOWN_SINCE:
        return []
    terms = terms_of(flavors, fence_s=fence_s)
    if isinstance(message, Heartbeat) and message.terms == terms.version and fence_s is None:
        return []
    if isinstance(message, Heartbeat) and isinstance(message.said_s, float) and fence_s is not None and is_back:
        terms = msgspec.structs.replace(terms, heard=Heard(epoch=envelope.epoch, said_s=message.said_s))
    return [Publish(cluster=envelope.cluster, message=terms)]
