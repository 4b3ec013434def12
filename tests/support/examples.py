"""The files of examples/, tried out as their first comment says."""

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import WORKERCLUSTERS
from support.processes import COMMAND_S
from support.scenario import Scenario
from support.waiting import eventually

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "examples"
_COMMAND = re.compile(r"^#   (.+)$", re.MULTILINE)


def commands(file: str) -> list[str]:
    """The commands of an example's first comment, in their order."""
    comment = re.match(r"(#.*\n)+", (EXAMPLES / file).read_text())
    assert comment, f"{file} begins with a comment"
    return _COMMAND.findall(comment.group())


class Example(NamedTuple):
    """A file with one job."""

    file: str
    kind: str
    name: str
    before: int
    """Workers before its resize."""
    after: int


async def try_out(world: World, contexts: Path, example: Example) -> None:
    """Apply the quota and an example, resize it, and delete it, by the commands of their comments.

    `contexts` is a kubeconfig with the contexts manager, which is the current one, east and west.
    """
    applies, *resizes, deletes = commands(example.file)
    await eventually(lambda: only_east_takes_jobs(world), "only east takes jobs")
    for command in (*commands("quota.yaml"), applies):
        await _run(command, contexts)
    scenario = Scenario(world, example.kind, example.name)
    await scenario.expect_pods(running=example.before)
    assert await scenario.cluster() == "east"

    async def resized() -> bool:
        # KubeRay says a moment later in a status which cluster it has made.
        done = await _done("set -e\n" + "\n".join(resizes), contexts)
        return done.returncode == 0

    await eventually(resized, f"{example.file} is resized")
    await scenario.expect_pods(running=example.after)
    newest = (await scenario.chain())[-1]
    assert newest.admission is not None
    await _run(deletes, contexts)
    await scenario.expect_nothing_left()


async def only_east_takes_jobs(world: World) -> bool:
    """The comments call the cluster east on which a job runs."""
    cordoned = MergePatch({"spec": {"cordoned": True}})
    for name in world.workers.keys() - {"east"}:
        await world.manager.patch(WORKERCLUSTERS, name, None, cordoned)
    return True


async def _run(command: str, contexts: Path) -> None:
    done = await _done(command, contexts)
    assert done.returncode == 0, f"{command}: {done.stderr}"


async def _done(script: str, contexts: Path) -> subprocess.CompletedProcess[str]:
    """A script as a user types it, at the top of the checkout."""
    environment = os.environ | {"KUBECONFIG": str(contexts)}
    return await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", script],
        cwd=TOP,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
