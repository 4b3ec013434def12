"""`slicebus explain`: why a job has the size that it has."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from slicebus.cli import screen
from slicebus.cli.leaders import SYSTEM, Leaders, ManagerNamespace, leaders
from slicebus.cli.manager_client import Kubeconfig, with_client
from slicebus.cli.names import is_asked_for, nearest
from slicebus.proto.errors import ConfigurationError
from slicebus.slices.api.api_names import ORIGIN_LABEL

if TYPE_CHECKING:
    from slicebus.kube.client import KubeClient
    from slicebus.manager.decide.explain import Explanation


def explain(
    job: Annotated[str, typer.Argument(help="name, namespace/name or Kind/namespace/name.")],
    kubeconfig: Kubeconfig = None,
    manager_namespace: ManagerNamespace = SYSTEM,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Explain why a job waits or runs as it does: quota, its place in the queue, and its slices. Exit status 1 for
    an unknown job, and where no manager works: what is shown is then as old as its last write."""

    async def look(client: "KubeClient") -> "tuple[Leaders, list[Explanation], list[str]]":
        return await leaders(client, manager_namespace), *await _explanations(client, job)

    found, explanations, others = asyncio.run(with_client(kubeconfig, look))
    found.say()
    if not explanations:
        screen.warn(f"there is no job {job}{nearest(job, others)}")
        raise typer.Exit(1)
    for explanation in explanations:
        _show(explanation, json=json)
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


def _show(explanation: "Explanation", *, json: bool) -> None:
    if json:
        import msgspec

        screen.say_json(msgspec.json.encode(explanation))
        return
    from slicebus.cli.explain.page import page

    screen.show(page(explanation))
