"""The check of `slicebus doctor` that names what users have set and slicebus does not honor, where it admits."""

from collections.abc import AsyncIterator, Iterator

from slicebus.cli.doctor.check import Check
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    COHORTS,
    LOCALQUEUES,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADPRIORITYCLASSES,
    WORKLOADS,
    Resource,
)
from slicebus.proto.messages import Manifest
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.api.honored import unhonored
from slicebus.slices.api.kueue import Condition

_SET_BY_ADMINS = (CLUSTERQUEUES, COHORTS, LOCALQUEUES, RESOURCEFLAVORS, WORKLOADPRIORITYCLASSES, WORKERCLUSTERS)
_MOST_NAMED = 3
"""The most objects that are named with one field."""
_PAGE = 500
_ADVICE = "remove them, or let a Kueue admit: docs/fields.md says what slicebus does instead"


async def fields_check(client: KubeClient) -> list[Check]:
    """Whether a field is set that is not honored, by its objects; nothing where a definition is missing."""
    by_field: dict[str, list[str]] = {}
    for resource in (*_SET_BY_ADMINS, WORKLOADS):
        if not await client.serves(resource):
            return []
        async for manifest in _every(client, resource):
            for field in _fields_of(resource, manifest):
                by_field.setdefault(field, []).append(_name_of(manifest))
    return [fields_found(by_field)]


def fields_found(by_field: dict[str, list[str]]) -> Check:
    """The check of these objects, by what is set in vain."""
    if not by_field:
        return Check("fields", "every field that is set is honored")
    told = "; ".join(f"{field} of {_listed(names)}" for field, names in sorted(by_field.items()))
    return Check("fields", f"set and not honored: {told}", _ADVICE)


async def _every(client: KubeClient, resource: Resource) -> AsyncIterator[Manifest]:
    token: str | None = None
    while token != "":
        page = await client.list(resource, limit=_PAGE, continue_token=token)
        for manifest in page.items:
            yield manifest
        token = page.continue_token


def _fields_of(resource: Resource, manifest: Manifest) -> Iterator[str]:
    if resource is not WORKLOADS:
        yield from (f"{resource.kind} {path}" for path in unhonored(resource.kind, manifest))
        return
    conditions = {entry["type"]: entry for entry in conditions_of(manifest)}
    if conditions.get(Condition.FINISHED, {}).get("status") == "True":
        return
    # Also what its job asks for, which only the manager reads.
    told = conditions.get(api_names.HONORED_CONDITION, {})
    if told.get("status") == "False":
        yield f"{resource.kind} ({told.get('message', '')})"


def _name_of(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(sorted(names)[:_MOST_NAMED])}{more}"
