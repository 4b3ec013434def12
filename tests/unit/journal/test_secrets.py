"""What is found of a corpus of secrets, what is not, and what is left alone: the documents claim no more than this."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.journal.redaction import MARK, Redactor
from unit.journal.secrets import HARMLESS, HIDDEN, NOT_FOUND, TEXTS, TOKENS, VALUES

KEYED = Redactor.keyed(b"k" * 32)
PLACES: dict[str, Any] = {
    "args": lambda text: {"spec": {"containers": [{"args": ["sh", "-c", text]}]}},
    "annotation": lambda text: {"metadata": {"annotations": {"note": text}}},
    "message": lambda text: {"status": {"conditions": [{"message": text}]}},
    "JSON in text": lambda text: {"data": orjson.dumps({"x": [text]}).decode()},
}
FOUND = (
    [
        pytest.param(text.replace("{{", "{").replace("}}", "}").replace("{}", HIDDEN), HIDDEN, id=name)
        for name, text in TEXTS.items()
    ]
    + [pytest.param(f"use {token} here", token, id=name) for name, token in TOKENS.items()]
    + [pytest.param(f"x={token}", token, id=f"{name}, assigned") for name, token in TOKENS.items()]
)


def plain(secret: str) -> str:
    """The secret without line feeds, as JSON would escape them."""
    return max(secret.split("\n"), key=len)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
@pytest.mark.parametrize(("text", "secret"), FOUND)
@pytest.mark.parametrize("redactor", [Redactor(), KEYED], ids=["export", "recording"])
def test_what_is_found(text: str, secret: str, place: Any, redactor: Redactor) -> None:
    value = place(text)
    clean = redactor.value(value)
    written = orjson.dumps(clean)
    assert plain(secret).encode() not in written
    assert b"(redacted" in written
    assert redactor.value(clean) == clean
    assert orjson.loads(redactor.encoded(orjson.dumps(value))) == clean, "nothing is passed over for speed"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_values_that_their_place_gives_away(value: Any) -> None:
    for redactor in (Redactor(), KEYED):
        clean = redactor.value(value)
        assert HIDDEN.encode() not in orjson.dumps(clean)
        assert redactor.value(clean) == clean
        assert orjson.loads(redactor.encoded(orjson.dumps(value))) == clean


@pytest.mark.parametrize("text", NOT_FOUND.values(), ids=NOT_FOUND.keys())
def test_what_is_not_found(text: str) -> None:
    """Where one of these is found one day, it moves up, and the documents may claim it."""
    assert KEYED.value({"args": [text]}) == {"args": [text]}


@pytest.mark.parametrize("value", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_is_left_alone(value: Any) -> None:
    assert KEYED.value(value) is value
    encoded = orjson.dumps(value)
    assert KEYED.encoded(encoded) is encoded


def test_equal_secrets_have_equal_marks_under_one_key() -> None:
    def marks(redactor: Redactor, *secrets: str) -> list[str]:
        env = [{"name": "A", "value": secret} for secret in secrets]
        return [entry["value"] for entry in redactor.value({"env": env})["env"]]

    one, again, other = marks(KEYED, "a-secret", "a-secret", "b-secret")
    assert one == again != other
    assert marks(Redactor.keyed(b"l" * 32), "a-secret") != [one]
    assert marks(KEYED, one, MARK, "") == [one, MARK, ""], "a mark stays, and so does nothing"


PARTS = st.sampled_from([*TEXTS.values(), *TOKENS.values(), MARK, "password", "=", ": ", "--", '"', "://", "@", "\n"])


@given(parts=st.lists(PARTS | st.text(max_size=8), max_size=6))
def test_searching_again_finds_nothing_more(parts: list[str]) -> None:
    text = "".join(parts)
    clean = KEYED.value({"args": [text], "x": text})
    assert KEYED.value(clean) == clean


@given(parts=st.lists(PARTS | st.text("0a1BfF.-_Key", max_size=8), max_size=6), name=st.sampled_from(["note", "token"]))
def test_what_has_the_shape_of_harmless_json_is_searched(parts: list[str], name: str) -> None:
    annotations = {name: "".join(parts)}
    assert KEYED.encoded(orjson.dumps(annotations)) == orjson.dumps(KEYED.value(annotations))
    assert KEYED.metadata({"annotations": annotations}) == KEYED.value({"annotations": annotations})


@pytest.mark.parametrize("unit", ["a", "a=", "password", "://", "--password ", "eyJ", '"', "password: ", "bearer "])
def test_a_long_text_takes_no_long_time(unit: str) -> None:
    """A mebibyte of what the patterns begin with."""
    KEYED.value({"x": unit * (2**20 // len(unit))})
