"""`slicebus demo`, as a process: the story comes through, on embedded parts and on real ones."""

import re
import shutil
import signal
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from slicebus.kube.client import KubeClient
from support.controlplane import ControlPlane
from support.examples import TOP
from support.installation import run_cli, slicebus
from support.missing import skip_or_fail
from support.processes import COMMAND_S, Server
from support.rabbitmq import ADMIN, RabbitBroker
from support.waiting import PATIENCE_S
from support.wiping import wipe

RESIZES = (
    r"Job/team-a/sweep +\w+ +main 1 -> 5",
    r"RayCluster/team-a/train +\w+ +small-group 1 -> 5",
    r"Job/team-a/backfill +\w+ +main 1 -> 4 +.* it waited for quota",
    r"Job/team-a/sweep +\w+ +main 5 -> 3",
    r"RayCluster/team-a/train +\w+ +small-group 5 -> 3",
)


def expect_the_scenario(output: str, timeline: Path) -> None:
    for resize in RESIZES:
        assert re.search(resize, output), f"{resize} is not in:\n{output}"
    assert "3 more needed" in output
    page = Page()
    page.feed(timeline.read_text(encoding="utf-8"))
    assert page.titles == ["slicebus demo"]
    assert page.charts == 3, "one for each job"
    assert any("3 more needed" in wait for wait in page.waits), "backfill's"
    assert page.scenarios == 8, "three starts and five resizes"


class Page(HTMLParser):
    """Counts what the timeline shows."""

    def __init__(self) -> None:
        super().__init__()
        self.titles: list[str] = []
        self.waits: list[str] = []
        self.charts = 0
        self.scenarios = 0
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = tag
        self.charts += tag == "section"
        self.scenarios += tag == "details" and "id" in dict(attrs)

    def handle_data(self, data: str) -> None:
        if self._open == "h1" and data.strip():
            self.titles.append(data)
        if self._open == "li":
            self.waits.append(data)


def test_on_embedded_parts(tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.html"
    done = run_cli("demo", "--pause", "0", "--timeline", str(timeline), env={"AMQP_URL": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("on embedded API servers and the in-process bus")
    expect_the_scenario(done.stdout, timeline)


def test_the_fleet_can_be_kept_and_tried_with_kubectl(tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        skip_or_fail("no kubectl: Debian's package kubernetes-client is not installed")
    command = [slicebus(), "demo", "--pause=0", "--keep", f"--timeline={tmp_path / 'timeline.html'}"]
    demo = Server("demo", command, log=tmp_path / "log", env={"AMQP_URL": ""})
    demo.start()
    try:
        demo.wait_for(lambda: "# west\n" in demo.log_text(), within_s=PATIENCE_S)
        _, told = demo.log_text().split("Try, in another terminal:\n")
        # At the end the demo leaves alone what it has not made, and what it has made may have gone.
        more = "kubectl apply -f examples/rayjob.yaml; kubectl delete job sweep -n team-a --wait=false"
        tried = ["bash", "-ec", f"{told}\n{more}"]
        done = subprocess.run(tried, cwd=TOP, capture_output=True, text=True, timeout=COMMAND_S, check=False)
        assert done.returncode == 0, done.stderr
        for line in ("workercluster.slicebus.dev/east", "job.batch/backfill", "rayjob.ray.io/example-rayjob created"):
            assert line in done.stdout
        assert demo.signal(signal.SIGINT, within_s=PATIENCE_S) == 0, demo.log_tail()
    finally:
        demo.kill()
    assert not list(tmp_path.glob("*.kubeconfig"))


@pytest.mark.rabbitmq
@pytest.mark.controlplane
async def test_on_real_parts(control_plane: ControlPlane, rabbitmq: RabbitBroker, vhost: str, tmp_path: Path) -> None:
    timeline = tmp_path / "timeline.html"
    clusters = control_plane.clusters
    workers = [f"--worker={name}={clusters[name].kubeconfig}" for name in ("east", "west")]
    try:
        done = run_cli(
            "demo",
            "--pause=0",
            f"--timeline={timeline}",
            f"--manager-kubeconfig={clusters['manager'].kubeconfig}",
            "--ray-stand-in",
            *workers,
            env={"AMQP_URL": rabbitmq.url(vhost, ADMIN)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("on the clusters of the kubeconfigs and RabbitMQ")
        expect_the_scenario(done.stdout, timeline)
    finally:
        for cluster in clusters.values():
            async with await KubeClient.from_kubeconfig(cluster.kubeconfig) as client:
                await wipe(client)
