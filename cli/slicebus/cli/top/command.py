"""The command line of `slicebus top`."""

from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run, run_led
from slicebus.cli.cluster.options import ClusterAccess, JobScope, ManagerPlace, with_options

if TYPE_CHECKING:
    from slicebus.cli.leaders import Leaders
    from slicebus.kube.client import KubeClient


@with_options
def top(
    amqp_url: Annotated[
        str | None,
        typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker, for the last messages; without it none."),
    ] = None,
    *,
    scope: JobScope,
    access: ClusterAccess,
    managers: ManagerPlace,
) -> None:
    """Watch a fleet live, until Ctrl-C.

    It draws the worker clusters, the quota, the jobs with their slices, and the last messages. What waits is shown
    first where not everything fits. Without a terminal it prints one frame with everything. With the rights of one
    namespace it says what it leaves out. Where no manager works it says so; then one frame has exit status 1.
    """

    async def live(client: "KubeClient") -> None:
        from slicebus.cli.top.screen import show_live

        await show_live(client, scope, managers.manager_namespace, amqp_url)

    async def frame(client: "KubeClient", leaders: "Leaders") -> None:
        from slicebus.cli.top.screen import print_frame

        await print_frame(client, scope, leaders, amqp_url)

    if screen.is_live():
        run(access, live)
    else:
        run_led(access, managers, frame)
