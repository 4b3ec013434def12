"""When a failure has lasted for so long that it is told."""

from math import inf

import pytest

from slicebus.ambient.lasting_failures import OBJECT_PATIENCE, LastingFailures, Patience
from slicebus.kube.failures import error_of
from slicebus.proto.errors import (
    ConflictError,
    DecisionError,
    ForbiddenError,
    SlicebusError,
    ThrottledError,
    UnavailableError,
    WebhookError,
)

PATIENCE = Patience(webhook_s=5.0, server_s=15.0, conflict_s=30.0)
DOWN, FAILS, AWAY = WebhookError("500: no webhook"), error_of(500, b"{}"), UnavailableError("no connection")

WAITED_FOR: dict[str, tuple[SlicebusError, float]] = {
    "a refusal": (ForbiddenError("403"), 0.0),
    "a webhook is down": (DOWN, 5.0),
    "the server fails at it": (FAILS, 15.0),
    "something is in the way": (ConflictError("409"), 30.0),
    "the server is away": (AWAY, inf),
    "the server asks to come back later": (ThrottledError("429"), inf),
    "a decision raised": (DecisionError("decide", "0", "KeyError"), inf),
}


@pytest.mark.parametrize(("error", "expected"), WAITED_FOR.values(), ids=WAITED_FOR.keys())
def test_how_long_an_error_is_waited_for(error: SlicebusError, expected: float) -> None:
    assert PATIENCE.of(error) == expected


@pytest.mark.parametrize(("error", "patience_s"), WAITED_FOR.values(), ids=WAITED_FOR.keys())
def test_a_failure_is_told_when_it_has_lasted_so_long(error: SlicebusError, patience_s: float) -> None:
    failures, began_s = LastingFailures[str](PATIENCE), 100.0
    told = [failures.has_lasted("a", error, now_s=began_s + after_s) for after_s in range(60)]
    assert told == [after_s >= patience_s for after_s in range(60)]


def test_keys_fail_each_for_themselves() -> None:
    failures = LastingFailures[str](PATIENCE)
    failures.has_lasted("a", FAILS, now_s=0.0)
    assert not failures.has_lasted("b", FAILS, now_s=15.0)
    assert failures.has_lasted("a", FAILS, now_s=15.0)


def test_a_key_that_was_handled_begins_anew() -> None:
    failures = LastingFailures[str](PATIENCE)
    failures.has_lasted("a", FAILS, now_s=0.0)
    failures.forget("a")
    failures.forget("unknown")
    assert not failures.has_lasted("a", FAILS, now_s=15.0)
    assert failures.has_lasted("a", FAILS, now_s=30.0)


def test_kinds_that_are_waited_for_share_one_beginning() -> None:
    failures = LastingFailures[str](PATIENCE)
    assert not failures.has_lasted("a", DOWN, now_s=0.0)
    assert not failures.has_lasted("a", FAILS, now_s=10.0)
    assert failures.has_lasted("a", DOWN, now_s=10.0)
    assert failures.has_lasted("a", FAILS, now_s=15.0)


@pytest.mark.parametrize("error", [ForbiddenError("403"), AWAY, DOWN], ids=["a refusal", "away", "told at once"])
def test_what_is_not_waited_for_begins_nothing(error: SlicebusError) -> None:
    failures = LastingFailures[str](OBJECT_PATIENCE)
    failures.has_lasted("a", error, now_s=0.0)
    assert not failures.has_lasted("a", FAILS, now_s=20.0)
    assert failures.has_lasted("a", FAILS, now_s=40.0)
