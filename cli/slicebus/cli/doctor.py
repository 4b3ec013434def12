"""`slicebus doctor`: checks what a role needs, one line each. The checks are imported when they run."""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from slicebus.manager.settings import Admission
from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES, journal_queue
from slicebus.runtime.logs import configure_logging

if TYPE_CHECKING:
    from slicebus.cli.checks import Check


class Role(StrEnum):
    """The role to check."""

    MANAGER = "manager"
    AGENT = "agent"


def doctor(
    role: Annotated[
        Role | None, typer.Option(help="By default agent where SLICEBUS_CLUSTER is set, else manager.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(envvar="SLICEBUS_CLUSTER", show_envvar=True, help="The agent's cluster.")
    ] = None,
    amqp_url: Annotated[str, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The role's broker address.")] = "",
    kubeconfig: Annotated[
        str | None,
        typer.Option(envvar="KUBECONFIG", show_envvar=True, help="By default the cluster that this runs in."),
    ] = None,
    namespace: Annotated[
        str, typer.Option(envvar="SLICEBUS_NAMESPACE", show_envvar=True, help="Where the role runs.")
    ] = "slicebus-system",
    admission: Annotated[
        Admission,
        typer.Option(envvar="SLICEBUS_ADMISSION", show_envvar=True, help="Who gives quota to the manager's jobs."),
    ] = Admission.BUILTIN,
    journal_max_age: Annotated[
        str, typer.Option(envvar="SLICEBUS_JOURNAL_MAX_AGE", show_envvar=True, help="What the journal should keep.")
    ] = JOURNAL_MAX_AGE,
    journal_max_bytes: Annotated[
        int, typer.Option(envvar="SLICEBUS_JOURNAL_MAX_BYTES", show_envvar=True, help="And how much.")
    ] = JOURNAL_MAX_BYTES,
) -> None:
    """Check the broker, the API server, definitions, permissions, the leader and the fleet. Exit status 1 when
    something has to be done."""
    from slicebus.cli.checks import checks, needs_of

    chosen = role or (Role.AGENT if cluster else Role.MANAGER)
    if chosen is Role.AGENT and not cluster:
        raise typer.BadParameter("an agent has a cluster: --cluster or SLICEBUS_CLUSTER")
    # The checks report an unreachable broker; the libraries need not log it too.
    configure_logging(format="console", level="CRITICAL")
    checked = cluster if chosen is Role.AGENT else None
    journal = journal_queue(max_age=journal_max_age, max_bytes=journal_max_bytes)
    needs = needs_of(checked, namespace, journal, admission)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{chosen}{f' of {checked}' if checked else ''}")

    async def run() -> bool:
        fine = True
        async for check in checks(needs, cluster=checked, amqp_url=amqp_url, kubeconfig=kubeconfig):
            console.print(_line(check))
            fine = fine and check.ok
        return fine

    if not asyncio.run(run()):
        raise typer.Exit(1)


def _line(check: "Check") -> Text:
    mark = ("✓ ", "green") if check.ok else ("✗ ", "bold red")
    text = Text.assemble("  ", mark, (f"{check.subject:<12} ", "bold"), check.found)
    if check.advice:
        text.append(f"\n      → {check.advice}", style="yellow")
    return text
