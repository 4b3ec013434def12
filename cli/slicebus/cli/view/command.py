"""`slicebus view`: the commands' results as pages in a browser."""

import asyncio
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import connected
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, with_options
from slicebus.cli.ledger.options import PastDatabase, check_address

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient

_PORT = 8439


@with_options
def view(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="The port of the loopback interface; 0 picks a free one.")
    ] = _PORT,
    amqp_url: Annotated[
        str | None,
        typer.Option(envvar="AMQP_URL", show_envvar=True, help="The broker, for messages, hops, charts and the past."),
    ] = None,
    ledger: PastDatabase = None,
    behind_proxy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:PORT]",
            help="The public name of a proxy that decides who gets in, alone with this process in a pod.",
        ),
    ] = None,
    *,
    access: ClusterAccess,
    managers: ManagerPlace,
) -> None:
    """Show fleet, jobs, queues and messages in a browser, until Ctrl-C.

    It prints the address to open: with a secret, since everybody on this machine reaches the port. The pages have what
    your kubeconfig lets you see, and change nothing. With a broker they show moments of the past too, as jobs --at, and
    with a ledger the jobs and queues of older ones. With --behind-proxy there is no secret: whoever reaches the port
    gets an answer, so that is for a pod.
    """
    if ledger is not None:
        check_address(ledger)

    async def serve() -> None:
        from slicebus.cli.view.guard import public_name

        name = public_name(behind_proxy) if behind_proxy is not None else None
        if name is not None and (task := asyncio.current_task()):
            # A pod ends by SIGTERM, which does nothing to the first process of a container that has no handler for it.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with await connected(access) as client:
            await _serve(client, managers.manager_namespace, amqp_url, ledger, port=port, name=name)

    try:
        asyncio.run(serve())
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise typer.Exit from None


async def _serve(
    client: "KubeClient",
    manager_namespace: str,
    amqp_url: str | None,
    ledger: str | None,
    *,
    port: int,
    name: str | None,
) -> None:
    from slicebus.cli.broker.connection import broker_settings
    from slicebus.cli.view.history import History
    from slicebus.cli.view.live import LiveFleet
    from slicebus.cli.view.past_moments import PastMoments
    from slicebus.cli.view.serving import served
    from slicebus.cli.view.web import View

    if amqp_url is not None:
        broker_settings(amqp_url)  # An address that cannot work ends the command here.
    live, history = LiveFleet(client, manager_namespace=manager_namespace), History(amqp_url)
    view = View(live, history, PastMoments(amqp_url, ledger=ledger), public_name=name)
    async with served(view, port) as address, asyncio.TaskGroup() as group:
        group.create_task(live.run(), name="view:fleet")
        group.create_task(history.run(), name="view:journal")
        screen.say(f"the proxy of {name} sends requests on to {address}" if name else f"open {address}")
