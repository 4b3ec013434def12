"""`slicebus doctor`: checks what a role needs, one line each. The checks are imported when they run."""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from slicebus.cli import screen
from slicebus.cli.broker.addresses import Shards
from slicebus.cli.cluster.filters import option_of
from slicebus.cli.cluster.options import ClusterAccess, with_options
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.proto.topology import JOURNAL_MAX_AGE, JOURNAL_MAX_BYTES, journal_queues

if TYPE_CHECKING:
    from slicebus.cli.doctor.check import Check


class CheckedRole(StrEnum):
    """The role to check."""

    MANAGER = "manager"
    AGENT = "agent"


@with_options
def doctor(
    role: Annotated[
        CheckedRole | None,
        option_of(
            CheckedRole, "role", help="manager or agent; by default agent where SLICEBUS_CLUSTER is set, else manager."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(envvar="SLICEBUS_CLUSTER", show_envvar=True, help="The agent's cluster.")
    ] = None,
    amqp_url: Annotated[str, typer.Option(envvar="AMQP_URL", show_envvar=True, help="The role's broker address.")] = "",
    manager_user: Annotated[
        str, typer.Option(envvar="SLICEBUS_MANAGER_USER", show_envvar=True, help="Whose orders the agent takes.")
    ] = "",
    namespace: Annotated[
        str, typer.Option(envvar="SLICEBUS_NAMESPACE", show_envvar=True, help="Where the role runs.")
    ] = "slicebus-system",
    namespaces: Annotated[
        str, typer.Option(envvar="SLICEBUS_NAMESPACES", show_envvar=True, help="The only ones that the agent works in.")
    ] = "",
    schedulers: Annotated[
        str,
        typer.Option(
            envvar="SLICEBUS_SCHEDULERS", show_envvar=True, help="The profiles of its scheduler backends, as JSON."
        ),
    ] = "",
    policy_file: Annotated[
        str | None, typer.Option(envvar="SLICEBUS_POLICY_FILE", show_envvar=True, help="The policy of its cluster.")
    ] = None,
    admission: Annotated[
        AdmissionModeName,
        option_of(
            AdmissionModeName,
            "admission mode",
            help="Who gives quota to the manager's jobs: builtin or kueue.",
            envvar="SLICEBUS_ADMISSION",
        ),
    ] = AdmissionModeName.BUILTIN,
    journal_max_age: Annotated[
        str, typer.Option(envvar="SLICEBUS_JOURNAL_MAX_AGE", show_envvar=True, help="What the journal should keep.")
    ] = JOURNAL_MAX_AGE,
    journal_max_bytes: Annotated[
        int, typer.Option(envvar="SLICEBUS_JOURNAL_MAX_BYTES", show_envvar=True, help="And how much.")
    ] = JOURNAL_MAX_BYTES,
    shards: Shards = 1,
    device_class_mappings: Annotated[
        str,
        typer.Option(
            envvar="SLICEBUS_DEVICE_CLASS_MAPPINGS",
            show_envvar=True,
            help="The manager's mappings of DeviceClasses to resources, as JSON.",
        ),
    ] = "",
    broker_api: Annotated[
        str | None,
        typer.Option(
            envvar="SLICEBUS_BROKER_API",
            show_envvar=True,
            help="The broker's management API as an administrator: https://USER:PASSWORD@HOST:15671. With it the "
            "manager's doctor compares every user and bound with `slicebus broker definitions`.",
        ),
    ] = None,
    *,
    access: ClusterAccess,
) -> None:
    """Check what a role needs, and say what to do.

    It checks the broker, the API server, definitions, permissions, the leader and the fleet. Exit status 1 when
    something has to be done.
    """
    from slicebus.cli.doctor.checks import checks, manager_user_check, needs_of, policy_check, schedulers_check

    chosen = role or (CheckedRole.AGENT if cluster else CheckedRole.MANAGER)
    if chosen is CheckedRole.AGENT and not cluster:
        raise typer.BadParameter("an agent has a cluster: --cluster or SLICEBUS_CLUSTER")
    checked = cluster if chosen is CheckedRole.AGENT else None
    journals = journal_queues(max_age=journal_max_age, max_bytes=journal_max_bytes)
    policy_found, policy = policy_check(policy_file)
    schedulers_found, backends = schedulers_check(schedulers)
    needs = needs_of(
        checked,
        namespace,
        journals,
        admission,
        tuple(filter(None, namespaces.split(","))),
        policy.create_as,
        backends,
        shards,
        counts_devices=device_class_mappings not in ("", "[]"),
    )
    screen.say(f"{chosen}{f' of {checked}' if checked else ''}")

    async def run() -> bool:
        fine, of_settings = True, [manager_user_check(manager_user), policy_found, schedulers_found] if checked else []
        made = checks(needs, cluster=checked, amqp_url=amqp_url, access=access, broker_api=broker_api)
        async for check in made:
            # The leader comes first.
            for shown in (check, *of_settings):
                screen.show(_line(shown))
                fine = fine and shown.ok
            of_settings = []
        return fine

    if not asyncio.run(run()):
        raise typer.Exit(1)


def _line(check: "Check") -> Text:
    mark = ("✓ ", "green") if check.ok else ("✗ ", "bold red")
    text = screen.styled("  ", mark, (f"{check.subject:<12} ", "bold"), check.found)
    if check.advice:
        text.append("\n").append_text(screen.styled((f"      → {check.advice}", "yellow")))
    return text
