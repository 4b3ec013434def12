"""A client of the manager's cluster for commands."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient

Result = TypeVar("Result")
CONNECT_S = 5.0
"""How long a command tries to reach an API server or a broker."""
Kubeconfig = Annotated[
    str | None,
    typer.Option(envvar="KUBECONFIG", show_envvar=True, help="The manager's cluster; by default the one this runs in."),
]


async def with_client(
    kubeconfig: str | None, act: "Callable[[KubeClient], Awaitable[Result]]", *, may_be_bare: bool = False
) -> Result:
    """Call `act` with a client of the manager's cluster, and return its result. Raises ConfigurationError for a worker,
    and for a cluster without slicebus unless it `may_be_bare`."""
    from slicebus.cli.place import require_managers
    from slicebus.kube.client import KubeClient, Timeouts

    async with await KubeClient.connect(kubeconfig=kubeconfig, timeouts=Timeouts(retry_s=CONNECT_S)) as client:
        await require_managers(client, may_be_bare=may_be_bare)
        return await act(client)
