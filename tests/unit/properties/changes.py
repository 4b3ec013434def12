"""Hypothesis strategies for what may come from outside: manifests, edits of them, annotations, statuses, messages."""

import copy
from typing import Any

import msgspec
from hypothesis import strategies as st

from slicebus.slices.api import api_names, kueue
from unit.proto.strategies import VALUES

Manifest = dict[str, Any]
Path = tuple[str | int, ...]

_NUMBERS = (-1, 0, 1, 3, 2**31 - 1, 2**31, 2**63 - 1, 1e30, 1.5, -0.0)
_TEXTS = ("", "-", "---", "x", "head", "A_b", "\x00", "\n", "é" * 70, "1e400", "-5", "true", "2030-02-30T25:00:00Z")
ODD = st.sampled_from([*_NUMBERS, *_TEXTS, True, False, None]) | st.sampled_from(
    [[], {}, [None], [[]], [{}], {"": 1}, {"a": {}}, {"x": None}, [1, "a"], {"name": "x"}, [{"name": "x"}] * 2]
)
"""Values that are valid in few places."""
JSON = ODD | VALUES
OURS = sorted({value for name, value in vars(api_names).items() if isinstance(value, str) and name[0] != "_"})
"""Every name that slicebus gives to annotations, labels and others."""
KEYS = sorted({*(name for name in OURS if "/" in name), kueue.POD_SET_LABEL, kueue.QUEUE_NAME_LABEL})
ANNOTATIONS = st.sampled_from(KEYS)
LABEL_VALUES = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", fullmatch=True)
"""What an API server takes as the value of a label."""


def paths(value: Any, at: Path = ()) -> list[Path]:
    """The paths of everything in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for step, entry in inner for path in paths(entry, (*at, step)))]


@st.composite
def edited(draw: st.DrawFn, manifest: Manifest, under: str = "spec") -> Manifest:
    """A manifest after some edits of one part: values taken out, replaced, doubled, or put beside others."""
    changed = copy.deepcopy(manifest)
    for _ in range(draw(st.integers(1, 3))):
        path = (under, *draw(st.sampled_from(paths(changed.get(under)))))
        *above, last = path
        holder: Any = changed
        for step in above:
            holder = holder[step]
        match draw(st.sampled_from(["take", "replace", "double", "name"])):
            case "take" if len(path) > 1 or draw(st.booleans()):
                if last in holder if isinstance(holder, dict) else True:
                    del holder[last]
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
            case "name" if isinstance(holder, dict) and isinstance(holder.get(last), dict):
                holder[last][draw(st.sampled_from(_TEXTS))] = copy.deepcopy(draw(JSON))
            case _:
                holder[last] = copy.deepcopy(draw(JSON))
    return changed


def texts_like(text: str | None) -> st.SearchStrategy[str]:
    """Any text, and what is nearly a text that was there: JSON with other values."""
    near = st.just("")
    if text:
        try:
            near = edited({"it": msgspec.json.decode(text)}, under="it").map(
                lambda changed: msgspec.json.encode(changed.get("it")).decode()
            )
        except msgspec.DecodeError:
            near = st.just(text * 2)
    counts = st.dictionaries(st.sampled_from(["", "main", "head", "small", "x"]), st.sampled_from(_NUMBERS), max_size=3)
    return st.text(max_size=20) | JSON.map(_json) | counts.map(_json) | near


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, UnicodeEncodeError):
        return "1e999"
