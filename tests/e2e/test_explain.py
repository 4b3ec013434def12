"""`slicebus explain` as a user calls it, while a resize waits."""

import asyncio
import json
from pathlib import Path

from slicebus.cli.demo.world import World
from support.installation import run_cli
from support.scenario import Scenario, set_quota


async def test_why_a_resize_waits(world: World, kubeconfig: Path) -> None:
    env = {"KUBECONFIG": str(kubeconfig)}
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", "wide")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(6)
    await scenario.expect_event("Pending", on=await scenario.worker())

    told = await asyncio.to_thread(run_cli, "explain", "team-a/wide", env=env)
    assert told.returncode == 0, told.stderr
    where = f"on cluster {await scenario.cluster()}"
    assert f"Job/team-a/wide is Resizing, {where}, queue main, of ClusterQueue batch" in told.stdout
    assert "wants main=6 (asked for by its worker" in told.stdout
    assert "request > maximum capacity (6 > 4)" in told.stdout
    assert "1 of 1 that wait in ClusterQueue batch" in told.stdout
    as_json = await asyncio.to_thread(run_cli, "explain", "wide", "-o", "json", env=env)
    assert (
        json.loads(as_json.stdout)["waiting"][0]["would_admit"] == "2 more cpu in flavor default of ClusterQueue batch"
    )

    unknown = await asyncio.to_thread(run_cli, "explain", "wise", env=env)
    assert unknown.returncode == 1
    assert unknown.stderr == "there is no job wise; did you mean Job/team-a/wide?\n"
