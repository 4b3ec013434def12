"""Objects whose large parts are kept as JSON are read as any others."""

import copy
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.kube.cache import Cache
from slicebus.kube.lists import decode_list
from slicebus.kube.packed import Packed, encoded_part, packed

ENV = [{"name": f"V{number:05}", "value": "1"} for number in range(1000)]
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "team", "uid": "u", "resourceVersion": "1"},
    "spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "main", "env": ENV}]}}},
    "status": {"active": 2},
}


def plain() -> dict[str, Any]:
    return copy.deepcopy(JOB)


def test_large_parts_are_json_and_read_as_they_were() -> None:
    made = packed(plain())
    assert isinstance(made, Packed)
    assert made["spec"] == JOB["spec"]
    assert made.get("spec") == JOB["spec"]
    assert (made.get("other"), made.get("other", 1)) == (None, 1)
    assert list(made) == list(made.keys()) == list(JOB)
    assert dict(made.items()) == JOB
    assert list(made.values()) == list(JOB.values())
    with pytest.raises(KeyError):
        made["other"]


WAYS: dict[str, Any] = {
    "dict": dict,
    "a display": lambda made: {**made},
    "copy": lambda made: made.copy(),
    "a shallow copy": copy.copy,
    "a deep copy": copy.deepcopy,
    "or": lambda made: made | {},
    "or from the left": lambda made: {} | made,
    "update": lambda made: updated(made),
    "orjson": lambda made: orjson.loads(orjson.dumps(made)),
    "inside of another": lambda made: orjson.loads(orjson.dumps({"object": made}))["object"],
}


def updated(made: Any) -> dict[str, Any]:
    plain_one: dict[str, Any] = {}
    plain_one.update(made)
    return plain_one


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_whatever_copies_it_gets_everything(way: Any) -> None:
    found = way(packed(plain()))
    assert type(found) is dict
    assert found == JOB
    assert type(found["spec"]) is dict


def test_it_equals_what_it_was() -> None:
    assert packed(plain()) == JOB
    assert packed(plain()) == JOB
    assert packed(plain()) == packed(plain())
    assert packed(plain()) != JOB | {"spec": {}}


def test_a_deep_copy_is_ones_own() -> None:
    made = packed(plain())
    copy.deepcopy(made)["spec"]["template"]["spec"]["containers"][0]["name"] = "changed"
    assert made == JOB


def test_small_objects_stay_as_they_are() -> None:
    small = {"kind": "Job", "metadata": {"name": "a"}, "spec": {"parallelism": 1}, "status": {}}
    assert packed(small) is small
    made = packed(plain())
    assert packed(made) is made


def test_a_large_status_is_packed_too() -> None:
    made = packed(plain() | {"status": {"conditions": [{"type": f"T{number}"} for number in range(2000)]}})
    assert encoded_part(made, "status") == orjson.dumps(made["status"])
    assert {name for name, _ in made._encoded} == {"spec", "status"}  # type: ignore[attr-defined]


def test_the_json_of_a_part_needs_no_decoding() -> None:
    made = packed(plain())
    for name in JOB:
        assert encoded_part(made, name) == encoded_part(JOB, name) == orjson.dumps(JOB[name])


def test_what_is_no_json_stays() -> None:
    deep: list[Any] = []
    for _ in range(300):
        deep = [deep]
    odd = plain() | {"spec": {"deep": deep}}
    assert packed(odd) is odd


def test_texts_that_come_again_are_kept_once() -> None:
    condition = {"type": "Admitted", "reason": "because it is so"}
    one, other = (packed(orjson.loads(orjson.dumps(JOB | {"status": {"conditions": [condition]}}))) for _ in range(2))
    first, second = (each["status"]["conditions"][0] for each in (one, other))
    assert first["reason"] is second["reason"]


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
)


@given(spec=JSON, status=JSON)
def test_any_object_is_read_as_it_was(spec: Any, status: Any) -> None:
    made = plain() | {"spec": {"padding": "x" * 300, "any": spec}, "status": status}
    before = copy.deepcopy(made)
    assert packed(made) == before
    assert dict(packed(made).items()) == before


def test_a_cache_that_packs_keeps_json_and_not_trees() -> None:
    cache, seen = Cache(packs=True), []
    cache.subscribe(seen.append)
    cache.put(plain())
    kept = cache.get("team", "train")
    assert isinstance(kept, Packed)
    assert kept == JOB
    assert seen[0].new is kept
    [(_, encoded)] = kept._encoded
    assert sys.getsizeof(encoded) < len(orjson.dumps(JOB["spec"])) + 64


def test_a_list_is_packed_item_by_item() -> None:
    alive: list[int] = []

    class Tree(dict[str, Any]):
        def __del__(self) -> None:
            alive.remove(id(self))

    def shape(item: dict[str, Any]) -> dict[str, Any]:
        assert not alive, "the tree before has gone"
        tree = Tree(item)
        alive.append(id(tree))
        return packed(dict(tree))

    items = [JOB | {"metadata": JOB["metadata"] | {"name": f"train-{number}"}} for number in range(5)]
    body = orjson.dumps({"metadata": {"resourceVersion": "9", "continue": "more"}, "items": items})
    page = decode_list(body).page({"kind": "Job"}, shape)
    assert (page.items, page.resource_version, page.continue_token) == (items, "9", "more")
    assert all(isinstance(item, Packed) for item in page.items)
    assert decode_list(b'{"metadata":{},"items":null}').page({}, shape).items == []
