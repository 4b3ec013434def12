"""An edit that a worker refuses for ever holds up neither the growth of its service nor its shrinking."""

import re

import pytest

from e2e.test_ray_service import CLUSTER, edit, serving
from e2e.test_refusals import api_of
from slicebus.cli.demo.world import World
from slicebus.kube.transport import Request
from slicebus.sandbox.apiserver.status import ApiError
from support import refusing as answers
from support.scenario import expect_used

EDITS: dict[str, tuple[str, object, bytes]] = {
    "its applications": ("/spec/serveConfigV2", "applications: [{name: other}]", b"name: other"),
    "its cluster": (f"{CLUSTER}/headGroupSpec/rayStartParams", {"num-cpus": "2"}, b"num-cpus"),
}


@pytest.mark.parametrize(("path", "value", "written"), EDITS.values(), ids=EDITS.keys())
async def test_a_service_follows_its_autoscaler_while_its_worker_refuses_an_edit(
    world: World, path: str, value: object, written: bytes
) -> None:
    scenario = await serving(world, 8)
    api = api_of(world, await scenario.worker())

    def refuses(request: Request) -> ApiError | None:
        is_edit = request.method == "PATCH" and re.search("/rayservices/", request.path)
        return answers.POLICY if is_edit and written in (request.body or b"") else None

    api.refuses = refuses
    await edit(world.manager, path, value)
    assert answers.POLICY.message in await scenario.expect_event("Invalid", "Forbidden", on=world.manager)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)
    await expect_used(world, "4")
    await scenario.scale(1)
    await scenario.expect_pods(running=1)
    await expect_used(world, "2")
