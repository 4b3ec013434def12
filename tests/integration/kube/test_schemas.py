"""Whether what servers say of their kinds names the wrong paths of declarations."""

from contextlib import suppress
from typing import Any

import pytest

from integration.kube.contract import Api
from slicebus.kube.resources import CRDS
from slicebus.kube.schemas import misfit
from slicebus.proto.errors import AlreadyExistsError
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.declaration import Declaration
from slicebus.slices.jobs.declared import DeclaredKind
from support.declared.cluster import definitions, undefine
from support.waiting import eventually
from unit.slices.jobs.declared import DECLARED
from unit.slices.jobs.test_declaration import changed


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in DECLARED.items():
        monkeypatch.setitem(KINDS, name, kind)


async def misfit_of(api: Api, entry: Any) -> str:
    kind = DeclaredKind(Declaration.read(entry))
    KINDS[kind.resource.kind] = kind
    return await misfit(api.client, kind.resource)


async def test_a_custom_kind_is_compared_with_its_definition(api: Api) -> None:
    assert await misfit(api.client, KINDS["JobSet"].resource) == "", "without a definition nobody knows"
    for definition in definitions():
        with suppress(AlreadyExistsError):
            await api.client.create(CRDS, definition)
    try:
        for kind in ("JobSet", "LeaderWorkerSet"):
            assert await misfit(api.client, KINDS[kind].resource) == ""
        assert await misfit_of(api, changed("JobSet", "spec.suspended", "suspendPath")) == (
            "the declaration of JobSet does not fit: suspendPath: the schema has no spec.suspended"
        )
    finally:
        await undefine(api.client)


async def test_what_jobs_need_beside_the_paths_is_named(api: Api) -> None:
    [definition, _] = definitions()
    del definition["spec"]["versions"][0]["subresources"]
    definition["spec"]["scope"] = "Cluster"
    await api.client.create(CRDS, definition)
    try:
        found = await misfit(api.client, KINDS["JobSet"].resource)
        assert (
            found
            == "the declaration of JobSet does not fit: its objects are in no namespace; it has no subresource status"
        )
    finally:
        await undefine(api.client)


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.controlplane)], indirect=True)
async def test_a_kind_of_the_servers_own_is_compared_with_what_it_publishes(api: Api) -> None:
    async def published() -> bool:
        entry = changed("Deployment", "spec.replicaz", "podSets", 0, "countPath")
        return await misfit_of(api, entry) == (
            "the declaration of Deployment does not fit: podSets[0].countPath: the schema has no spec.replicaz"
        )

    await eventually(published, "the wrong path is named")
    wrong = changed("Deployment", "spec.strategy", "podSets", 0, "countPath")
    assert "spec.strategy is object, and not integer" in await misfit_of(api, wrong)
    assert await misfit_of(api, changed("Deployment", "spec.paused", "managedBy", "path")) == ""


async def test_only_declared_kinds_are_compared(api: Api) -> None:
    assert await misfit(api.client, KINDS["Job"].resource) == ""
