"""Topics of AMQP: which binding keys match a routing key."""

from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=4096)
def matches(pattern: str, key: str) -> bool:
    """Whether a binding key matches: `*` is one word, `#` is any number of them."""

    def match(patterns: Sequence[str], words: Sequence[str]) -> bool:
        if not patterns:
            return not words
        head, rest = patterns[0], patterns[1:]
        if head == "#":
            return any(match(rest, words[count:]) for count in range(len(words) + 1))
        return bool(words) and head in ("*", words[0]) and match(rest, words[1:])

    return match(pattern.split("."), key.split("."))
