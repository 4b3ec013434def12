"""The command line of `slicebus demo`. What it runs is loaded when it runs: the Kubernetes client takes a second."""

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.demo.objects import IMAGE, RAY_IMAGE
from slicebus.proto.errors import ConfigurationError
from slicebus.proto.messages import ClusterName
from slicebus.runtime.logs import configure_logging


def demo(
    amqp_url: Annotated[
        str | None, typer.Option(envvar="AMQP_URL", help="A RabbitMQ to use instead of the in-process bus.")
    ] = None,
    manager_kubeconfig: Annotated[
        Path | None, typer.Option(help="The manager's cluster, instead of an embedded API server.", exists=True)
    ] = None,
    worker: Annotated[
        list[str] | None, typer.Option(help="A worker cluster: NAME=KUBECONFIG. Once for each.", metavar="NAME=PATH")
    ] = None,
    ray_stand_in: Annotated[
        bool | None, typer.Option(help="Play KubeRay on real clusters; by default where there are no RayClusters.")
    ] = None,
    image: Annotated[str, typer.Option(help="The Jobs' image on real clusters; it has to have sleep.")] = IMAGE,
    ray_image: Annotated[str, typer.Option(help="The RayCluster's image on real clusters.")] = RAY_IMAGE,
    timeline: Annotated[Path, typer.Option(help="Where the HTML timeline goes.")] = Path("slicebus-timeline.html"),
    pause: Annotated[float, typer.Option(help="Seconds to look at each act.", min=0.0)] = 4.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the fleet running until Ctrl-C, to try it.")] = False,
) -> None:
    """Run a manager and two agents, and watch resizes come through."""
    if find_spec("slicebus.sandbox") is None:
        raise ConfigurationError(
            "the demo needs the package slicebus.sandbox, which images leave out: run it elsewhere"
        )
    from slicebus.cli.demo.performance import Parts, perform
    from slicebus.cli.demo.scenario import Images

    parts = Parts(
        amqp_url=amqp_url,
        manager_kubeconfig=manager_kubeconfig,
        worker_kubeconfigs=dict(map(_named_path, worker or ())),
        ray_stand_in=ray_stand_in,
    )
    if (manager_kubeconfig is None) != (not parts.worker_kubeconfigs):
        raise ConfigurationError("real clusters: give --manager-kubeconfig and at least one --worker NAME=KUBECONFIG")
    configure_logging(format="console", level="ERROR")
    try:
        asyncio.run(perform(parts, Images(image, ray_image), timeline=timeline, pause_s=pause, keep=keep))
    except KeyboardInterrupt:
        screen.say("stopped")


def _named_path(text: str) -> tuple[ClusterName, Path]:
    name, _, path = text.partition("=")
    if not name or not path:
        raise ConfigurationError(f"--worker {text}: use NAME=KUBECONFIG")
    return ClusterName(name), Path(path)
