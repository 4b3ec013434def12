"""What agents are told to go by: the flavors that they report room by."""

from collections.abc import Iterable

from slicebus.process.commands import Command, Publish
from slicebus.proto.envelope import Envelope
from slicebus.proto.messages import Flavor, Heartbeat, Hello, Manifest, Terms
from slicebus.slices.fingerprints import content_hash

_KNOWN_SINCE = (1, 1)
"""The schema version of the first agents that know the type."""


def terms_of(flavors: Iterable[Manifest]) -> Terms:
    """The terms for ResourceFlavors: the same version for the same ones, in any order."""
    told = [
        Flavor(
            name=flavor["metadata"]["name"],
            node_labels=flavor.get("spec", {}).get("nodeLabels", {}),
            taints=flavor.get("spec", {}).get("nodeTaints", []),
            tolerations=flavor.get("spec", {}).get("tolerations", []),
        )
        for flavor in sorted(flavors, key=lambda flavor: str(flavor["metadata"]["name"]))
    ]
    return Terms(version=content_hash(told), flavors=told)


def answer(message: Hello | Heartbeat, envelope: Envelope, flavors: Iterable[Manifest]) -> list[Command]:
    """The terms, where the agent may go by others: a message that is lost is said again after the next heartbeat."""
    major, _, minor = envelope.schema_version.partition(".")
    if (int(major), int(minor)) < _KNOWN_SINCE:
        return []
    terms = terms_of(flavors)
    if isinstance(message, Heartbeat) and message.terms == terms.version:
        return []
    return [Publish(cluster=envelope.cluster, message=terms)]
