"""The executor on an in-process API server and bus: order, fences, conflicts, and the caches."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import (
    Command,
    Create,
    Emit,
    Forget,
    Patch,
    PatchEach,
    Publish,
    Remember,
    Remove,
    Requeue,
)
from slicebus.decisions.table import Table
from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.impersonation import Impersonation
from slicebus.kube.lease import LeaseLost
from slicebus.kube.resources import CONFIGMAPS, WORKERCLUSTERS, Resource
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    NotServedError,
    SlicebusError,
    UnavailableError,
    WebhookError,
)
from slicebus.proto.messages import ClusterName, JobRef, Resync
from slicebus.runtime.executor import Executor
from unit.kube.servers import NAMESPACE, config_map

Manifest = dict[str, Any]
EAST = ClusterName("east")
JOB = JobRef("batch/v1", "Job", NAMESPACE, "j", "uid-j")


class Shell:
    """An executor, and everything that it reaches."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.cache = Cache()
        self.notes: Table[str, int] = Table(str, int)
        self.refusals: Table[str, Any] = Table(str, Any)
        self.is_fenced = False
        self.is_watched = False
        self.is_unconfirmed: SlicebusError | None = None
        self.done: list[Any] = []
        self.unshown: list[str] = []
        """The names of objects that do not show what they should."""
        self.refuses: SlicebusError | None = None
        self.executor = Executor(
            client=client,
            caches=lambda resource: self.cache if resource in (CONFIGMAPS, WORKERCLUSTERS) else None,
            tables={"notes": self.notes, "refusals": self.refusals},
            publish=self._publish,
            requeue=lambda job, delay_s: self.done.append((job, delay_s)),
            component="slicebus-test",
            record=lambda regarding, **event: self.done.append((regarding, event)),
            is_fenced=lambda: self.is_fenced,
            is_watched=lambda _: self.is_watched,
            confirm=self._confirm,
            unshown=lambda target: self.unshown.append(target["metadata"]["name"]),
        )

    async def run(self, *commands: Command, caused_by: Envelope | None = None) -> None:
        await self.executor.run(commands, caused_by=caused_by)

    async def given(self, name: str = "one", **data: str) -> Manifest:
        made = await self.client.create(CONFIGMAPS, config_map(name, **data))
        self.cache.put(made)
        return made

    async def there(self, name: str = "one") -> Manifest | None:
        """What the server has."""
        try:
            return await self.client.get(CONFIGMAPS, name, NAMESPACE)
        except NotFoundError:
            return None

    def cached(self, name: str = "one") -> Manifest | None:
        return self.cache.get(NAMESPACE, name)

    async def _confirm(self, resource: Resource) -> None:
        if self.is_unconfirmed:
            raise self.is_unconfirmed

    async def _publish(self, command: Publish, caused_by: Envelope | None) -> None:
        if self.refuses:
            raise self.refuses
        self.done.append((command.message, caused_by))


@pytest.fixture
def shell(api: KubeClient) -> Shell:
    return Shell(api)


def data(**values: str) -> Manifest:
    return {"data": values}


async def test_commands_are_carried_out_in_order_and_the_cache_knows_at_once(shell: Shell) -> None:
    one = await shell.given()
    await shell.run(
        Create(resource=CONFIGMAPS, manifest=config_map("two", a="1")),
        Publish(cluster=EAST, message=Resync(reason="first")),
        Patch(resource=CONFIGMAPS, target=one, body=data(a="2")),
        Requeue(job=JOB, delay_s=5.0),
        Publish(cluster=EAST, message=Resync(reason="second")),
    )
    assert shell.done == [(Resync(reason="first"), None), (JOB, 5.0), (Resync(reason="second"), None)]
    for name, value in (("one", "2"), ("two", "1")):
        cached = shell.cached(name)
        assert cached == await shell.there(name)
        assert cached is not None
        assert cached["data"] == {"a": value}


async def test_an_object_is_created_as_the_command_says(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    create, seen = shell.client.create, list[Any]()

    async def spy(*args: Any, **given: Any) -> Manifest:
        seen.append(given["impersonate"])
        return await create(*args, **given)

    monkeypatch.setattr(shell.client, "create", spy)
    somebody = Impersonation("system:serviceaccount:team:jobs")
    await shell.run(
        Create(resource=CONFIGMAPS, manifest=config_map("one")),
        Create(resource=CONFIGMAPS, manifest=config_map("two"), impersonate=somebody),
    )
    assert seen == [None, somebody]
    assert shell.cached("two") == await shell.there("two")


async def test_only_the_answers_to_its_writes_are_its_own(shell: Shell) -> None:
    one, changes = await shell.given(), list[Change]()
    shell.cache.subscribe(changes.append)
    await shell.run(
        Create(resource=CONFIGMAPS, manifest=config_map("two", a="1")),
        Patch(resource=CONFIGMAPS, target=one, body=data(a="2")),
    )
    await shell.client.patch(CONFIGMAPS, "one", NAMESPACE, MergePatch(data(a="3")))
    with pytest.raises(ConflictError):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=data(a="4")))
    writes = [(change.new["data"], change.is_own) for change in changes if change.new is not None]
    assert writes == [({}, False), ({"a": "1"}, True), ({"a": "2"}, True), ({"a": "3"}, False)]


async def test_the_first_error_ends_the_commands(shell: Shell) -> None:
    shell.refuses = UnavailableError("no broker")
    with pytest.raises(UnavailableError):
        await shell.run(
            Create(resource=CONFIGMAPS, manifest=config_map("before")),
            Publish(cluster=EAST, message=Resync()),
            Create(resource=CONFIGMAPS, manifest=config_map("after")),
        )
    assert await shell.there("before") is not None
    assert await shell.there("after") is None


BODIES: dict[str, Manifest | list[Manifest]] = {
    "merge patch": {"data": {"a": "mine"}},
    "merge patch with metadata": {"metadata": {"labels": {"l": "mine"}}, "data": {"a": "mine"}},
    "JSON patch": [{"op": "add", "path": "/data/a", "value": "mine"}],
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_patch_changes_the_object_that_it_was_decided_on(shell: Shell, body: Any) -> None:
    one = await shell.given(a="0", b="0")
    await shell.run(Patch(resource=CONFIGMAPS, target=one, body=body))
    found = await shell.there()
    assert found is not None
    assert found["data"] == {"a": "mine", "b": "0"}
    assert found == shell.cached()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_patch_of_a_changed_object_is_a_conflict_and_refreshes_the_cache(shell: Shell, body: Any) -> None:
    one = await shell.given(a="0")
    await shell.client.patch(CONFIGMAPS, "one", NAMESPACE, MergePatch(data(a="theirs")))
    with pytest.raises(ConflictError):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=body))
    found, cached = await shell.there(), shell.cached()
    assert found == cached
    assert found is not None
    assert found["data"] == {"a": "theirs"}
    await shell.run(Patch(resource=CONFIGMAPS, target=found, body=data(a="mine")))


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_a_patch_of_a_missing_object_is_a_conflict_and_leaves_the_cache(shell: Shell, body: Any) -> None:
    one = await shell.given(a="0")
    await shell.client.delete(CONFIGMAPS, "one", NAMESPACE)
    with pytest.raises(ConflictError, match="gone"):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=body))
    assert shell.cached() is None


REMOVALS: dict[str, tuple[SlicebusError | None, bool]] = {
    "it answers": (None, True),
    "it does not answer, and may have done it": (UnavailableError("away"), True),
    "it knows no such object": (NotFoundError("gone"), False),
    "it refuses": (ForbiddenError("no"), False),
    "another object has the name": (ConflictError("uid"), False),
}


@pytest.mark.parametrize(("error", "expected"), REMOVALS.values(), ids=REMOVALS.keys())
async def test_the_removal_of_what_it_deletes_is_expected(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: SlicebusError | None, expected: bool
) -> None:
    """That such an object goes is no sign that its definition does."""
    target, during = await shell.given(), list[bool]()

    async def answer(*_: Any, **__: Any) -> None:
        during.append(shell.cache.is_removed_here(target))
        if error is not None:
            raise error

    monkeypatch.setattr(shell.client, "delete", answer)
    with suppress(SlicebusError):
        await shell.run(Remove(resource=CONFIGMAPS, target=target))
    assert (during, shell.cache.is_removed_here(target)) == ([True], expected)


@pytest.mark.parametrize(
    "answer", [NotFoundError('404: configmaps "one" not found'), NotServedError("404: no such path")], ids=repr
)
async def test_a_missing_path_of_an_object_that_is_there_says_nothing_of_the_object(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: SlicebusError
) -> None:
    """While its definition is upgraded its subresource is not served: it must not count as deleted."""
    one = await shell.given(a="0")

    async def refuse(*_: Any, **__: Any) -> Manifest:
        raise answer

    monkeypatch.setattr(shell.client, "patch", refuse)
    with pytest.raises(UnavailableError):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=data(a="1"), subresource="status"))
    assert shell.cached() == one


async def test_a_resource_that_is_not_served_says_nothing_of_its_objects(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await shell.given(a="0")

    async def unserved(*_: Any, **__: Any) -> Manifest:
        raise NotServedError("404: the server could not find the requested resource")

    monkeypatch.setattr(shell.client, "patch", unserved)
    monkeypatch.setattr(shell.client, "get", unserved)
    with pytest.raises(UnavailableError, match="not served now"):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=data(a="1")))
    assert shell.cached() == one


@pytest.mark.parametrize("is_answered", [True, False], ids=["a conflict", "no answer"])
@pytest.mark.parametrize(
    ("is_watched", "is_unconfirmed", "heard"),
    [
        (False, None, ["first went", "second came"]),
        (True, None, []),
        (False, UnavailableError("its definition has gone"), []),
    ],
    ids=["it goes, then the other one comes", "its end is left to the watch", "it may have gone with its definition"],
)
async def test_another_object_of_the_name_never_takes_the_place_of_one_in_the_cache(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_answered: bool,
    is_watched: bool,
    is_unconfirmed: SlicebusError | None,
    heard: list[str],
) -> None:
    """Otherwise nobody would hear that the first one went."""
    one = await shell.given(a="first")
    shell.is_watched, shell.is_unconfirmed = is_watched, is_unconfirmed
    changes: list[str] = []

    def hear(change: Change) -> None:
        if change.old:
            changes.append(change.old["data"]["a"] + (" was replaced" if change.new else " went"))
        elif change.new:
            changes.append(change.new["data"]["a"] + " came")

    shell.cache.subscribe(hear)
    changes.clear()
    await shell.client.delete(CONFIGMAPS, "one", NAMESPACE)
    await shell.client.create(CONFIGMAPS, config_map(a="second"))
    if not is_answered:
        monkeypatch.setattr(shell.client, "patch", _unavailable)
    error = ConflictError if is_answered and not is_unconfirmed else UnavailableError
    with pytest.raises(error):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=data(b="mine")))
    assert changes == heard


@pytest.mark.parametrize("changed", [True, False], ids=["it has changed", "it is as it was"])
async def test_a_failing_test_of_a_json_patch_is_a_conflict_where_the_object_has_changed(
    shell: Shell, changed: bool
) -> None:
    one = await shell.given(a="0")
    if changed:
        await shell.client.patch(CONFIGMAPS, "one", NAMESPACE, MergePatch(data(b="theirs")))
    test = {"op": "test", "path": "/data/a", "value": "other"}
    with pytest.raises(ConflictError if changed else InvalidError):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=[test]))
    assert shell.cached() == await shell.there()


async def test_a_patch_of_the_status_leaves_the_spec(shell: Shell) -> None:
    manifest = {
        "apiVersion": WORKERCLUSTERS.api_version,
        "kind": WORKERCLUSTERS.kind,
        "metadata": {"name": "east"},
        "spec": {"accepted": True},
    }
    made = await shell.client.create(WORKERCLUSTERS, manifest)
    body = {"spec": {"accepted": False}, "status": {"epoch": 3}}
    await shell.run(Patch(resource=WORKERCLUSTERS, target=made, body=body, subresource="status"))
    found = await shell.client.get(WORKERCLUSTERS, "east")
    assert (found["spec"]["accepted"], found["status"]["epoch"]) == (True, 3)


async def test_a_create_with_a_taken_name_is_a_conflict_and_caches_the_present_object(shell: Shell) -> None:
    await shell.client.create(CONFIGMAPS, config_map(a="theirs"))
    with pytest.raises(AlreadyExistsError):
        await shell.run(Create(resource=CONFIGMAPS, manifest=config_map(a="mine")))
    cached = shell.cached()
    assert cached == await shell.there()
    assert cached is not None
    assert cached["data"] == {"a": "theirs"}


class Refusal(msgspec.Struct, frozen=True):
    """What somebody wants to know."""

    message: str = ""


NOTE = Remember(table="refusals", key="one", value=Refusal())


@pytest.mark.parametrize("error", [ForbiddenError("not so"), InvalidError("not so"), WebhookError("not so")], ids=repr)
async def test_a_refused_write_is_remembered_where_somebody_wants_to_know(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    one = await shell.given(a="0")

    async def refused(*_: Any, **__: Any) -> Manifest:
        raise error

    for name, command in (
        ("create", Create(resource=CONFIGMAPS, manifest=config_map("two"), if_refused=NOTE)),
        ("patch", Patch(resource=CONFIGMAPS, target=one, body=data(a="1"), if_refused=NOTE)),
    ):
        monkeypatch.setattr(shell.client, name, refused)
        await shell.run(command)
        assert shell.refusals.pop("one") == Refusal("not so")
        with pytest.raises(type(error)):
            await shell.run(msgspec.structs.replace(command, if_refused=None))


async def test_an_object_that_nobody_watches_stays_out_of_the_cache(shell: Shell) -> None:
    await shell.client.create(CONFIGMAPS, config_map(a="theirs"))
    await shell.run(Create(resource=CONFIGMAPS, manifest=config_map(a="mine"), if_refused=NOTE))
    assert "already exists" in shell.refusals["one"].message
    assert shell.cached() is None
    shell.is_watched = True
    with pytest.raises(AlreadyExistsError):
        await shell.run(Create(resource=CONFIGMAPS, manifest=config_map(a="mine"), if_refused=NOTE))
    assert shell.cached() == await shell.there()


async def test_a_create_without_an_answer_is_cached(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    create = shell.client.create

    async def unanswered(*given: Any, **how: Any) -> Manifest:
        await create(*given, **how)
        return await _unavailable()

    monkeypatch.setattr(shell.client, "create", unanswered)
    with pytest.raises(UnavailableError):
        await shell.run(Create(resource=CONFIGMAPS, manifest=config_map(a="mine")))
    assert shell.cached() == await shell.there()


@pytest.mark.usefixtures("jumping")
@pytest.mark.parametrize("takes_effect", [True, False])
async def test_after_a_patch_without_an_answer_nothing_is_decided_from_the_state_before_it(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, *, takes_effect: bool
) -> None:
    one, patch, get, outage = await shell.given(a="0"), shell.client.patch, shell.client.get, iter(range(3))

    async def unanswered(*given: Any, **how: Any) -> Manifest:
        if takes_effect:
            await patch(*given, **how)
        return await _unavailable()

    async def away_at_first(*given: Any, **how: Any) -> Manifest:
        return await (get(*given, **how) if next(outage, None) is None else _unavailable())

    monkeypatch.setattr(shell.client, "patch", unanswered)
    monkeypatch.setattr(shell.client, "get", away_at_first)
    with pytest.raises(UnavailableError):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=data(a="1")))
    assert shell.cached() == await shell.there()
    assert shell.cached()["data"] == {"a": "1" if takes_effect else "0"}


async def test_an_object_that_is_gone_answers_a_patch_without_an_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await shell.given()
    await shell.client.delete(CONFIGMAPS, "one", NAMESPACE)
    monkeypatch.setattr(shell.client, "patch", _unavailable)
    with pytest.raises(UnavailableError):
        await shell.run(Patch(resource=CONFIGMAPS, target=one, body=data(a="1")))


async def test_an_invalid_write_is_no_conflict(shell: Shell) -> None:
    with pytest.raises(InvalidError):
        await shell.run(Create(resource=CONFIGMAPS, manifest=config_map("Not A Name")))


async def test_a_remove_removes(shell: Shell) -> None:
    one = await shell.given()
    await shell.run(Remove(resource=CONFIGMAPS, target=one))
    assert await shell.there() is None


async def test_a_remove_of_a_missing_object_succeeds(shell: Shell) -> None:
    one = await shell.given()
    await shell.client.delete(CONFIGMAPS, "one", NAMESPACE)
    await shell.run(Remove(resource=CONFIGMAPS, target=one), Requeue(job=JOB, delay_s=1.0))
    assert shell.done == [(JOB, 1.0)]


async def test_a_remove_never_hits_another_object_of_the_name(shell: Shell) -> None:
    one = await shell.given()
    await shell.client.delete(CONFIGMAPS, "one", NAMESPACE)
    another = await shell.client.create(CONFIGMAPS, config_map())
    with pytest.raises(ConflictError):
        await shell.run(Remove(resource=CONFIGMAPS, target=one))
    there = await shell.there()
    assert there is not None
    assert there["metadata"]["uid"] == another["metadata"]["uid"]


async def test_an_event_is_recorded(shell: Shell) -> None:
    one = await shell.given()
    await shell.run(Emit(regarding=one, reason="Seen", note="it was", warning=True), Requeue(job=JOB, delay_s=1.0))
    assert shell.done == [(one, {"reason": "Seen", "note": "it was", "warning": True}), (JOB, 1.0)]


async def _unavailable(*_: Any, **__: Any) -> Manifest:
    raise UnavailableError("503")


async def test_a_message_is_published_with_its_cause(shell: Shell) -> None:
    cause = Envelope(
        id="1",
        type="status",
        cluster=EAST,
        cluster_uid="uid-1",
        subject="",
        time="",
        epoch=1,
        sequence=1,
        correlation_id="1",
    )
    await shell.run(Publish(cluster=EAST, message=Resync()), caused_by=cause)
    assert shell.done == [(Resync(), cause)]


# --- tables ---------------------------------------------------------------------------------------------------------

REMEMBER = Remember(table="notes", key="a", value=1)
FORGET = Forget(table="notes", key="a")
PUBLISH = Publish(cluster=EAST, message=Resync(), unless_confirmed=FORGET)


async def test_tables_are_written_in_the_order_of_the_commands(shell: Shell) -> None:
    seen: list[dict[str, int]] = []

    async def publish(*_: Any) -> None:
        seen.append(dict(shell.notes))

    shell.executor._publish = publish
    await shell.run(PUBLISH, REMEMBER, PUBLISH, FORGET, PUBLISH, FORGET)
    assert seen == [{}, {"a": 1}, {}]
    assert dict(shell.notes) == {}


@pytest.mark.parametrize(
    ("commands", "left"),
    [
        ([REMEMBER, PUBLISH], {}),
        ([PUBLISH, REMEMBER], {}),
        ([Publish(cluster=EAST, message=Resync()), REMEMBER], {"a": 0}),
    ],
    ids=["noted before", "noted by an earlier run", "to be noted after the confirm"],
)
@pytest.mark.parametrize(
    "error", [UnavailableError("no confirm"), asyncio.CancelledError()], ids=["error", "cancelled"]
)
async def test_a_message_that_was_not_confirmed_counts_as_not_published(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: BaseException, commands: list[Command], left: dict[str, int]
) -> None:
    async def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(shell.executor, "_publish", fail)
    shell.notes["a"] = 0
    with pytest.raises(type(error)):
        await shell.run(*commands)
    assert dict(shell.notes) == left


async def test_a_patch_without_an_answer_is_remembered_and_a_refused_one_is_not(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await shell.given(a="0")
    patch = Patch(resource=CONFIGMAPS, target=one, body=data(a="1"), unless_answered=REMEMBER)
    get = shell.client.get

    async def known(*args: Any) -> Manifest:
        assert dict(shell.notes) == {"a": 1}, "other decisions are made while it is read again"
        return await get(*args)

    with monkeypatch.context() as patched:
        patched.setattr(shell.client, "patch", _unavailable)
        patched.setattr(shell.client, "get", known)
        with pytest.raises(UnavailableError):
            await shell.run(patch)
    assert dict(shell.notes) == {"a": 1}
    shell.notes.clear()
    await shell.run(patch)
    with pytest.raises(ConflictError):
        await shell.run(patch)
    assert dict(shell.notes) == {}


# --- independent patches --------------------------------------------------------------------------------------------


def patch_each(*targets: Manifest, lets_start: bool = False) -> PatchEach:
    patches = tuple(Patch(resource=CONFIGMAPS, target=each, body=data(a="1")) for each in targets)
    return PatchEach(patches=patches, lets_start=lets_start)


async def patched(shell: Shell) -> list[str]:
    found = (await shell.client.list(CONFIGMAPS, namespace=NAMESPACE)).items
    return sorted(each["metadata"]["name"] for each in found if each["data"].get("a") == "1")


async def test_a_patch_that_fails_holds_up_no_other(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = [await shell.given(name) for name in ("changed", "failing", "fine")]
    await shell.client.patch(CONFIGMAPS, "changed", NAMESPACE, MergePatch(data(b="2")))
    patch = shell.client.patch

    async def failing(resource: Any, name: str, *rest: Any, **more: Any) -> Any:
        return await (_unavailable if name == "failing" else patch)(resource, name, *rest, **more)

    monkeypatch.setattr(shell.client, "patch", failing)
    with pytest.raises(UnavailableError):
        await shell.run(patch_each(*targets))
    assert await patched(shell) == ["fine"]
    with pytest.raises(ConflictError):
        await shell.run(patch_each(targets[0]), PUBLISH)
    assert shell.done == []


async def test_nothing_is_let_start_that_has_not_begun_when_the_fence_closes(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = [await shell.given(f"m{number:02}") for number in range(20)]
    patch = shell.client.patch

    async def closing(*args: Any, **more: Any) -> Any:
        shell.is_fenced = True
        await asyncio.sleep(0)
        return await patch(*args, **more)

    monkeypatch.setattr(shell.client, "patch", closing)
    await shell.run(patch_each(*targets, lets_start=True))
    begun = len(await patched(shell))
    assert begun == 1
    await shell.run(patch_each(*[cached for each in targets if (cached := shell.cached(each["metadata"]["name"]))]))
    assert len(await patched(shell)) == 20


SAFE_TO_REPEAT: dict[str, Callable[[Manifest], Command]] = {
    "create": lambda one: Create(resource=CONFIGMAPS, manifest=config_map("two")),
    "patch": lambda one: Patch(resource=CONFIGMAPS, target=one, body=data(a="1")),
    "remove": lambda one: Remove(resource=CONFIGMAPS, target=one),
}


@pytest.mark.parametrize("command", SAFE_TO_REPEAT.values(), ids=SAFE_TO_REPEAT.keys())
async def test_a_command_that_comes_twice_has_its_effect_once(shell: Shell, command: Any) -> None:
    one = await shell.given(a="0")
    await shell.run(command(one))
    before = (await shell.there("one"), await shell.there("two"))
    with suppress(ConflictError):
        await shell.run(command(one))
    assert (await shell.there("one"), await shell.there("two")) == before


async def test_unwatched_resources_are_written_without_a_cache(api: KubeClient) -> None:
    def no_cache(_: Resource) -> None:
        return None

    async def no_bus(command: Publish, caused_by: Envelope | None) -> None:
        raise AssertionError("nothing to publish")

    executor = Executor(
        client=api,
        caches=no_cache,
        tables={},
        publish=no_bus,
        requeue=lambda *_: None,
        component="slicebus-test",
        record=lambda *_, **__: None,
    )
    await executor.run([Create(resource=CONFIGMAPS, manifest=config_map())])
    with pytest.raises(AlreadyExistsError):
        await executor.run([Create(resource=CONFIGMAPS, manifest=config_map())])


async def test_a_process_that_may_no_longer_lead_writes_nothing(api: KubeClient) -> None:
    shell, checks = Shell(api), iter([None, LeaseLost("stopped for too long")])

    def check() -> None:
        if error := next(checks):
            raise error

    shell.executor._check = check
    with pytest.raises(LeaseLost):
        await shell.run(
            Create(resource=CONFIGMAPS, manifest=config_map("one")),
            Create(resource=CONFIGMAPS, manifest=config_map("two")),
        )
    assert await shell.there("one")
    assert await shell.there("two") is None


async def test_an_object_whose_annotations_are_full_holds_up_nothing_that_only_shows(shell: Shell) -> None:
    full = config_map() | {"metadata": config_map()["metadata"] | {"annotations": {"full": "x" * (256 * 1024 - 4)}}}
    await shell.executor.run([Create(resource=CONFIGMAPS, manifest=full)])
    body = {"metadata": {"annotations": {"shown": "x"}}}
    present = shell.cached()
    assert present is not None
    shows = Patch(resource=CONFIGMAPS, target=present, body=body, only_shows=True)
    await shell.executor.run([shows, Patch(resource=CONFIGMAPS, target=present, body={"data": {"a": "changed"}})])
    changed = shell.cached()
    assert changed is not None
    assert changed["data"] == {"a": "changed"}
    assert "shown" not in changed["metadata"]["annotations"]
    with pytest.raises(InvalidError, match="annotations: Too long"):
        await shell.executor.run([Patch(resource=CONFIGMAPS, target=changed, body=body)])


@pytest.mark.parametrize("error", [ForbiddenError("403: no right"), WebhookError("500: failed calling webhook")])
async def test_what_only_shows_holds_up_nothing_where_the_server_takes_no_such_write(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    await shell.executor.run([Create(resource=CONFIGMAPS, manifest=config_map())])
    patch = shell.client.patch

    async def refuse_annotations(resource: Resource, name: str, namespace: str | None, body: Any, **more: Any) -> Any:
        if "annotations" in body.body.get("metadata", {}):
            raise error
        return await patch(resource, name, namespace, body, **more)

    monkeypatch.setattr(shell.client, "patch", refuse_annotations)
    present = shell.cached()
    assert present is not None
    body = {"metadata": {"annotations": {"shown": "x"}}}
    shows = Patch(resource=CONFIGMAPS, target=present, body=body, only_shows=True)
    changes = Patch(resource=CONFIGMAPS, target=present, body={"data": {"a": "changed"}})
    assert not await shell.executor.run([shows, changes])
    assert shell.unshown == ["one"]
    told = {"reason": "NotShown", "note": str(error), "warning": True}
    assert [event for regarding, event in shell.done if regarding == present] == [told]
    changed = shell.cached()
    assert changed is not None
    assert changed["data"] == {"a": "changed"}
    with pytest.raises(type(error)):
        await shell.executor.run([Patch(resource=CONFIGMAPS, target=changed, body=body)])
