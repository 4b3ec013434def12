"""The dashboards of the manager's chart: what Grafana gets, and what a Prometheus that scrapes a fleet answers to their
queries."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from slicebus.bus.access.address import Access
from slicebus.cli.demo import objects
from slicebus.cli.demo.world import World, embedded_world, fleet
from slicebus.kube.client import MergePatch
from slicebus.kube.resources import CLUSTERQUEUES, WORKLOADPRIORITYCLASSES
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.runtime.health import health_server
from slicebus.runtime.role_metrics import RoleMetrics, show_process
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.api import kueue
from support.dashboards.files import FOLDER
from support.helm import render
from support.processes import START_S, Server, free_port
from support.scenario import Scenario, elastic, set_quota
from support.waiting import PATIENCE_S, eventually

from .test_options import VALUES, of_kind

MANAGER = "slicebus-manager"
EVERY = ".*"
WINDOW = "2m"
"""In place of `$__rate_interval`: longer than the test."""


@pytest.mark.helm
def test_the_dashboards_are_off_by_default_and_come_as_config_maps_for_the_sidecar(helm: Path) -> None:
    assert not of_kind(render(helm, MANAGER, VALUES[MANAGER]), "ConfigMap")
    how = {"enabled": True, "annotations": {"grafana_folder": "batch"}}
    made = of_kind(render(helm, MANAGER, VALUES[MANAGER] | {"metrics": {"dashboards": how}}), "ConfigMap")
    assert {each["metadata"]["name"] for each in made} == {f"{MANAGER}-dashboard-{n}" for n in ("fleet", "queues")}
    for each in made:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "batch"}
        [(name, text)] = each["data"].items()
        assert text == (FOLDER / name.removeprefix("slicebus-")).read_text()


HAPPENED = {"queues: Evictions A", "queues: Preemptions A", "queues: Wait until admission B", "fleet: Resizes B"}
"""The queries that may be empty, and are not where something was resized and preempted."""


class Asked(NamedTuple):
    """One query of a panel."""

    panel: str
    expr: str
    may_be_empty: bool


def asked() -> Iterator[Asked]:
    """Every query, as Grafana sends it with every value of the variables selected."""
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                expr = target["expr"].replace("$__rate_interval", WINDOW)
                expr = re.sub(r"\$\w+", EVERY, expr)
                quiet = "noValue" in panel["fieldConfig"]["defaults"]
                yield Asked(f"{path.stem}: {panel['title']} {target['refId']}", expr, quiet)


async def test_a_prometheus_that_scrapes_a_fleet_has_an_answer_to_every_query(
    prometheus: Path, broker_name: str, tmp_path: Path
) -> None:
    """A panel without series says `noValue` in their place: what is not there while nothing is wrong."""
    queries = list(asked())
    async with scraped(prometheus, broker_name, tmp_path) as (url, world):
        await resizes_and_a_preemption(world)
        async with aiohttp.ClientSession() as session:

            async def answer(expr: str) -> list[dict[str, Any]]:
                async with session.get(f"{url}/api/v1/query", params={"query": expr}) as response:
                    body = await response.json()
                    assert body["status"] == "success", f"{expr}: {body.get('error')}"
                    found: list[dict[str, Any]] = body["data"]["result"]
                    return found

            left = [query for query in queries if not query.may_be_empty or query.panel in HAPPENED]

            async def every_one_is_answered() -> bool:
                left[:] = [query for query in left if not await answer(query.expr)]
                return not left

            try:
                await eventually(every_one_is_answered, "every query has a series", within_s=2 * PATIENCE_S)
            except AssertionError as error:
                error.add_note(f"without a series: {[query.panel for query in left]}")
                raise
            shown = {query.panel: await answer(query.expr) for query in queries}
    assert {tuple(row["metric"].values()) for row in shown["queues: LocalQueues A"]} == {("team-a", "main")}
    assert {row["metric"]["cluster"] for row in shown["fleet: Clusters A"]} == {"east", "west"}
    [leaders] = shown["fleet: Managers that lead A"]
    assert leaders["value"][1] == "1"
    assert not shown["fleet: Alerts A"]


@asynccontextmanager
async def scraped(prometheus: Path, broker: str, folder: Path) -> AsyncIterator[tuple[str, World]]:
    """A fleet, and the address of a Prometheus that scrapes each of its roles once a second, with the labels that a
    PodMonitor gives."""
    urls = {name: f"memory://{name}@{broker}" for name in ("manager", "east", "west")}
    how = {"decisions": ManagerDecisionSettings(fair_sharing=FairSharing.BOTH)}
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(embedded_world())
        await set_quota(world, 6)
        targets = []
        for name, registry in (await stack.enter_async_context(fleet(world, urls, **how))).items():
            role = "manager" if name == "manager" else "agent"
            leads = SimpleNamespace(connected=True, leads={f"slicebus-{role}": True})
            show_process(registry, RoleMetrics(name=role, access=Access(), role=lambda leads=leads: leads))
            served = health_server("127.0.0.1:0", not_ready=lambda: "", registry=registry)
            address = (await stack.enter_async_context(served)).removeprefix("http://")
            labels = {"namespace": objects.SYSTEM_NAMESPACE, "pod": f"slicebus-{role}-{name}"}
            targets.append({"targets": [address], "labels": labels})
        config = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "slicebus", "static_configs": targets}],
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        listens = f"127.0.0.1:{free_port()}"
        command = [str(prometheus), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        server = Server("prometheus", [*command, f"--web.listen-address={listens}"], log=folder / "prometheus.log")
        server.start()
        stack.callback(server.stop)

        async def ready() -> bool:
            try:
                async with aiohttp.ClientSession() as session, session.get(f"http://{listens}/-/ready") as answer:
                    return answer.status == 200
            except aiohttp.ClientConnectionError:
                return False

        await eventually(ready, f"Prometheus is ready; {folder / 'prometheus.log'}", within_s=START_S)
        yield f"http://{listens}", world


async def resizes_and_a_preemption(world: World) -> None:
    """Something of most that a queue lives through."""
    high = objects.named(WORKLOADPRIORITYCLASSES, "high", {}) | {"value": 100}
    high.pop("spec")
    await world.manager.create(WORKLOADPRIORITYCLASSES, high)
    spec = {"cohortName": "all", "preemption": {"withinClusterQueue": "LowerPriority"}}
    await world.manager.patch(CLUSTERQUEUES, objects.CLUSTER_QUEUE, None, MergePatch({"spec": spec}))
    low, late = Scenario(world, "Job", "low"), elastic("Job", "late")
    await low.submit()
    await low.expect_pods(running=1)
    await low.scale(4)
    await low.expect_pods(running=4)
    late["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = "high"
    late["spec"]["parallelism"] = 4
    await world.manager.create(low.resource, late)
    await Scenario(world, "Job", "late").expect_pods(running=4)
