"""The annotation that says why a job waits: what it holds, and when two of them say the same."""

import orjson
import pytest
from msgspec import structs

from slicebus.proto.messages import PodProblem
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import (
    PODS_NOT_RUNNING,
    SURPLUS,
    Waiting,
    lacks,
    with_pods,
    without_details,
    without_numbers,
    without_pod_names,
    without_pods,
)

WAITS = Waiting.of(
    {"head": 1, "gpu-4": 5},
    {"head": 1, "gpu-4": 1, "gone": 3},
    reason="Pending",
    message="insufficient unused quota for cpu in flavor pool-1, 2500m more needed",
    since="2026-01-31T12:00:00Z",
    would_admit="2500m more cpu of flavor pool-1",
)


def manifest(text: str | None) -> dict[str, dict[str, dict[str, str]]]:
    return {"metadata": {"annotations": {api_names.WAITING_ANNOTATION: text}} if text is not None else {}}


def test_it_is_json_that_users_read() -> None:
    assert orjson.loads(WAITS.to_annotation()) == {
        "wanted": {"head": 1, "gpu-4": 5},
        "granted": {"head": 1, "gpu-4": 1},
        "reason": "Pending",
        "message": WAITS.message,
        "since": "2026-01-31T12:00:00Z",
        "wouldAdmit": WAITS.would_admit,
    }
    assert Waiting.from_manifest(manifest(WAITS.to_annotation())) == WAITS


def test_what_would_admit_it_is_left_out_where_nobody_knows() -> None:
    assert "wouldAdmit" not in orjson.loads(structs.replace(WAITS, would_admit="").to_annotation())


@pytest.mark.parametrize("text", [None, "", "{", "{}", "[1]", "x" * 9, '{"wanted":{"a":-1}}', "[" * 5000])
def test_what_nobody_can_read_is_nothing(text: str | None) -> None:
    assert Waiting.from_manifest(manifest(text)) is None


def test_texts_are_bounded() -> None:
    """All annotations of an object share 256 KiB."""
    long = Waiting.of({}, {}, reason="Pending", message="x" * 50_000, since="", would_admit="y" * 50_000)
    assert len(long.to_annotation()) < 5000


SAME: dict[str, tuple[dict[str, object], bool]] = {
    "nothing": ({}, True),
    "another amount": ({"message": WAITS.message.replace("2500m", "3")}, True),
    "another amount that would admit it": ({"would_admit": "1Gi more cpu of flavor pool-1"}, True),
    "another flavor": ({"message": WAITS.message.replace("pool-1", "pool-2")}, False),
    "another resource": ({"message": WAITS.message.replace("cpu", "memory")}, False),
    "another reason": ({"reason": "Inadmissible"}, False),
    "another size": ({"wanted": {"head": 1, "gpu-4": 6}}, False),
    "another grant": ({"granted": {"head": 1, "gpu-4": 2}}, False),
    "another time": ({"since": "2026-01-31T12:00:01Z"}, False),
}


@pytest.mark.parametrize(("changes", "same"), SAME.values(), ids=SAME.keys())
def test_numbers_in_texts_are_no_other_story(changes: dict[str, object], same: bool) -> None:
    assert WAITS.says_same(structs.replace(WAITS, **changes)) is same
    assert not WAITS.says_same(None)


def test_the_number_of_pods_that_are_too_many_is_a_story() -> None:
    past = structs.replace(WAITS, reason=SURPLUS, message="2 pods run")
    assert not past.says_same(structs.replace(past, message="1 pod runs"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4 more needed", "# more needed"),
        ("needs 1.5 cpu, 2Gi and 300m", "needs # cpu, # and #"),
        ("flavor a100, pool-2, 2-pool and nvidia.com/gpu", "flavor a100, pool-2, 2-pool and nvidia.com/gpu"),
    ],
)
def test_a_number_stands_alone(text: str, expected: str) -> None:
    assert without_numbers(text) == expected


TRIES: dict[str, tuple[str, str]] = {
    "a port": (
        'Post "https://hook.kuberay.svc:443": read tcp 10.244.0.5:34567->10.96.12.3:443: connection reset by peer',
        'Post "https://hook.kuberay.svc:443": read tcp 10.244.0.9:51002->10.96.12.3:443: connection reset by peer',
    ),
    "a port of IPv6": ("dial tcp [fd00::5]:34567: refused", "dial tcp [fd00::a1]:51002: refused"),
    "a duration": ("timed out after 1.234s", "timed out after 981.5ms"),
    "a long one": ("tries again in 1m30.5s", "tries again in 2m1s"),
    "a value that is one": ("took=12s", "took=340µs"),
    "a time": ("failed at 20261129T215613Z", "failed at 20261130T004501Z"),
    "a place in memory": ("object 0xc000a1b2c3 is no Job", "object 0xc000ffb2c3 is no Job"),
    "a trace": ("trace 4bf92f3577b34da6a3ce929d0e0e4736", "trace 00f067aa0ba902b7a3ce929d0e0e4736"),
}


@pytest.mark.parametrize(("text", "again"), TRIES.values(), ids=TRIES.keys())
def test_another_try_says_the_same(text: str, again: str) -> None:
    assert without_details(text) == without_details(again)


@pytest.mark.parametrize(
    "text", ["pool-2h and a100", "sha256:4bf92f3577b34da6a3ce929d0e0e4736", "deadbeefdeadbeefdeadbeef", "v1.2.3.4-rc"]
)
def test_a_name_is_no_detail(text: str) -> None:
    assert without_details(text) == text


@pytest.mark.parametrize(
    ("wanted", "granted", "expected"),
    [
        ({"a": 1}, {"a": 1}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 2}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}, True),
        ({"a": 1}, {"a": 1, "b": 0}, True),
        ({"a": 1, "b": 0}, {"a": 1}, True),
    ],
)
def test_what_is_lacking(wanted: dict[str, int], granted: dict[str, int], expected: bool) -> None:
    assert lacks(wanted, granted) is expected


NO_NODE = PodProblem("Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.", "2026-01-31T12:00:10Z")
NO_IMAGE = PodProblem("ImagePullBackOff", "image i of container c cannot be pulled", "2026-01-31T12:00:20Z")
SIZES = {"wanted": {"head": 1, "gpu-4": 5}, "granted": {"head": 1, "gpu-4": 5}}


def test_pods_that_do_not_run_are_a_reason_of_their_own() -> None:
    shown = with_pods(None, {"gpu-4": NO_NODE, "head": NO_IMAGE}, **SIZES)
    assert shown is not None
    assert (shown.reason, shown.since) == (PODS_NOT_RUNNING, NO_NODE.since)
    assert shown.message == (
        f"pods of head do not run: ImagePullBackOff: {NO_IMAGE.message}; "
        f"pods of gpu-4 do not run: Unschedulable: {NO_NODE.message}"
    )
    assert orjson.loads(shown.to_annotation())["pods"]["head"] == {
        "reason": "ImagePullBackOff",
        "message": NO_IMAGE.message,
        "since": NO_IMAGE.since,
    }
    assert Waiting.from_manifest(manifest(shown.to_annotation())) == shown
    assert without_pods(shown) is None


def test_they_stand_beside_another_reason() -> None:
    shown = with_pods(WAITS, {"head": NO_NODE}, **SIZES)
    assert shown == structs.replace(WAITS, pods={"head": NO_NODE})
    assert not WAITS.says_same(shown)
    assert without_pods(shown) == WAITS
    assert with_pods(shown, {}, **SIZES) == WAITS
    assert with_pods(None, {}, **SIZES) is None


def test_in_brief_it_is_the_worst_of_them() -> None:
    shown = with_pods(None, {"gpu-4": NO_NODE, "head": NO_IMAGE}, **SIZES)
    assert shown is not None
    assert shown.in_brief == f"ImagePullBackOff: {NO_IMAGE.message}"
    assert WAITS.in_brief == f"Pending: {WAITS.message}"
    beside = with_pods(WAITS, {"head": NO_NODE}, **SIZES)
    assert beside is not None
    assert beside.in_brief == WAITS.in_brief


PODS_SAME = {
    "another number": ({"message": NO_NODE.message.replace("3", "4")}, True),
    "other words": ({"message": "0/3 nodes are available: 3 Insufficient memory."}, False),
    "another reason": ({"reason": "SchedulerError"}, False),
    "another time": ({"since": "2026-01-31T12:00:11Z"}, False),
}


@pytest.mark.parametrize(("changes", "same"), PODS_SAME.values(), ids=PODS_SAME.keys())
def test_numbers_are_no_other_story_of_pods(changes: dict[str, str], same: bool) -> None:
    shown, other = (
        with_pods(WAITS, {"head": problem}, **SIZES) for problem in (NO_NODE, structs.replace(NO_NODE, **changes))
    )
    assert shown is not None
    assert shown.says_same(other) is same


@pytest.mark.parametrize(
    "text",
    [
        f"train{'-22222' * 200}_",
        f"train{'-1' * 20_000}",
        f"train{'-bbbbb' * 8000}_",
        f"train{'-b' * 20_000} ",
    ],
    ids=["parts that are numbers and suffixes", "numbers", "suffixes", "letters"],
)
@pytest.mark.timeout(60)
def test_a_text_that_a_tenant_wrote_takes_no_time(text: str) -> None:
    """A tenant may write Events about its job. Each part that can be read in two ways once doubled the time."""
    without_pod_names(text, of=["train"])
    without_details(text)
