"""Checks whether an API server serves a declared job kind as it is declared."""

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
    """Why the server's schema of a job kind lacks what its declaration says; empty where it lacks nothing, where nobody
    has declared the kind, and where the schema cannot be read."""
    kind = KINDS.get(resource.kind)
    if not isinstance(kind, DeclaredKind):
        return ""
    try:
        schema, components, others = await (_of_definition if resource.is_custom else _of_document)(client, resource)
    except (NotFoundError, ForbiddenError):
        return ""
    wrong = [*(misfits(kind.declaration, schema, components) if schema else ()), *others]
    return f"the declaration of {resource.kind} does not fit: {'; '.join(wrong)}" if wrong else ""


async def _of_definition(client: KubeClient, resource: Resource) -> tuple[Manifest, Manifest, list[str]]:
    """Read the schema in the CustomResourceDefinition, which has no references, and say what else it lacks for jobs."""
    definition = await client.get(CRDS, resource.definition)
    lacks = [] if definition["spec"]["scope"] == "Namespaced" else ["its objects are in no namespace"]
    for version in definition["spec"]["versions"]:
        if version["name"] == resource.version:
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            if "status" not in (version.get("subresources") or {}):
                lacks.append("it has no subresource status")
            return schema, {}, lacks
    raise NotFoundError(f"{resource.definition} has no version {resource.version}")


async def _of_document(client: KubeClient, resource: Resource) -> tuple[Manifest, Manifest, list[str]]:
    """Read the schema of a kind of the API server's own from the document of its group."""
    document = await client.openapi(resource)
    components: Manifest = (document.get("components") or {}).get("schemas") or {}
    wanted = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    named = (schema for schema in components.values() if wanted in schema.get(_NAMED, ()))
    return next(named, {}), components, []
