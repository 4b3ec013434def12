"""Reads what a job says of its size: how few pods are of use to it, how many it takes, and what notice it asks for.

At submission `problems` names every value that makes no sense. On a Workload such a value counts as not given.
"""

import re
from collections.abc import Collection, Mapping
from typing import Annotated

import msgspec

from slicebus.proto.messages import Counts
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.api.durations import seconds

INVALID_MIN_SIZE = "InvalidMinSize"
INVALID_MAX_SIZE = "InvalidMaxSize"
INVALID_NOTICE = "InvalidNotice"

_COUNT = re.compile(r"-?[0-9]{1,9}", re.ASCII)
"""Nine digits fit into the 32 bits of a Job's parallelism."""
_GANG = msgspec.json.Decoder(dict[str, Annotated[int, msgspec.Meta(ge=0)]])


class Elasticity(msgspec.Struct, frozen=True):
    """What a job says of its size."""

    least: Mapping[str, int] = {}
    """The least pods by pod set that are of use. One that is not named loses none."""
    most: Mapping[str, int] = {}
    """The pods by pod set up to which it takes quota that nobody else wants."""
    notice_s: float = 0.0
    """How long before it loses pods it wants to be told."""
    gang: Mapping[str, int] | None = {}
    """The pods by pod set that the scheduler of its gang keeps together where it runs. Empty where it is no gang; None
    while its worker has not told."""
    together: tuple[tuple[str, ...], ...] = ()
    """Pod sets that have their size from one number, and so change together."""

    def floor(self, pod_set: str, *, step: int = 1) -> int | None:
        """How many pods of a pod set always stay: the least, no fewer than its gang, in whole replicas of `step` pods.
        None where all of them stay, as those of a gang of which nobody knows that."""
        least = self.least.get(pod_set)
        if least is None or self.gang is None:
            return None
        return in_whole(max(least, self.gang.get(pod_set, 0)), step)

    @classmethod
    def from_annotations(cls, annotations: Mapping[str, str], sizes: Mapping[str, int]) -> "Elasticity":
        """What the annotations of a Workload with these sizes say, without the values that make no sense."""
        least, most, notice = (annotations.get(name) for name in (_MIN, _MAX, _NOTICE))
        if least is None and most is None and notice is None:
            return RIGID
        gang = gang_of(annotations)
        names_gang = annotations.get(api_names.SCHEDULER_LABEL) not in (None, "", api_names.DEFAULT_SCHEDULER)
        return cls(
            # One above the present size stands: the size of a Ray cluster goes up and down.
            least=_sizes_of(least) if least is not None and not _sizes_problem(least, sizes, fixed=()) else {},
            most=_sizes_of(most) if most is not None and not most_problem(most, sizes) else {},
            notice_s=seconds(notice or "") or 0.0,
            gang={} if gang is None and not names_gang else gang,
            together=_groups_of(annotations.get(api_names.SIZED_TOGETHER_ANNOTATION, ""), sizes),
        )


def in_whole(count: int, step: int) -> int:
    """The fewest pods in whole replicas of `step` pods that are no fewer than this count."""
    return -(-count // step) * step


def _groups_of(text: str, sizes: Mapping[str, int]) -> tuple[tuple[str, ...], ...]:
    groups = (tuple(group.split("+")) for group in text.split(",") if text)
    return tuple(group for group in groups if all(name in sizes for name in group))


def gang_of(annotations: Mapping[str, str]) -> Counts | None:
    """What a Workload's note says of its gang; None without one, and for one that nobody can read."""
    return read_json(annotations.get(api_names.GANG_ANNOTATION), _GANG)


RIGID = Elasticity()
"""What a job without these annotations says. One for all slices."""
_MIN, _MAX, _NOTICE = api_names.MIN_SIZE_ANNOTATION, api_names.MAX_SIZE_ANNOTATION, api_names.NOTICE_ANNOTATION


def problems(
    annotations: Mapping[str, str], sizes: Mapping[str, int], *, fixed: Collection[str] = ()
) -> list[tuple[str, str, str]]:
    """Why the annotations of a job with these sizes make no sense: name, reason and message of each, none where they
    do.

    `fixed` are the pod sets that have always the same size, such as the head of a Ray cluster.
    """
    found = (
        (_MIN, INVALID_MIN_SIZE, least_problem(annotations[_MIN], sizes, fixed=fixed) if _MIN in annotations else ""),
        (_MAX, INVALID_MAX_SIZE, most_problem(annotations[_MAX], sizes, fixed=fixed) if _MAX in annotations else ""),
        (_NOTICE, INVALID_NOTICE, notice_problem(annotations[_NOTICE]) if _NOTICE in annotations else ""),
    )
    return [(name, reason, message) for name, reason, message in found if message]


def least_problem(text: str, sizes: Mapping[str, int], *, fixed: Collection[str] = ()) -> str:
    """What is wrong with a least size; empty where nothing is."""
    if wrong := _sizes_problem(text, sizes, fixed=fixed):
        return f"the annotation {_MIN} {wrong}"
    above = next((name for name, count in _sizes_of(text).items() if count > sizes[name]), None)
    return f"the annotation {_MIN} has more pods of {above} than the job: {sizes[above]}" if above is not None else ""


def most_problem(text: str, sizes: Mapping[str, int], *, fixed: Collection[str] = ()) -> str:
    """What is wrong with a greatest size; empty where nothing is. One below the job's size is none: it takes nothing
    then."""
    if wrong := _sizes_problem(text, sizes, fixed=fixed):
        return f"the annotation {_MAX} {wrong}"
    zero = next((name for name, count in _sizes_of(text).items() if not count), None)
    return f"the annotation {_MAX} leaves {zero} no pod" if zero is not None else ""


def notice_problem(text: str) -> str:
    """What is wrong with a notice; empty where nothing is."""
    if seconds(text) is not None:
        return ""
    return f"the annotation {_NOTICE} is no duration such as 90s, 5m or 1h30m"


def _sizes_problem(text: str, sizes: Mapping[str, int], *, fixed: Collection[str]) -> str:
    """What is wrong with a list of sizes, as the rest of a sentence."""
    seen: Counts = {}
    for part in text.split(","):
        name, equals, count = (piece.strip() for piece in part.partition("="))
        if not (name and equals):
            return f"is not of the form {_example(sizes)}"
        if name not in sizes:
            return f"names the pod set {name[:_SHOWN]}, and the job has only {', '.join(sizes)}"
        if name in seen:
            return f"names the pod set {name} twice"
        if not _COUNT.fullmatch(count):
            return f"has no number of pods for {name}"
        if count.startswith("-"):
            return f"has a negative number of pods for {name}"
        seen[name] = int(count)
        if name in fixed and seen[name] != sizes[name]:
            return f"gives {name} another size than {sizes[name]}, which it always has"
    return ""


_SHOWN = 63
"""Of a name that is no pod set: theirs are no longer."""


def _example(sizes: Mapping[str, int]) -> str:
    name = next(reversed([*sizes]), "main")
    return f"{name}={max(1, sizes.get(name, 1))}"


def _sizes_of(text: str) -> Counts:
    """The sizes of a text without problems."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name.strip(): int(count) for name, _, count in pairs}
