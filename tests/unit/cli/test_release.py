"""`slicebus fleet release`: it names what it releases, and says how many deletes are left to hold."""

import asyncio
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from slicebus.cli.demo import objects
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.crds import custom_resource_definitions
from slicebus.kube.resources import CRDS, NAMESPACES, WORKERCLUSTERS
from slicebus.sandbox.apiserver import EmbeddedApiServer
from slicebus.slices.api.api_names import RELEASE_ANNOTATION
from support.kubeconfig import write_kubeconfig
from unit.cli.hostile import call

GO_ON = (
    "up to {} more jobs are looked at when these are gone, and their deletes held: wait until slicebus fleet get east "
    "shows them, then release them too\n"
)
HELD: dict[str, tuple[dict[str, Any], list[str], str, str | None]] = {
    "nothing": ({}, ["--yes"], "no deletes are held for east\n", None),
    "all that there is": (
        {"heldDeletes": {"id": "x", "jobs": 30, "unseen": 0}},
        ["--yes"],
        "released 30 deletes on east\n",
        "x",
    ),
    "as an earlier manager wrote it": (
        {"heldDeletes": {"id": "x", "jobs": 30}},
        ["--yes"],
        "released 30 deletes on east\n",
        "x",
    ),
    "the first thousands of two managers": (
        {
            "heldDeletes": {"id": "x", "jobs": 1000, "unseen": 500},
            "heldDeletesByShard": {"1": {"id": "y", "jobs": 1000, "unseen": 7}},
        },
        ["--yes"],
        "released 2000 deletes on east\n" + GO_ON.format(507),
        "x,y",
    ),
    "somebody only looks": (
        {"heldDeletes": {"id": "x", "jobs": 1000, "unseen": 1}},
        ["--dry-run"],
        "would release 1000 deletes on east\n" + GO_ON.format(1),
        None,
    ),
}


@pytest.mark.parametrize(("status", "options", "said", "released"), HELD.values(), ids=HELD.keys())
async def test_what_is_held_is_released_by_its_ids(
    status: dict[str, Any], options: list[str], said: str, released: str | None, tmp_path: Path
) -> None:
    async with EmbeddedApiServer() as server, KubeClient.from_url(server.url) as client:
        await client.create(NAMESPACES, objects.namespace(objects.SYSTEM_NAMESPACE))
        for definition in custom_resource_definitions():
            await client.create(CRDS, definition)
        await client.create(WORKERCLUSTERS, objects.worker_cluster("east"))
        await client.patch(WORKERCLUSTERS, "east", None, MergePatch({"status": status}), subresource="status")
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", server.url)
        with patch.dict(os.environ, KUBECONFIG=str(kubeconfig), COLUMNS="400"):
            called = await asyncio.to_thread(call, "fleet", "release", "east", *options)
        assert (called.status, called.out) == (0, said)
        annotations = (await client.get(WORKERCLUSTERS, "east"))["metadata"].get("annotations", {})
        assert annotations.get(RELEASE_ANNOTATION) == released
