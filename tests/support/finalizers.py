"""A finalizer of the tests' own, beside those that an object has: whoever put it there decides when the object goes."""

from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import Resource
from slicebus.proto.errors import ConflictError, NotFoundError
from support.scenario import NAMESPACE
from support.waiting import eventually

FINALIZER = "example.com/holds-it"


async def hold(client: KubeClient, resource: Resource, name: str) -> None:
    """Keep an object from going."""
    await _write(client, resource, name, is_held=True)


async def let_go(client: KubeClient, resource: Resource, name: str) -> None:
    """Let an object go that is still there. Raises NotFoundError."""
    await _write(client, resource, name, is_held=False)


async def _write(client: KubeClient, resource: Resource, name: str, *, is_held: bool) -> None:
    found = await client.get(resource, name, NAMESPACE)

    async def is_written() -> bool:
        """A controller may take its own finalizer off meanwhile: the server takes none for new in what is going."""
        nonlocal found
        metadata = found["metadata"]
        others = [finalizer for finalizer in metadata.get("finalizers", ()) if finalizer != FINALIZER]
        finalizers = [*others, FINALIZER] if is_held else others
        body = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
        try:
            await client.patch(resource, name, NAMESPACE, MergePatch(body))
        except ConflictError:
            found = await client.get(resource, name, NAMESPACE)
            return False
        except NotFoundError:
            return True  # It went meanwhile.
        return True

    await eventually(is_written, f"{resource.kind} {name} {'has' if is_held else 'lacks'} {FINALIZER}")
