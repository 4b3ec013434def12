"""Describes where an API server serves a kind of object, as a value."""

from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True):
    """One served resource: what the URL needs and what a manifest says."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As in a manifest: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of the resource's group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def is_custom(self) -> bool:
        """Whether a CustomResourceDefinition serves it, which may be missing or removed."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def definition(self) -> str:
        """The name of that definition."""
        return f"{self.plural}.{self.group}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The path of a collection, an object, or a subresource of it; of all namespaces where none is named. A name
        from an annotation may have any characters."""
        parts = [self.root]
        if namespace and self.namespaced:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=":"))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)
