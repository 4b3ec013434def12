"""A reflector against a scripted source: its requests, their times, and the content of its cache."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from slicebus.kube.cache import Cache, Change
from slicebus.kube.client import KubeClient, WatchEvent
from slicebus.kube.lists import ListPage
from slicebus.kube.reflector import Reflector
from slicebus.kube.resources import CONFIGMAPS
from slicebus.proto.errors import (
    ExpiredError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)
from unit.kube.loop_time import START_S, LoopTime

Manifest = dict[str, Any]
Watched = list[WatchEvent | Exception | float]
"""A number is how long nothing comes, in seconds."""


def an_object(name: str, version: int, *, uid: str = "") -> Manifest:
    uid = uid or f"uid-{name}"
    return {"metadata": {"namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version)}}


def page(version: int, *items: Manifest, more: str = "") -> ListPage:
    return ListPage(items=list(items), resource_version=str(version), continue_token=more)


def event(type: Any, name: str, version: int, *, uid: str = "") -> WatchEvent:
    return WatchEvent(type, an_object(name, version, uid=uid))


def bookmark(version: int) -> WatchEvent:
    return WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


class Source:
    """Answers in the order of a script, and then never again."""

    def __init__(self, *script: ListPage | Watched | Exception) -> None:
        self._script = deque(script)
        self.asked: list[tuple[Any, ...]] = []
        self.at: list[float] = []
        self.over = asyncio.Event()

    pages = KubeClient.pages

    async def list(self, resource: Any, *, continue_token: str | None, **_: Any) -> ListPage:
        answer = await self._next("list", continue_token)
        assert isinstance(answer, ListPage)
        return answer

    async def watch(self, resource: Any, *, resource_version: str, **_: Any) -> AsyncIterator[WatchEvent]:
        answer = await self._next("watch", resource_version)
        assert isinstance(answer, list)
        for each in answer:
            if isinstance(each, Exception):
                raise each
            if isinstance(each, float):
                await asyncio.sleep(each)
            else:
                yield each

    async def _next(self, *asked: Any) -> ListPage | Watched:
        self.asked.append(asked)
        self.at.append(asyncio.get_running_loop().time() - START_S)
        if not self._script:
            self.over.set()
            await asyncio.Event().wait()
        answer = self._script.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def play(*script: ListPage | Watched | Exception) -> tuple[Source, Cache]:
    """Run a reflector until the script is over."""
    source, cache = Source(*script), Cache()
    running = asyncio.create_task(Reflector(source, CONFIGMAPS, cache).run())
    await asyncio.wait((running, asyncio.create_task(source.over.wait())), return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return source, cache


def names(cache: Cache) -> list[str]:
    return sorted(manifest["metadata"]["name"] for manifest in cache.all())


STORIES: dict[str, tuple[list[ListPage | Watched | Exception], list[tuple[Any, ...]], list[str]]] = {
    "list, then watch from there": (
        [page(5, an_object("a", 3)), [event("ADDED", "b", 6)]],
        [("list", None), ("watch", "5"), ("watch", "6")],
        ["a", "b"],
    ),
    "a list of several pages": (
        [page(5, an_object("a", 1), more="t1"), page(5, an_object("b", 2), more="t2"), page(5, an_object("c", 3))],
        [("list", None), ("list", "t1"), ("list", "t2"), ("watch", "5")],
        ["a", "b", "c"],
    ),
    "a page that has expired begins the list again": (
        [page(5, an_object("a", 1), more="t1"), ExpiredError("410"), page(9, an_object("b", 8))],
        [("list", None), ("list", "t1"), ("list", None), ("watch", "9")],
        ["b"],
    ),
    "events change the cache": (
        [
            page(5, an_object("a", 3), an_object("b", 4)),
            [event("MODIFIED", "a", 6), event("DELETED", "b", 7), event("ADDED", "c", 8)],
        ],
        [("list", None), ("watch", "5"), ("watch", "8")],
        ["a", "c"],
    ),
    "a bookmark moves the place and nothing else": (
        [page(5, an_object("a", 3)), [bookmark(40)]],
        [("list", None), ("watch", "5"), ("watch", "40")],
        ["a"],
    ),
    "a watch that ends goes on where it was": (
        [page(5), [event("ADDED", "a", 6)], [], [event("ADDED", "b", 9)]],
        [("list", None), ("watch", "5"), ("watch", "6"), ("watch", "6"), ("watch", "9")],
        ["a", "b"],
    ),
    "a connection that breaks goes on where it was": (
        [page(5), [event("ADDED", "a", 6), UnavailableError("reset")], [event("ADDED", "b", 7)]],
        [("list", None), ("watch", "5"), ("watch", "6"), ("watch", "7")],
        ["a", "b"],
    ),
    "410 at once lists again and finds what went meanwhile": (
        [page(5, an_object("a", 3), an_object("b", 4)), ExpiredError("410"), page(30, an_object("b", 4))],
        [("list", None), ("watch", "5"), ("list", None), ("watch", "30")],
        ["b"],
    ),
    "410 in the middle of a watch": (
        [page(5), [event("ADDED", "a", 6), ExpiredError("410")], page(30, an_object("c", 20))],
        [("list", None), ("watch", "5"), ("list", None), ("watch", "30")],
        ["c"],
    ),
    "no list can be had": (
        [UnavailableError("down"), ForbiddenError("403"), ThrottledError("429"), page(5, an_object("a", 1))],
        [("list", None)] * 4 + [("watch", "5")],
        ["a"],
    ),
    "no watch can be had: what is known stays": (
        [page(5, an_object("a", 1)), ForbiddenError("403"), InvalidError("400")],
        [("list", None), ("watch", "5"), ("watch", "5"), ("watch", "5")],
        ["a"],
    ),
}


@pytest.mark.parametrize(("script", "asked", "left"), STORIES.values(), ids=STORIES.keys())
async def test_a_scenario(
    jumping: LoopTime,
    script: list[ListPage | Watched | Exception],
    asked: list[tuple[Any, ...]],
    left: list[str],
) -> None:
    source, cache = await play(*script)
    assert source.asked == asked
    assert names(cache) == left


async def test_an_object_that_went_between_two_lists_is_removed(jumping: LoopTime) -> None:
    source, cache = Source(page(5, an_object("a", 3)), ExpiredError("410"), page(30)), Cache()
    heard: list[Change] = []
    cache.subscribe(heard.append)
    running = asyncio.create_task(Reflector(source, CONFIGMAPS, cache).run())
    await source.over.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [(change.old is not None, change.new is not None) for change in heard] == [(False, True), (True, False)]


async def test_it_is_synced_only_when_every_page_is_there(jumping: LoopTime) -> None:
    _, cache = await play(page(5, an_object("a", 1), more="t1"))
    assert not cache.synced.is_set()
    assert names(cache) == []


async def test_pauses_grow_to_half_a_minute_while_nothing_comes(jumping: LoopTime) -> None:
    source, _ = await play(*[UnavailableError("down")] * 11)
    pauses = [round(later - earlier, 3) for earlier, later in zip(source.at, source.at[1:], strict=False)]
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0, 30.0]


@pytest.mark.parametrize("sign", [event("ADDED", "a", 6), bookmark(7)], ids=["an event", "a bookmark"])
async def test_an_event_makes_the_next_pause_short(jumping: LoopTime, sign: WatchEvent) -> None:
    source, _ = await play(page(5), *[UnavailableError("down")] * 4, [sign])
    assert source.at[-1] - source.at[-2] == pytest.approx(0.2)


async def test_a_server_that_closes_every_watch_at_once_is_not_asked_in_a_loop(jumping: LoopTime) -> None:
    source, _ = await play(page(5), *[[] for _ in range(20)])
    assert source.at[-1] > 300


async def test_a_watch_that_has_lasted_is_followed_by_the_next_at_once(jumping: LoopTime) -> None:
    source, _ = await play(page(5), [20.0, bookmark(7)], [20.0, bookmark(8)])
    assert source.asked == [("list", None), ("watch", "5"), ("watch", "7"), ("watch", "8")]
    assert source.at == [0, 0, 20, 40]


class Confirmation:
    """Answers whether what went was deleted, when the test says so."""

    def __init__(self, *answers: Exception | None) -> None:
        self._answers = deque(answers)
        self.asked = 0
        self.leaving: list[str] = []
        """The names of the objects that it was asked about."""
        self.may_answer = asyncio.Event()

    async def __call__(self, leaving: Sequence[Manifest]) -> None:
        self.asked += 1
        self.leaving += [manifest["metadata"]["name"] for manifest in leaving]
        await self.may_answer.wait()
        answer = self._answers.popleft() if self._answers else None
        if answer is not None:
            raise answer


def going(name: str, version: int, *, uid: str = "") -> WatchEvent:
    manifest = an_object(name, version, uid=uid)
    return WatchEvent("MODIFIED", manifest | {"metadata": manifest["metadata"] | {"deletionTimestamp": "now"}})


async def confirmed(
    confirm: Confirmation, *script: ListPage | Watched | Exception, cache: Cache | None = None
) -> tuple[Source, Cache, asyncio.Task[None]]:
    """Run a reflector that has what goes confirmed until the script is over."""
    source, cache = Source(*script), Cache() if cache is None else cache
    task = asyncio.create_task(Reflector(source, CONFIGMAPS, cache, confirm=confirm).run())
    ended = asyncio.create_task(source.over.wait())
    await asyncio.wait((task, ended), return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    return source, cache, task


async def over(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_removal_is_confirmed_first_and_delays_nothing(jumping: LoopTime) -> None:
    confirm = Confirmation()
    events = [event("DELETED", "a", 6), going("b", 7), event("DELETED", "c", 8), event("ADDED", "d", 9)]
    _, cache, task = await confirmed(confirm, page(5, *(an_object(name, 3) for name in "abc")), events)
    assert names(cache) == ["a", "b", "c", "d"]
    assert not [manifest for manifest in cache.all() if "deletionTimestamp" in manifest["metadata"]]
    confirm.may_answer.set()
    await asyncio.sleep(1)
    assert names(cache) == ["b", "d"]
    assert [m["metadata"]["name"] for m in cache.all() if "deletionTimestamp" in m["metadata"]] == ["b"]
    assert confirm.asked <= 2, "what came meanwhile is one question"
    assert sorted(confirm.leaving) == ["a", "b", "c"]
    await over(task)


async def test_what_this_process_deletes_goes_unasked(jumping: LoopTime) -> None:
    confirm, cache = Confirmation(), Cache()
    cache.expect_removal("uid-a")
    events = [going("a", 6), event("DELETED", "a", 7), event("DELETED", "b", 8)]
    _, _, task = await confirmed(confirm, page(5, an_object("a", 3), an_object("b", 3)), events[:2], cache=cache)
    await asyncio.sleep(1)
    assert (names(cache), confirm.asked) == (["b"], 0)
    assert not cache.is_removed_here(an_object("a", 7)), "once gone it is forgotten"
    await over(task)


@pytest.mark.parametrize("uid", ["", "another"], ids=["another object", "another of its name"])
async def test_what_others_delete_is_asked_about(jumping: LoopTime, uid: str) -> None:
    """Also beside an object that this process deletes."""
    confirm, cache = Confirmation(), Cache()
    cache.expect_removal("uid-a")
    lost = event("DELETED", "b", 7) if not uid else event("ADDED", "a", 7, uid=uid)
    events = [event("DELETED", "a", 6), lost]
    _, _, task = await confirmed(confirm, page(5, an_object("a", 3), an_object("b", 3)), events, cache=cache)
    await asyncio.sleep(1)
    assert confirm.leaving == ["a" if uid else "b"]
    await over(task)


async def test_a_reflector_that_is_cancelled_ends_as_cancelled_whatever_its_requests_raise_then(
    jumping: LoopTime,
) -> None:
    """Otherwise whoever runs it would go on, and a role that has lost its Lease would never end."""
    asked = asyncio.Event()

    async def confirm(leaving: Sequence[Manifest]) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise NotFoundError("no definition") from None

    source = Source(page(5, an_object("a", 3)), [event("DELETED", "a", 6)])
    task = asyncio.create_task(Reflector(source, CONFIGMAPS, Cache(), confirm=confirm).run())
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_confirmation_without_an_answer_is_retried(jumping: LoopTime) -> None:
    confirm = Confirmation(UnavailableError("away"), UnavailableError("away"))
    confirm.may_answer.set()
    _, cache, task = await confirmed(confirm, page(5, an_object("a", 3)), [event("DELETED", "a", 6)])
    await asyncio.sleep(5)
    assert (names(cache), confirm.asked) == ([], 3)
    await over(task)


@pytest.mark.parametrize(
    "script",
    [
        [page(5, an_object("a", 3)), [event("DELETED", "a", 6)]],
        [page(5, an_object("a", 3)), [going("a", 6)]],
        [page(5, an_object("a", 3)), [event("DELETED", "a", 6), event("ADDED", "a", 7, uid="next")]],
        [page(5, an_object("a", 3)), ExpiredError("410"), page(30)],
        [page(5, an_object("a", 3)), NotFoundError("no such resource")],
    ],
    ids=["deleted", "going", "replaced", "not listed", "not served"],
)
async def test_a_removal_that_is_not_confirmed_ends_the_reflector_and_keeps_the_object(
    jumping: LoopTime, script: list[ListPage | Watched | Exception]
) -> None:
    confirm = Confirmation(NotFoundError("no definition"))
    confirm.may_answer.set()
    _, cache, task = await confirmed(confirm, *script)
    with pytest.raises(NotFoundError, match="no "):
        await task
    assert [manifest["metadata"]["uid"] for manifest in cache.all()] == ["uid-a"]
    assert not [manifest for manifest in cache.all() if "deletionTimestamp" in manifest["metadata"]]


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        ([event("DELETED", "a", 6), event("ADDED", "a", 7, uid="next")], ["uid-a>", ">next"]),
        (
            [event("DELETED", "a", 6), event("ADDED", "a", 7, uid="next"), event("MODIFIED", "a", 8, uid="next")],
            ["uid-a>", ">next", "next"],
        ),
        (
            [going("a", 6), event("DELETED", "a", 7), event("ADDED", "a", 8, uid="next"), going("a", 9, uid="next")],
            ["uid-a", "uid-a>", ">next", "next"],
        ),
        (
            [event(type, "a", at, uid=uid) for type, at, uid in [("DELETED", 6, ""), ("ADDED", 7, "next")]]
            + [event(type, "a", at, uid=uid) for type, at, uid in [("DELETED", 8, "next"), ("ADDED", 9, "last")]],
            ["uid-a>", ">next", "next>", ">last"],
        ),
    ],
    ids=["made again", "and changed", "and both going", "twice"],
)
async def test_another_object_of_the_name_comes_after_the_removal(
    jumping: LoopTime, events: Watched, steps: list[str]
) -> None:
    """Otherwise nobody hears that the first one went."""
    confirm, cache = Confirmation(), Cache()
    heard: list[str] = []
    went: list[str] = []

    def hear(change: Change) -> None:
        old, new = (manifest["metadata"]["uid"] if manifest else "" for manifest in (change.old, change.new))
        heard.append(new if old == new else f"{old}>{new}")

    cache.subscribe(hear)
    cache.on_deleted(lambda manifest: went.append(manifest["metadata"]["uid"]))
    _, _, task = await confirmed(confirm, page(5, an_object("a", 3)), events, cache=cache)
    assert heard == [">uid-a"]
    confirm.may_answer.set()
    await asyncio.sleep(1)
    assert heard == [">uid-a", *steps]
    assert went == [step.removesuffix(">") for step in steps if step.endswith(">")]
    await over(task)


async def test_an_object_whose_name_the_cache_has_for_another_one_was_seen_to_go(jumping: LoopTime) -> None:
    """Somebody has read the other one meanwhile."""
    confirm, cache = Confirmation(), Cache()
    went: list[str] = []
    cache.on_deleted(lambda manifest: went.append(manifest["metadata"]["uid"]))
    _, _, task = await confirmed(confirm, page(5, an_object("a", 3)), [event("DELETED", "a", 6)], cache=cache)
    cache.put(an_object("a", 7, uid="next"))
    confirm.may_answer.set()
    await asyncio.sleep(1)
    assert (went, [manifest["metadata"]["uid"] for manifest in cache.all()]) == (["uid-a"], ["next"])
    await over(task)


async def test_an_object_that_is_back_when_its_removal_is_confirmed_stays(jumping: LoopTime) -> None:
    confirm = Confirmation()
    events = [event("DELETED", "a", 6), event("ADDED", "a", 7)]
    _, cache, task = await confirmed(confirm, page(5, an_object("a", 3)), events)
    confirm.may_answer.set()
    await asyncio.sleep(1)
    assert [manifest["metadata"]["resourceVersion"] for manifest in cache.all()] == ["7"]
    await over(task)


async def test_a_list_outdates_what_is_being_confirmed(jumping: LoopTime) -> None:
    confirm = Confirmation()
    script = [
        page(5),
        [event("ADDED", "a", 6), event("DELETED", "a", 7)],
        ExpiredError("410"),
        page(9, an_object("a", 8)),
    ]
    confirm.may_answer.set()
    _, cache, task = await confirmed(confirm, *script)
    await asyncio.sleep(1)
    assert names(cache) == ["a"]
    await over(task)
