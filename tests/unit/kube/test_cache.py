"""The content of a cache, whatever order the events come in."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.kube.cache import Cache, Change
from slicebus.kube.readings import Readings

Manifest = dict[str, Any]


def an_object(version: int, *, name: str = "a", uid: str = "u1", color: str = "red") -> Manifest:
    return {
        "metadata": {"namespace": "team", "name": name, "uid": uid, "resourceVersion": str(version)},
        "color": color,
    }


def versions(cache: Cache) -> dict[str, int]:
    return {
        f"{m['metadata']['name']}/{m['metadata']['uid']}": int(m["metadata"]["resourceVersion"]) for m in cache.all()
    }


async def play(cache: Cache, *events: tuple[Any, ...]) -> None:
    for what, *rest in events:
        done = getattr(cache, what)(*rest)
        if what == "replace":
            await done


SEQUENCES: dict[str, tuple[list[tuple[Any, ...]], dict[str, int]]] = {
    "a newer state": ([("put", an_object(5)), ("put", an_object(7))], {"a/u1": 7}),
    "an older state that the watch brings after our own write": (
        [("put", an_object(7)), ("put", an_object(5))],
        {"a/u1": 7},
    ),
    "versions are numbers, not text": ([("put", an_object(9)), ("put", an_object(10))], {"a/u1": 10}),
    "deleted": ([("put", an_object(5)), ("remove", an_object(6))], {}),
    "left out with its definition": ([("put", an_object(5)), ("clear",)], {}),
    "left out, and of the definition that has replaced the one before": (
        [("put", an_object(5)), ("clear",), ("replace", [an_object(5)], "6")],
        {"a/u1": 5},
    ),
    "what was under way when it was deleted": (
        [("put", an_object(5)), ("remove", an_object(8)), ("put", an_object(7))],
        {},
    ),
    "our own write, answered before the watch brings the delete": (
        [("put", an_object(5)), ("remove", an_object(8)), ("put", an_object(8))],
        {},
    ),
    "our own write finds that it is gone, and the watch comes to it late": (
        [("put", an_object(7)), ("remove", an_object(5)), ("put", an_object(7))],
        {},
    ),
    "who knew an older state finds late that it is gone, and the answer that ended it comes after": (
        [("put", an_object(7)), ("remove", an_object(8)), ("remove", an_object(5)), ("put", an_object(8))],
        {},
    ),
    "back in the selector's sight": (
        [("put", an_object(5)), ("remove", an_object(8)), ("put", an_object(9))],
        {"a/u1": 9},
    ),
    "back in the selector's sight, found by a list": (
        [("put", an_object(5)), ("remove", an_object(8)), ("replace", [an_object(9)], "10")],
        {"a/u1": 9},
    ),
    "another object has taken the name": ([("put", an_object(5)), ("put", an_object(9, uid="u2"))], {"a/u2": 9}),
    "the delete of the one before comes late": (
        [("put", an_object(5)), ("put", an_object(9, uid="u2")), ("remove", an_object(8))],
        {"a/u2": 9},
    ),
    "a late word of the one before": (
        [("put", an_object(9, uid="u2")), ("put", an_object(5, uid="u1"))],
        {"a/u2": 9},
    ),
    "a list drops what is gone": (
        [("put", an_object(5)), ("put", an_object(6, name="b", uid="u2")), ("replace", [an_object(5)], "20")],
        {"a/u1": 5},
    ),
    "a list keeps what was put in after it was made": (
        [("put", an_object(25)), ("replace", [], "20")],
        {"a/u1": 25},
    ),
    "a list does not bring back an older state": (
        [("put", an_object(25)), ("replace", [an_object(18)], "20")],
        {"a/u1": 25},
    ),
    "what a list dropped does not come back by a late event": (
        [("put", an_object(5)), ("replace", [], "20"), ("put", an_object(18))],
        {},
    ),
    "a list in which another object has the name": (
        [("put", an_object(5)), ("replace", [an_object(15, uid="u2")], "20")],
        {"a/u2": 15},
    ),
}


@pytest.mark.parametrize(("events", "expected"), SEQUENCES.values(), ids=SEQUENCES.keys())
async def test_the_content_of_a_cache(events: list[tuple[Any, ...]], expected: dict[str, int]) -> None:
    cache = Cache()
    await play(cache, *events)
    assert versions(cache) == expected


async def test_it_is_synced_after_the_first_list() -> None:
    cache = Cache()
    cache.put(an_object(1))
    assert not cache.synced.is_set()
    await cache.replace([], "3")
    assert cache.synced.is_set()


async def test_an_index_follows_every_change() -> None:
    cache = Cache(indexes={"color": lambda manifest: [manifest["color"]]})
    cache.put(an_object(1))
    cache.put(an_object(2, name="b", uid="u2"))
    assert len(cache.by("color", "red")) == 2
    cache.put(an_object(3, color="blue"))
    assert [m["metadata"]["name"] for m in cache.by("color", "red")] == ["b"]
    assert [m["metadata"]["name"] for m in cache.by("color", "blue")] == ["a"]
    cache.remove(an_object(4, color="blue"))
    assert cache.by("color", "blue") == []
    assert cache.by("color", "never seen") == []


async def test_an_object_under_several_values_of_an_index() -> None:
    cache = Cache(indexes={"letters": lambda manifest: list(manifest["color"])})
    cache.put(an_object(1, color="ab"))
    cache.put(an_object(2, color="bc"))
    assert [len(cache.by("letters", letter)) for letter in "abc"] == [0, 1, 1]


async def test_others_go_on_while_a_long_list_is_stored() -> None:
    cache, seen = Cache(), list[int]()

    async def look() -> None:
        while True:
            seen.append(len(cache))
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    await cache.replace([an_object(number, name=f"n{number}", uid=f"u{number}") for number in range(1000)], "1000")
    assert (len(cache), cache.synced.is_set()) == (1000, True)
    assert len([count for count in seen if 0 < count < 1000]) >= 3
    seen.clear()
    own = cache.get("team", "n999")
    assert own is not None
    replacing = asyncio.create_task(cache.replace([], "2000"))
    await asyncio.sleep(0)
    cache.put(own | {"metadata": own["metadata"] | {"resourceVersion": "2001"}}, is_own=True)
    await replacing
    assert list(versions(cache).values()) == [2001], "it was written since the list"
    assert len([count for count in seen if 1 < count < 1000]) >= 3
    looking.cancel()


async def test_only_a_watch_brings_the_last_state_of_a_deleted_object() -> None:
    cache, heard = Cache(), list[Change]()
    for number in (1, 2, 3):
        cache.put(an_object(number, name=f"n{number}", uid=f"u{number}"))
    cache.subscribe(heard.append)
    heard.clear()
    last = an_object(8, name="n1", uid="u1", color="last")
    cache.remove(last, is_final=True)
    cache.remove(an_object(2, name="n2", uid="u2"))
    await cache.replace([], "9")
    assert [change.final for change in heard] == [last, None, None]


@pytest.mark.decisions_fail
def test_a_deleted_object_that_nobody_can_read_leaves_all_the_same() -> None:
    cache, deleted = Cache(), list[str]()
    cache.on_deleted(lambda manifest: manifest["color"].lower())
    cache.on_deleted(lambda manifest: deleted.append(manifest["metadata"]["name"]))
    odd = an_object(1) | {"color": 3}
    cache.put(odd)
    cache.remove(odd, is_final=True)
    assert (len(cache), deleted) == (0, ["a"])


def test_the_last_state_of_an_object_fits_as_the_others_do() -> None:
    """How a job was seen last says whether it had ended."""
    cache, heard, deleted = Cache(fitting=lambda manifest: manifest | {"status": {}}), list[Change](), list[Manifest]()
    cache.subscribe(heard.append)
    cache.on_deleted(deleted.append)
    cache.put(an_object(1) | {"status": 5})
    cache.remove(an_object(2) | {"status": 7}, is_final=True)
    assert heard[-1].final is not None
    assert [found["status"] for found in (heard[-1].final, *deleted)] == [{}, {}]


async def test_a_subscriber_gets_present_objects_and_then_every_change() -> None:
    cache, heard = Cache(), list[Change]()
    cache.put(an_object(1))
    cache.subscribe(heard.append)
    cache.put(an_object(2))
    cache.put(an_object(2))
    cache.remove(an_object(3))
    cache.remove(an_object(3))
    assert [
        (c.old and c.old["metadata"]["resourceVersion"], c.new and c.new["metadata"]["resourceVersion"]) for c in heard
    ] == [
        (None, "1"),
        ("1", "2"),
        ("2", None),
    ]


async def test_managed_fields_are_not_kept() -> None:
    cache, came = Cache(), an_object(1)
    came["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    cache.put(came)
    assert cache.all() == [an_object(1)]
    assert "managedFields" in came["metadata"], "whoever has it may need it"


async def test_cluster_scoped_objects_have_no_namespace() -> None:
    cache = Cache()
    cache.put({"metadata": {"name": "east", "uid": "u", "resourceVersion": "1"}})
    assert cache.get(None, "east") is not None
    assert cache.get("", "east") is not None
    assert cache.get("team", "east") is None
    assert len(cache) == 1


EVENTS = [("put", 1), ("put", 2), ("put", 3), ("put", 4), ("put", 5), ("remove", 2), ("remove", 5)]


@given(order=st.permutations(EVENTS))
async def test_every_order_of_one_objects_events_ends_the_same(order: list[tuple[str, int]]) -> None:
    cache = Cache()
    for what, version in order:
        getattr(cache, what)(an_object(version))
    assert len(cache) == 0


async def test_a_list_of_one_namespace_says_nothing_of_others() -> None:
    def of(namespace: str, name: str, version: int) -> Manifest:
        made = an_object(version, name=name, uid=f"{namespace}/{name}")
        return made | {"metadata": made["metadata"] | {"namespace": namespace}}

    cache = Cache()
    cache.expect(["one", "two"])
    await cache.replace([of("one", "a", 1), of("one", "b", 2)], "2", namespace="one")
    assert not cache.synced.is_set()
    await cache.replace([of("two", "a", 3)], "3", namespace="two")
    assert cache.synced.is_set()
    await cache.replace([of("one", "b", 2)], "9", namespace="one")
    assert set(versions(cache)) == {"b/one/b", "a/two/a"}
    cache.expect(["one", "two"])
    await cache.replace([], "10", namespace="two")
    assert not cache.synced.is_set()
    assert set(versions(cache)) == {"b/one/b"}


@pytest.mark.decisions_fail
def test_an_object_that_nobody_can_read_affects_no_other() -> None:
    def colors(manifest: Manifest) -> list[str]:
        return [manifest["color"].lower()]

    cache, seen = Cache(indexes={"color": colors}), list[str]()
    cache.subscribe(lambda change: change.new["metadata"]["color"] if change.new else None)
    cache.subscribe(lambda change: seen.append(change.new["metadata"]["name"] if change.new else "gone"))
    readings = Readings(cache, lambda manifest: manifest["color"].lower())
    odd = an_object(1) | {"color": 3}
    cache.put(odd)
    cache.put(an_object(2, name="b", uid="u2"))
    assert seen == ["a", "b"]
    assert [found["metadata"]["name"] for found in cache.by("color", "red")] == ["b"]
    assert readings.values == {("team", "b"): "red"}
    cache.put(an_object(3))
    assert readings.values == {("team", "a"): "red", ("team", "b"): "red"}
    cache.put(odd | {"metadata": odd["metadata"] | {"resourceVersion": "4"}})
    assert readings.values == {("team", "b"): "red"}
    assert [found["metadata"]["name"] for found in cache.by("color", "red")] == ["b"]
