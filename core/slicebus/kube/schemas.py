"""Whether an API server serves a declared job kind as it is declared."""

from typing import Any

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import CRDS, Resource
from slicebus.proto.errors import ForbiddenError, NotFoundError
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.declared import DeclaredKind
from slicebus.slices.jobs.schema_paths import misfits

Manifest = dict[str, Any]
_NAMED = "x-kubernetes-group-version-kind"


async def misfit(client: KubeClient, resource: Resource) -> str:
    """Why the server's schema of a job kind does not have what its declaration says; empty where it does, where nobody
    has declared the kind, or where the schema cannot be read."""
    kind = KINDS.get(resource.kind)
    if not isinstance(kind, DeclaredKind):
        return ""
    try:
        found = await (_of_definition if resource.is_custom else _of_document)(client, resource)
    except (NotFoundError, ForbiddenError):
        return ""
    schema, components, has_status = found
    wrong = misfits(kind.declaration, schema, components) if schema else []
    wrong += [] if has_status else ["it has no subresource status"]
    return f"the declaration of {resource.kind} does not fit: {'; '.join(wrong)}" if wrong else ""


async def _of_definition(client: KubeClient, resource: Resource) -> tuple[Manifest, Manifest, bool]:
    """The schema in the CustomResourceDefinition, which may refer to nothing, and whether there is a status."""
    definition = await client.get(CRDS, resource.definition)
    for version in definition["spec"]["versions"]:
        if version["name"] == resource.version:
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            return schema, {}, "status" in (version.get("subresources") or {})
    raise NotFoundError(f"{resource.definition} has no version {resource.version}")


async def _of_document(client: KubeClient, resource: Resource) -> tuple[Manifest, Manifest, bool]:
    """The schema of a kind of the API server's own, in what it publishes of the group. All of those have a status that
    jobs may have."""
    document = await client.openapi(resource)
    components: Manifest = (document.get("components") or {}).get("schemas") or {}
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    named = (schema for schema in components.values() if wanted in schema.get(_NAMED, ()))
    return next(named, {}), components, True
