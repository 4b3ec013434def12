"""A scale-up that is granted in part: what fits now, and the rest when there is room."""

from slicebus.cli.demo.world import World
from slicebus.kube.client import MergePatch
from slicebus.slices.api import api_names
from support.scenario import Scenario, set_quota
from support.waiting import eventually


async def test_what_fits_is_granted_and_the_rest_stays_wanted(world: World) -> None:
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", "wide")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    partial = MergePatch({"metadata": {"annotations": {api_names.PARTIAL_SCALE_UP_ANNOTATION: "true"}}})
    await world.manager.patch(scenario.resource, scenario.name, "team-a", partial)

    await scenario.scale(6)
    await scenario.expect_pods(running=4, gated=2)

    async def sizes() -> bool:
        unfinished = [slice for slice in await scenario.chain() if not slice.finished]
        return [(slice.counts, slice.granted) for slice in unfinished] == [
            ({"main": 6}, {"main": 4}),
            ({"main": 6}, {}),
        ]

    await eventually(sizes, "a slice of 6 that was granted 4, and one that waits for the rest")
    await set_quota(world, 5)
    await scenario.expect_pods(running=5, gated=1)
    await set_quota(world, 10)
    await scenario.expect_pods(running=6)
    [last] = await scenario.expect_unfinished(6)
    assert last.granted == {"main": 6}


async def test_what_waits_whole_is_granted_in_part_as_soon_as_its_job_says_so(world: World) -> None:
    await set_quota(world, 4)
    scenario = Scenario(world, "Job", "wide")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    await scenario.scale(6)
    await scenario.expect_pods(running=1, gated=5)
    await scenario.expect_unfinished(1, 6)
    partial = MergePatch({"metadata": {"annotations": {api_names.PARTIAL_SCALE_UP_ANNOTATION: "true"}}})
    await world.manager.patch(scenario.resource, scenario.name, "team-a", partial)
    await scenario.expect_pods(running=4, gated=2)
