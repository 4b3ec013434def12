"""A client of the manager's cluster for commands."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient

Result = TypeVar("Result")
Kubeconfig = Annotated[
    str | None,
    typer.Option(envvar="KUBECONFIG", show_envvar=True, help="The manager's cluster; by default the one this runs in."),
]


async def with_client(kubeconfig: str | None, act: "Callable[[KubeClient], Awaitable[Result]]") -> Result:
    """Call `act` with a client of the manager's cluster, and return its result."""
    from slicebus.kube.client import KubeClient

    async with await KubeClient.connect(kubeconfig=kubeconfig) as client:
        return await act(client)
