"""The terms for agents: the flavors by which they report room, the namespaces of jobs, and the fence they keep."""

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from slicebus.decisions.commands import Command, Publish
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import Flavor, Heard, Heartbeat, Hello, Manifest, Terms
from slicebus.slices.api.fingerprints import content_hash


def terms_of(
    flavors: Iterable[Manifest], *, fence_s: float | None = None, namespaces: Iterable[str] | None = None
) -> Terms:
    """The terms for these ResourceFlavors, and jobs from these namespaces. Their order does not change the version."""
    ordered = [
        Flavor(
            name=flavor["metadata"]["name"],
            node_labels=flavor.get("spec", {}).get("nodeLabels", {}),
            taints=flavor.get("spec", {}).get("nodeTaints", []),
            tolerations=flavor.get("spec", {}).get("tolerations", []),
        )
        for flavor in sorted(flavors, key=lambda flavor: str(flavor["metadata"]["name"]))
    ]
    sorted_namespaces = sorted(set(namespaces)) if namespaces is not None else None
    version = content_hash([ordered, fence_s, *([sorted_namespaces] if sorted_namespaces is not None else [])])
    return Terms(
        version=version,
        flavors=ordered,
        fence_s=UNSET if fence_s is None else fence_s,
        namespaces=UNSET if sorted_namespaces is None else sorted_namespaces,
    )


def answer(
    message: Hello | Heartbeat,
    envelope: Envelope,
    flavors: Iterable[Manifest],
    *,
    fence_s: float | None = None,
    namespaces: Iterable[str] | None = None,
    is_back: bool = True,
) -> list[Command]:
    """Publish the terms where the agent may have others. A lost message is repeated after the next heartbeat.

    With a fence every heartbeat is answered. The answer keeps the fence open only when the cluster `is_back`: otherwise
    it may have copies left of jobs that went elsewhere.
    """
    terms = terms_of(flavors, fence_s=fence_s, namespaces=namespaces)
    if isinstance(message, Heartbeat) and message.terms == terms.version and fence_s is None:
        return []
    if isinstance(message, Heartbeat) and fence_s is not None and is_back:
        terms = msgspec.structs.replace(terms, heard=Heard(epoch=envelope.epoch, said_s=message.said_s))
    return [Publish(cluster=envelope.cluster, message=terms)]
