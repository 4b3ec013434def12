"""The parts that the tests of the Kubernetes API contract share: a server, its test namespace, and a kind."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

from slicebus.kube.client import KubeClient, MergePatch, WatchEvent
from slicebus.kube.resources import CONFIGMAPS, CRDS, Resource
from slicebus.proto.errors import NotFoundError
from support.processes import COMMAND_S
from support.waiting import PATIENCE_S, eventually

Manifest = dict[str, Any]

UNKNOWN_UID = "00000000-0000-0000-0000-000000000000"
"""A UID that no object has."""
WIDGETS = Resource("contract.slicebus.dev", "v1", "widgets", "Widget")


class StrategicPatch(MergePatch, frozen=True):
    """Kubernetes' own format, as kubectl apply sends it. Roles send none."""

    content_type: str = "application/strategic-merge-patch+json"


class Api(msgspec.Struct, frozen=True):
    """A server, by the client and by kubectl, with a namespace of the test's own."""

    client: KubeClient
    kubeconfig: Path
    namespace: str

    def manifest(self, resource: Resource, name: str, **fields: Any) -> Manifest:
        """An object in the test's namespace; `metadata` adds to what the name says."""
        metadata = {"name": name, "namespace": self.namespace} | fields.pop("metadata", {})
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}

    async def config_map(self, name: str = "a", **fields: Any) -> Manifest:
        """A ConfigMap that was created."""
        return await self.client.create(CONFIGMAPS, self.manifest(CONFIGMAPS, name, **fields))

    async def widget(self, name: str = "a", **fields: Any) -> Manifest:
        """A custom resource that was created."""
        return await self.client.create(WIDGETS, self.manifest(WIDGETS, name, **fields))

    async def names(self, resource: Resource = CONFIGMAPS, **query: Any) -> list[str]:
        """What a list finds. The real server puts its own root certificates into every namespace."""
        page = await self.client.list(resource, namespace=self.namespace, **query)
        return [item["metadata"]["name"] for item in page.items if item["metadata"]["name"] != "kube-root-ca.crt"]

    async def gone(self, resource: Resource, name: str) -> None:
        """Return when an object is not there any more."""

        async def is_gone() -> bool:
            try:
                await self.client.get(resource, name, self.namespace)
            except NotFoundError:
                return True
            return False

        await eventually(is_gone, f"no {resource.plural} {name}")

    async def events(self, count: int, *, since: Manifest, resource: Resource = CONFIGMAPS) -> list[WatchEvent]:
        """The first changes after an object's version, bookmarks left out."""
        seen: list[WatchEvent] = []
        version = since["metadata"]["resourceVersion"]
        async with asyncio.timeout(PATIENCE_S):
            how = {"namespace": self.namespace, "timeout_s": int(PATIENCE_S)}
            watch = self.client.watch(resource, resource_version=version, **how)
            async for event in watch:
                if event.type != "BOOKMARK":
                    seen.append(event)
                if len(seen) == count:
                    break
            await watch.aclose()  # type: ignore[attr-defined]
        return seen

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints, failures included."""
        process = await asyncio.create_subprocess_exec(
            *self.kubectl_command(*arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(stdin.encode()), COMMAND_S)
        return output.decode()

    def kubectl_command(self, *arguments: str) -> list[str]:
        """The command line of kubectl, with a discovery cache of the test's own."""
        options = (f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self.kubeconfig.parent / 'cache'}")
        return ["kubectl", *options, f"--namespace={self.namespace}", *arguments]


def widget_definition(plural: str = "widgets", kind: str = "Widget") -> Manifest:
    """A namespaced custom resource with what a schema can ask for."""
    part = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    part["properties"] |= {"weight": {"type": "integer"}}  # type: ignore[operator]
    spec: Manifest = {
        "size": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "color": {"type": "string", "enum": ["red", "green"], "default": "green"},
        "note": {"type": "string", "maxLength": 8, "pattern": "^[a-z]*$"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": part,
        },
    }
    status = {"phase": {"type": "string"}, "size": {"type": "integer"}}
    properties = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "properties": status},
    }
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
        {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    ]
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": properties}},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{plural}.{WIDGETS.group}"},
        "spec": {"group": WIDGETS.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def pod_template(image: str = "busybox", **spec: Any) -> Manifest:
    """A pod template for Jobs."""
    return {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}], **spec}}
