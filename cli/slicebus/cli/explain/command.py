"""`slicebus explain`: why a job has the size that it has."""

from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.cluster.access import run
from slicebus.cli.cluster.listing import as_yaml
from slicebus.cli.cluster.options import ClusterAccess, ManagerPlace, Output, OutputFormat, with_options
from slicebus.cli.leaders import Leaders, say_leaders
from slicebus.cli.names import is_asked_for, nearest
from slicebus.proto.errors import ConfigurationError
from slicebus.slices.api.api_names import ORIGIN_LABEL

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.explain import Explanation


@with_options
def explain(
    job: Annotated[str, typer.Argument(help="name, namespace/name or Kind/namespace/name.")],
    *,
    access: ClusterAccess,
    managers: ManagerPlace,
    format: OutputFormat,
) -> None:
    """Explain why a job waits or runs as it does.

    It shows the quota, the place in the queue, and the history of its slices. Exit status 1 for an unknown job, and
    where no manager works: what is shown is then as old as its last write.
    """

    async def look(client: "KubeClient") -> "tuple[Leaders, list[Explanation], list[str]]":
        return await say_leaders(client, managers.manager_namespace), *await _explanations(client, job)

    found, explanations, others = run(access, look)
    if not explanations:
        screen.warn(f"there is no job {job}{nearest(job, others)}")
        raise typer.Exit(1)
    for explanation in explanations:
        _show(explanation, format.output)
    found.exit()


async def _explanations(client: "KubeClient", job: str) -> "tuple[list[Explanation], list[str]]":
    from slicebus.manager.decide.explain import explain as explanation_of
    from slicebus.manager.state.annotations import job_ref
    from slicebus.manager.state.store import ManagerStore

    store = ManagerStore()
    for resource, cache in store.caches():
        if await client.serves(resource):
            for manifest in (await client.list(resource)).items:
                cache.put(manifest)
    jobs = {job_ref(manifest): manifest for cache in store.jobs.values() for manifest in cache.all()}
    asked = [ref for ref in jobs if is_asked_for(ref.key, job)]
    for ref in asked:
        if ORIGIN_LABEL in (jobs[ref]["metadata"].get("labels") or {}):  # Who may not read Leases learns it here.
            raise ConfigurationError(f"{ref.key} is an agent's copy: this is a worker; run it on the manager's cluster")
    return [explanation_of(store, ref) for ref in asked], [ref.key for ref in jobs]


def _show(explanation: "Explanation", output: Output) -> None:
    import msgspec

    match output:
        case Output.JSON:
            screen.say_json(msgspec.json.encode(explanation))
        case Output.YAML:
            screen.say_lines("---\n" + as_yaml(msgspec.to_builtins(explanation)))
        case Output.NAME:
            screen.say(explanation.job)
        case Output.TABLE | Output.WIDE:
            from slicebus.cli.explain.page import page

            screen.show(page(explanation))
