"""How many seeds it takes until the simulation notices that a safeguard is missing."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec

from simulation.mutations import MUTATIONS, mutated
from simulation.outcome import play_seed
from simulation.processes import outcomes

_MOST = 150


class Search(msgspec.Struct, frozen=True):
    """A search for the first seed, from one on, that fails without a safeguard."""

    mutation: str
    first: int = 0


class Detection(msgspec.Struct, frozen=True):
    """What a search has come to."""

    search: Search
    seed: int | None
    """None where no seed has failed."""
    rule: str
    """That was broken; or an error, where the mutation does not fit the product."""

    def __str__(self) -> str:
        """As a row of docs/simulation.md."""
        if self.seed is None:
            return f"| {self.search.mutation} | none of {_MOST} from {self.search.first} on | {self.rule} |"
        return f"| {self.search.mutation} | {self.seed} | {self.rule} |"


def searches(text: str, first: int) -> list[Search]:
    """Those of a text `NAME:SEED,NAME:SEED`; for an empty one of every safeguard, from the same seed on."""
    if not text:
        return [Search(name, first) for name in MUTATIONS]
    pairs = (one.partition(":") for one in text.split(","))
    return [Search(name, int(seed or first)) for name, _, seed in pairs]


def as_text(first: Mapping[str, int]) -> str:
    """The text that has every name begin at its seed."""
    return ",".join(f"{name}:{seed}" for name, seed in first.items())


def detections(wanted: Iterable[Search], at_once: int) -> Iterator[Detection]:
    """What each search finds, within 150 seeds."""
    yield from outcomes(_detect, wanted, at_once)


def _detect(search: Search) -> Detection:
    try:
        with mutated(search.mutation):
            pass
    except AttributeError as error:
        return Detection(search, None, str(error))
    seeds = itertools.islice(itertools.count(search.first), _MOST)
    for outcome in outcomes(partial(play_seed, mutation=search.mutation), seeds, 1):
        if outcome.problem:
            return Detection(search, None if outcome.is_error else outcome.seed, outcome.kind)
    return Detection(search, None, "")
