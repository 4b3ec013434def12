"""The served resources: their names, defaults and validation."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from slicebus.kube.resources import Resource
from slicebus.sandbox.apiserver import metadata, schema

Manifest = dict[str, Any]
Rule = Callable[[Manifest | None, Manifest], Iterator[str]]
"""Problems of a new object, given the old one."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Served(msgspec.Struct, frozen=True):
    """A resource as it is served."""

    resource: Resource
    has_status: bool = False
    has_generation: bool = False
    keeps_status: bool = False
    """Whether a status in a create is stored, although it is a subresource."""
    unconditional: bool = True
    """Whether a replace needs no resourceVersion."""
    label_name: bool = False
    """Whether names are DNS labels, not subdomains."""
    fields: tuple[str, ...] = ()
    """The fields that field selectors may name besides the metadata."""
    schema: Manifest | None = None
    """The schema of a custom resource."""
    complete: Callable[[Manifest], Manifest] = lambda manifest: manifest
    """Adds the server's defaults to a new object."""
    rule: Rule = lambda old, new: iter(())
    singular: str = ""
    short_names: tuple[str, ...] = ()
    columns: tuple[Manifest, ...] = ()
    """`additionalPrinterColumns`."""


def with_defaults(served: Served, old: Manifest | None, manifest: Manifest) -> Manifest:
    """A manifest as it is stored: with defaults, and without unknown fields of custom resources."""
    if served.schema is not None:
        completed: Manifest = schema.completed(manifest, served.schema, old)
        return completed
    return served.complete(manifest)


def problems_of(served: Served, old: Manifest | None, new: Manifest) -> list[str]:
    """Why an object cannot be stored."""
    problems = list(metadata.problems(new["metadata"], label_name=served.label_name))
    if served.schema is not None:
        problems += schema.problems(new, served.schema, old=old)
    return problems or list(served.rule(old, new))


def served_by(crd: Manifest) -> list[Served]:
    """The resources of a CustomResourceDefinition, one for each served version."""
    spec = crd["spec"]
    kind = spec["names"]
    return [
        Served(
            Resource(
                spec["group"], version["name"], kind["plural"], kind["kind"], namespaced=spec["scope"] == "Namespaced"
            ),
            has_status="status" in version.get("subresources", {}),
            has_generation=True,
            unconditional=False,
            schema=version["schema"]["openAPIV3Schema"],
            singular=kind.get("singular", ""),
            short_names=tuple(kind.get("shortNames", ())),
            columns=tuple(version.get("additionalPrinterColumns", ())),
        )
        for version in spec["versions"]
        if version["served"]
    ]
