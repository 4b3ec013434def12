"""The part of a job's status that a message carries."""

import msgspec

from slicebus.proto.messages import Manifest

MOST_BYTES = 128 * 1024
"""Below the least limit of a message, with everything that a report has beside it. Only the lists of an
Indexed Job with very many completions come near."""


def fitting(status: Manifest, *, most_bytes: int = MOST_BYTES) -> Manifest:
    """The status; without its largest fields where it is larger than `most_bytes`. The manager shows and compares what
    it gets, so both sides agree on what is left out."""
    if len(status) == 0 or len(msgspec.json.encode(status)) <= most_bytes:
        return status
    sizes = {name: len(msgspec.json.encode(value)) + len(name) + 4 for name, value in status.items()}
    kept, left = dict(status), sum(sizes.values())
    for name in sorted(sizes, key=sizes.__getitem__, reverse=True):
        if left <= most_bytes:
            break
        left -= sizes[name]
        del kept[name]
    return kept
