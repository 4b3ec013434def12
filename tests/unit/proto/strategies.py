"""Hypothesis strategies for messages, made from their types."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from slicebus.proto.envelope import SCHEMA_VERSION, Envelope
from slicebus.proto.headers import Headers
from slicebus.proto.messages import MESSAGES, Message

LARGEST = 2**63 - 1
TEXT = st.text(max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)
"""Any JSON."""
PRINTABLE = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
TIMES = st.datetimes().map(lambda time: time.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"))
EXTENSIONS = st.dictionaries(st.from_regex(r"x[a-z0-9]{1,9}", fullmatch=True), PRINTABLE, max_size=2)


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values of a type that are valid by its constraints."""
    match kind:
        case inspect.StructType(cls=cls):
            return structs(cls)
        case inspect.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case inspect.DictType(key_type=names, value_type=inner):
            return st.dictionaries(values_of(names), values_of(inner), max_size=3)
        case inspect.ListType(item_type=inner):
            return st.lists(values_of(inner), max_size=3)
        case inspect.StrType(pattern=str(pattern), max_length=most):
            # The look-ahead at an end refuses a line break, which a full match refuses too.
            texts = st.from_regex(pattern.replace(r"(?!\n)$", "$"), fullmatch=True)
            return texts.map(lambda text: text.removesuffix("\n")).filter(lambda text: len(text) <= (most or LARGEST))
        case inspect.StrType():
            return TEXT
        case inspect.IntType(ge=least, le=most):
            return st.integers(-LARGEST if least is None else least, LARGEST if most is None else most)
        case inspect.FloatType(ge=least, le=most):
            return st.floats(least, most, allow_nan=False, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.AnyType():
            return VALUES
    raise NotImplementedError(kind)


def structs(cls: type[Any]) -> st.SearchStrategy[Any]:
    fields = msgspec.structs.fields(cls)
    return st.builds(cls, **{field.name: values_of(inspect.type_info(field.type)) for field in fields})


def header_values(name: str) -> st.SearchStrategy[str]:
    """Valid values of one attribute, by its pattern."""
    [field] = [field for field in msgspec.structs.fields(Headers) if field.name == name]
    kind = inspect.type_info(field.type)
    if isinstance(kind, inspect.UnionType):
        [kind] = [each for each in kind.types if not isinstance(each, inspect.UnsetType)]
    return values_of(kind)


IDS = header_values("id")
MINORS = st.integers(0, 9999).map(lambda minor: f"{SCHEMA_VERSION.partition('.')[0]}.{minor}")
MESSAGES_OF_ANY_TYPE: st.SearchStrategy[Message] = st.sampled_from(list(MESSAGES.values())).flatmap(structs)


@st.composite
def sent(draw: st.DrawFn) -> tuple[Envelope, Message]:
    """A message and an envelope that fits it."""
    message = draw(MESSAGES_OF_ANY_TYPE)
    job = getattr(message, "job", None)
    envelope = Envelope(
        id=draw(IDS),
        type=message.type,
        cluster=draw(header_values("cluster")),
        cluster_uid=draw(header_values("clusteruid")),
        subject=job.key if job else draw(st.just("") | PRINTABLE),
        time=draw(TIMES),
        epoch=draw(st.integers(0, 10**15 - 1)),
        sequence=draw(st.integers(0, 10**15 - 1)),
        correlation_id=draw(IDS | PRINTABLE),
        causation_id=draw(st.none() | IDS),
        traceparent=draw(st.none() | PRINTABLE),
        user_id=draw(st.none() | PRINTABLE),
        schema_version=draw(MINORS),
        extensions=draw(EXTENSIONS),
    )
    return envelope, message
