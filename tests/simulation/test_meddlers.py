"""Meddlers meddle: what they say has another type than its kind has, and what they write nobody can run."""

import msgspec
import pytest

from simulation import meddlers
from simulation.meddlers import Mislead, misled, with_meddlers
from simulation.schedule import SHORT
from slicebus.cli.demo import objects
from slicebus.proto.envelope import WireMessage
from slicebus.sandbox.apiserver.patches import json_patch
from slicebus.slices.jobs import KINDS, fitting, status_shape_of
from slicebus.slices.jobs.fit import misfit


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


def test_they_come_on_some_runs_and_the_rest_of_those_is_as_it_would_be() -> None:
    runs = [with_meddlers(msgspec.structs.replace(SHORT, seed=seed)) for seed in range(100)]
    meddled = [run for run in runs if len(run.items) > len(SHORT.items)]
    assert 5 < len(meddled) < 50
    for run in meddled:
        own = [item for item in run.items if not isinstance(item, meddlers.Break | meddlers.Mislead)]
        assert own == list(SHORT.items)
