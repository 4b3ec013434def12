"""Ray's own Kubernetes provider resizes a RayCluster: slicebus opens gates for it, and takes no pod that stays."""

import pytest

from slicebus.cli.demo.world import World
from support.ray_provider import RayProvider
from support.scenario import NAMESPACE, Scenario, set_quota

GROUP = "small-group"
SIZE, NAMES = "/spec/workerGroupSpecs/0/replicas", "/spec/workerGroupSpecs/0/scaleStrategy"


def patch(replicas: int, names: list[str] | None = None) -> list[dict[str, object]]:
    size = {"op": "replace", "path": SIZE, "value": replicas}
    return [size] if names is None else [size, {"op": "replace", "path": NAMES, "value": {"workersToDelete": names}}]


@pytest.mark.real
async def test_growth_and_shrink_leave_the_others_alone(world: World) -> None:
    await set_quota(world, 8)
    tune = Scenario(world, "RayCluster", "tune")
    await tune.submit()
    await tune.expect_pods(running=1)
    first = await tune.running()
    provider = RayProvider(await tune.worker(), "tune", NAMESPACE)

    await provider.launch(GROUP, 3)
    await tune.expect_pods(running=4)
    grown = await tune.running()
    assert first < grown

    young = sorted(
        (pod for pod in await tune.pods() if pod["metadata"]["uid"] not in first),
        key=lambda pod: pod["metadata"]["name"],
    )
    names = [pod["metadata"]["name"] for pod in young[:2]]
    await provider.terminate(names)
    await tune.expect_pods(running=2)
    left = await tune.running()
    assert first < left < grown
    await tune.expect_unfinished(2)

    await provider.launch(GROUP, 1)
    await tune.expect_pods(running=3)
    assert left < await tune.running()
    # Size and names in one patch; the names go by the next one.
    assert provider.patches == [patch(4), patch(2, names), patch(3, [])]
