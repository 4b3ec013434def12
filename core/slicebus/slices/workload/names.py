"""Names slices as Kueue does."""

import hashlib

_HASH_LENGTH = 5
_LABEL_VALUE_LENGTH = 63
"""A slice's name is also the value of the prebuilt-name label, which a longer name would not fit."""


def slice_name(*, kind: str, group: str, name: str, uid: str, extra: str) -> str:
    """`<kind>-<job name>-<hash>`. Another `extra` gives another name.

    The job name is cut so that the whole fits a label value.
    """
    digest = hashlib.sha1(f"{kind}\n{group}\n{name}\n{uid}\n{extra}".encode(), usedforsecurity=False).hexdigest()
    prefix = f"{kind.lower()}-{name}"[: _LABEL_VALUE_LENGTH - _HASH_LENGTH - 1].rstrip("-.")
    return f"{prefix}-{digest[:_HASH_LENGTH]}"


def group_of(api_version: str) -> str:
    """The API group; empty for the core group."""
    return api_version.rpartition("/")[0]
