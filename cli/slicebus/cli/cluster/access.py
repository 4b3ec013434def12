"""A client of the cluster that a command is about."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace
from slicebus.cli.leaders import Leaders, say_leaders
from slicebus.proto.errors import ConfigurationError, NotFoundError

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient

Result = TypeVar("Result")
_PATIENCE_S = 5.0
"""How long a read is tried again while the server cannot be reached: somebody waits."""


async def connected(access: ClusterAccess) -> "KubeClient":
    """A client of the cluster, to be closed. Raises ConfigurationError for a kubeconfig that cannot be used."""
    from slicebus.kube.client import KubeClient, Timeouts

    timeouts = Timeouts(retry_s=_PATIENCE_S)
    return await KubeClient.connect(kubeconfig=access.kubeconfig, context=access.context, timeouts=timeouts)


def namespace_of(access: ClusterAccess) -> str | None:
    """The namespace of the context that the options choose; nobody is asked. None where there is no cluster.

    Raises ConfigurationError for options that name none.
    """
    from slicebus.kube.client import DEFAULT_NAMESPACE
    from slicebus.kube.kubeconfig import of_kubeconfig, of_pod

    is_named = access.kubeconfig or access.context
    try:
        server = None if is_named or os.environ.get("KUBECONFIG") else of_pod()
        server = server or of_kubeconfig(access.kubeconfig, access.context)
    except ConfigurationError:
        if is_named:
            raise
        return None
    return server.namespace or DEFAULT_NAMESPACE


def run(
    access: ClusterAccess, act: "Callable[[KubeClient], Awaitable[Result]]", *, may_be_bare: bool = False
) -> Result:
    """Call `act` with a client of the manager's cluster to its end, or to Ctrl-C. Raises ConfigurationError for a
    worker, and for a cluster without slicebus unless it `may_be_bare`."""
    from slicebus.cli.place import require_managers

    async def with_client() -> Result:
        async with await connected(access) as client:
            await require_managers(client, may_be_bare=may_be_bare)
            return await act(client)

    return asyncio.run(with_client())


def run_led(
    access: ClusterAccess, managers: ManagerPlace, act: "Callable[[KubeClient, Leaders], Awaitable[None]]"
) -> None:
    """Call `act` as `run` does, after saying what is wrong with the managers. Exit status 1 where none works: what
    `act` has shown is then as old as its last write."""

    async def led(client: "KubeClient") -> Leaders:
        found = await say_leaders(client, managers.manager_namespace)
        await act(client, found)
        return found

    run(access, led).exit()


@contextmanager
def absence_told() -> Iterator[None]:
    """End a command with exit status 1, and one line, where what its user names is not there."""
    try:
        yield
    except NotFoundError as error:
        screen.warn(str(error))
        raise typer.Exit(1) from None
