"""The identity of this cluster, whatever name its agent was given."""

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES
from slicebus.proto.errors import ForbiddenError
from slicebus.proto.messages import ClusterUid

KUBE_SYSTEM = "kube-system"
"""The API server creates this namespace and nobody deletes it: its UID is the closest to a cluster id in Kubernetes."""


async def cluster_uid(client: KubeClient) -> ClusterUid:
    """The UID of the namespace kube-system. Raises ForbiddenError with advice where the agent may not read it."""
    try:
        namespace = await client.get(NAMESPACES, KUBE_SYSTEM)
    except ForbiddenError as error:
        advice = f"let the agent get the namespace {KUBE_SYSTEM}, as the ClusterRole of its chart does"
        raise ForbiddenError(f"which cluster this is cannot be read: {error}; {advice}") from error
    return ClusterUid(namespace["metadata"]["uid"])
