"""Meddlers meddle: what they say has another type than its kind has, and what they write nobody can run."""

import asyncio
from typing import Any

import msgspec
import pytest

from simulation import loop, meddlers
from simulation.meddlers import Break, Mislead, break_for_a_while, misled, with_meddlers
from simulation.schedule import SHORT
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, prepare
from slicebus.kube.client import KubeClient
from slicebus.kube.resources import RAYCLUSTERS
from slicebus.proto.envelope import WireMessage
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.inprocess import InProcessTransport
from slicebus.sandbox.apiserver.patches import json_patch
from slicebus.slices.jobs import KINDS, fitting, status_shape_of
from slicebus.slices.jobs.fit import misfit

Manifest = dict[str, Any]


@pytest.mark.parametrize("kind", KINDS)
def test_every_status_that_they_say_has_another_type(kind: str) -> None:
    body = msgspec.json.encode({"job": {"kind": kind}, "job_status": {}})
    said = WireMessage(routing_key="east.status", body=body, headers={}, type="status", user_id="east")
    for odd in range(8):
        message = misled([said], Mislead(at_s=0.0, by="east", pick=0, odd=odd))
        assert message is not None
        assert misfit(msgspec.json.decode(message.body)["job_status"], status_shape_of(KINDS[kind]))


@pytest.mark.parametrize("how", meddlers._HOW)
def test_no_manifest_that_they_write_can_be_run(how: meddlers.How) -> None:
    for job in (objects.ray_cluster("x"), objects.ray_job("x")):
        path = meddlers._CLUSTER[job["kind"]]
        sound = job["spec"] if job["kind"] == "RayCluster" else job["spec"]["rayClusterSpec"]
        for operation in meddlers._broken(path, sound, how):
            job = json_patch(job, [operation])
        readable = fitting(job["kind"])(job)
        # An odd name alone gives the group another pod set.
        assert KINDS[job["kind"]].problems(readable) or how == "name"


async def break_twice() -> tuple[Manifest, Manifest]:
    """A RayCluster before and after users have broken it for a while, one of them while another had."""
    client = KubeClient(InProcessTransport(Api(), host="manager"))
    await prepare(World(manager=client, workers={}))
    before = await client.create(RAYCLUSTERS, objects.ray_cluster("x"))
    broken = set[str]()
    breaks = [
        Break(at_s=at_s, kind="RayCluster", pick=0, how=how, for_s=3.0)
        for at_s, how in ((0.0, "containers"), (1.0, "head"), (5.0, "head"))
    ]

    async def play(item: Break) -> None:
        await asyncio.sleep(item.at_s)
        await break_for_a_while(client, item, broken=broken)

    await asyncio.gather(*map(play, breaks))
    return before, await client.get(RAYCLUSTERS, before["metadata"]["name"], objects.NAMESPACE)


def test_what_two_break_at_the_same_time_is_sound_in_the_end() -> None:
    before, after = loop.run(break_twice())
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == 5, "the second user leaves alone what the first has broken"


def test_they_come_on_some_runs_and_the_rest_of_those_is_as_it_would_be() -> None:
    runs = [with_meddlers(msgspec.structs.replace(SHORT, seed=seed)) for seed in range(100)]
    meddled = [run for run in runs if len(run.items) > len(SHORT.items)]
    assert 5 < len(meddled) < 50
    for run in meddled:
        own = [item for item in run.items if not isinstance(item, meddlers.Break | meddlers.Mislead)]
        assert own == list(SHORT.items)
