"""`slicebus diff`: what would an edit do?"""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.listing import as_yaml
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, Output, OutputFormat, with_options
from slicebus.cli.leaders import say_leaders
from slicebus.proto.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from slicebus.cli.difference.edits import Edit
    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.forecast.difference import Effect
    from slicebus.manager.state.store import ManagerStore

_REFUSED, _TAKES_PODS = 1, 3


@with_options
def diff(
    *,
    filename: Annotated[
        list[str] | None,
        typer.Option(
            "--filename", "-f", metavar="FILE", help="Queues, flavors, priority classes, clusters; -: standard input."
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="KIND/NAME", help="As if it were deleted: ClusterQueue/old, LocalQueue/team-a/main."
        ),
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option("--on", metavar="EXPORT", help="Files with every object that decides, in place of a cluster."),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Of LocalQueues that name none.")
    ] = "default",
    allow_preemption: Annotated[
        bool, typer.Option("--allow-preemption", help="Exit status 0 also where somebody loses pods.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="A table for the comment of a pull request, in place of --output.")
    ] = False,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
) -> None:
    """Say what an edit of queues or clusters would do to jobs.

    The manager's own code decides its next cycle with the edit and without it: who loses pods, who is admitted, and who
    waits for something else. Flavors and priority classes may be edited too. Nothing is written. --on takes the objects
    of an export in place of a cluster.

    Exit status 0; 3 where somebody loses pods, unless --allow-preemption; 1 where the edit is refused, or no manager
    works.
    """
    if not (filename or without):
        raise ConfigurationError("name files with --filename, or objects with --without")
    files = filename or []

    async def ask(client: "KubeClient") -> int:
        from slicebus.cli.cluster.deciding import decisive
        from slicebus.cli.cluster.reading import read
        from slicebus.cli.difference.edits import checked, edits_of, merged, named
        from slicebus.proto.errors import InvalidError

        leaders = await say_leaders(client, managers.manager_namespace)
        store = decisive(await read(client), leaders)
        edits = edits_of(files, namespace=namespace)
        gone = named(store, without or (), edits)
        try:
            edits = await checked(client, store, merged(store, edits))
        except InvalidError as error:
            screen.fail(f"✗ refused: {error}")
            return _REFUSED
        _show(found := _effects(store, edits, gone), format.output, markdown=markdown)
        return _REFUSED if leaders.problems else _status(found, allow_preemption=allow_preemption)

    if on:
        from slicebus.cli.difference.edits import edits_of, exported, merged, named

        store, edits = exported(on), edits_of(files, namespace=namespace)
        gone = named(store, without or (), edits)
        _show(found := _effects(store, merged(store, edits), gone), format.output, markdown=markdown)
        status = _status(found, allow_preemption=allow_preemption)
    else:
        status = run(access, ask)
    if status:
        raise typer.Exit(status)


def _effects(store: "ManagerStore", edits: "Iterable[Edit]", gone: "Sequence[Edit]" = ()) -> "list[Effect]":
    from slicebus.ambient.clock import now
    from slicebus.cli.cluster.deciding import asked
    from slicebus.cli.difference.edits import unreadable
    from slicebus.manager.decide.forecast.difference import edited, effects

    with asked("diff"):
        after = edited(store, made := list(edits), gone)
        if faults := unreadable(after, made):
            raise ConfigurationError(f"{', '.join(faults)} cannot be read")
        return effects(store, after, moment=now())


def _show(effects: "list[Effect]", output: Output, *, markdown: bool) -> None:
    from slicebus.cli.difference import page

    document = {"effects": [msgspec.to_builtins(effect) for effect in effects]}
    if markdown:
        screen.say_lines(page.markdown(effects))
        return
    match output:
        case Output.JSON:
            screen.say_json(msgspec.json.encode(document))
        case Output.YAML:
            screen.say_lines(as_yaml(document))
        case Output.NAME:
            for effect in effects:
                screen.say(effect.job)
        case Output.TABLE | Output.WIDE:
            screen.show(page.text(effects))


def _status(effects: "list[Effect]", *, allow_preemption: bool) -> int:
    takes_pods = any(effect.takes_pods for effect in effects)
    return _TAKES_PODS if takes_pods and not allow_preemption else 0
