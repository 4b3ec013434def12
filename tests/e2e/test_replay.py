"""A fleet's decisions, made again from its journal alone: by the same code the same, by other code not."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.demo.world import World
from slicebus.cli.replay.page import MODELS
from slicebus.decisions.replay import Replayer
from slicebus.journal.export import from_line
from support.installation import run_cli
from support.recordings import exported
from support.scenario import NAMESPACE, Scenario, set_quota
from support.waiting import eventually

KINDS = ("Job", "RayCluster", "RayJob")


async def replay(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`slicebus replay`, as a user runs it."""
    return await asyncio.to_thread(run_cli, "replay", str(file), *options, env={})


async def states(url: str, file: Path) -> str:
    """What both sides believe at the end of a fleet's journal, exported to the file."""
    shown = await replay(await exported(url, file), "--state")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return shown.stdout


async def live(world: World, kind: str) -> Scenario:
    """A whole life: start, growth, a wish past the quota, shrinking, the end."""
    scenario = Scenario(world, kind, f"life-{kind.lower()}")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(4)
    await scenario.expect_pods(running=4)
    await scenario.scale(9)
    await scenario.expect_unfinished(4, 9)
    await scenario.scale(3)
    await scenario.expect_unfinished(3)
    await scenario.expect_pods(running=3)
    await world.manager.delete(scenario.resource, scenario.name, NAMESPACE)
    await scenario.expect_nothing_left()
    return scenario


@pytest.mark.real
async def test_a_fleets_life_is_decided_the_same(
    world: World, urls: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await set_quota(world, 8)
    for kind in KINDS:
        await live(world, kind)
    file = tmp_path / "life.jsonl"

    async def replayed() -> str:
        shown = await states(urls["manager"], file)
        return shown if "all jobs are seen alike" in shown else ""

    shown = await eventually(replayed, "both sides have recorded that nothing is left")
    assert "none differs" in shown
    assert "passed over" not in shown
    assert all(source in shown for source in ("manager, epoch", "agent east, epoch"))

    apply_decision = MODELS["manager"].decisions["apply_decision"]

    def other(store: Any, *, decision: Any, now: str) -> Any:
        return apply_decision(store, decision=decision, now=now)[:-1]

    monkeypatch.setitem(MODELS["manager"].decisions, "apply_decision", other)
    replayer = Replayer(MODELS)
    made = [each for line in file.read_bytes().splitlines() for each in replayer.feed(from_line(line))]
    assert {each.what for each in made if not each.same} == {"apply_decision"}


async def test_a_decision_that_differs_is_shown_with_both(world: World, urls: dict[str, str], tmp_path: Path) -> None:
    await set_quota(world, 8)
    scenario = Scenario(world, "Job", "grown")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    file = tmp_path / "grown.jsonl"

    async def is_recorded() -> bool:
        return "runs on cluster" in (await exported(urls["manager"], file)).read_text()

    await eventually(is_recorded, "the decision is recorded")
    text = file.read_text()
    file.write_text(text.replace("runs on cluster", "ran on cluster"))

    different = await replay(file)
    assert different.returncode == 1, different.stdout + different.stderr
    assert "--- recorded" in different.stdout
    assert "+++ this version" in different.stdout
    [recorded, *_] = [line for line in different.stdout.splitlines() if "ran on cluster" in line and line[0] == "-"]
    [made, *_] = [line for line in different.stdout.splitlines() if "runs on cluster" in line and line[0] == "+"]
    assert recorded[1:].replace("ran", "runs") == made[1:]

    unasked = await replay(file, "--accept")
    assert (unasked.returncode, "this writes 1 other decisions into" in unasked.stderr) == (2, True), unasked
    accepted = await replay(file, "--accept", "--yes")
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert "1 decisions accepted" in accepted.stdout
    assert (await replay(file)).returncode == 0


async def test_what_each_side_believed_in_the_middle(world: World, urls: dict[str, str], tmp_path: Path) -> None:
    await set_quota(world, 3)
    scenario = Scenario(world, "Job", "middle")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(5)
    await scenario.expect_pods(running=1, gated=4)
    await scenario.expect_event("Pending", on=await scenario.worker())
    file = tmp_path / "middle.jsonl"

    async def is_shown() -> bool:
        shown = await states(urls["manager"], file)
        said = ("insufficient quota", "1 pods ready, 4 gated", "all jobs are seen alike")
        return all(text in shown for text in said)

    await eventually(is_shown, "both sides believe the same")
    before = await replay(file, "--state", "--until", "0")
    assert before.returncode == 0, before.stdout + before.stderr
    assert "Job/team-a/middle" not in before.stdout
