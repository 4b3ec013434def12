"""A decision that raises becomes one kind of error, which says where and nothing of what it was given."""

from typing import Any

import pytest

from slicebus.decisions.decider import Decider
from slicebus.decisions.guard import guarded
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConflictError, DeadReason, DecisionError, ProtocolError

pytestmark = pytest.mark.decisions_fail


def decision(store: ManagerStore, *, given: Any) -> Any:
    """Stumbles over what it is given."""
    return given["counts"] + 1


def raised(given: Any) -> DecisionError:
    with pytest.raises(DecisionError) as caught:
        Decider(ManagerStore())(decision, given=given)
    return caught.value


def test_it_says_where_and_what_and_nothing_of_its_input() -> None:
    error = raised({"counts": "s3cret"})
    assert str(error) == f"the decision decision raised TypeError, traceback {error.digest}"
    assert isinstance(error.__cause__, TypeError)


def test_the_same_cause_has_the_same_digest() -> None:
    assert raised({"counts": "a"}).digest == raised({"counts": "b"}).digest != raised({}).digest


@pytest.mark.parametrize("error", [ConflictError("409"), ProtocolError(DeadReason.REFUSED, "no")])
def test_what_a_decision_raises_on_purpose_stays_what_it_is(error: Exception) -> None:
    def refuse(store: ManagerStore) -> None:
        raise error

    def refuse_alone() -> None:
        raise error

    for call in (lambda: Decider(ManagerStore())(refuse), lambda: guarded(refuse_alone)):
        with pytest.raises(type(error)) as caught:
            call()
        assert caught.value is error


def test_a_pure_function_that_nobody_records_raises_the_same_error() -> None:
    with pytest.raises(DecisionError, match="the decision int raised ValueError"):
        guarded(int, "x")
