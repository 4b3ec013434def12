"""The indexes of an Indexed Job's pods, as the Job controller keeps them.

Source: Kubernetes, `pkg/controller/job/indexed_job_utils.go`.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator
from typing import Any

Manifest = dict[str, Any]

INDEX = "batch.kubernetes.io/job-completion-index"
"""The label and annotation of a pod that has its index."""


def done_indexes(job: Manifest, pods: Iterable[Manifest]) -> set[int] | None:
    """The indexes that have succeeded, below the completions; None where the Job is not indexed."""
    if job["spec"].get("completionMode") != "Indexed":
        return None
    known = set(_parsed(job.get("status", {}).get("completedIndexes") or ""))
    known |= {index_of(pod) for pod in pods if pod.get("status", {}).get("phase") == "Succeeded"}
    return {index for index in known if index < job["spec"]["completions"]}


def index_of(pod: Manifest) -> int:
    """The index of a pod."""
    return int(pod["metadata"]["labels"][INDEX])


def misplaced(pods: Iterable[Manifest], done: Collection[int], completions: int) -> list[Manifest]:
    """The pods whose index is done, left out, or has another pod already."""
    seen, found = set(done), []
    for pod in pods:
        index = index_of(pod)
        if index in seen or index >= completions:
            found.append(pod)
        seen.add(index)
    return found


def free_indexes(pods: Iterable[Manifest], done: Collection[int]) -> Iterator[int]:
    """The indexes that have no pod and are not done, the lowest first."""
    taken = {*done, *map(index_of, pods)}
    return (index for index in itertools.count() if index not in taken)


def text_of(indexes: Iterable[int]) -> str:
    """Indexes as a Job's status has them: `0,1,3-5`."""
    intervals: list[list[int]] = []
    for index in sorted(indexes):
        if intervals and index == intervals[-1][-1] + 1:
            intervals[-1] = [intervals[-1][0], index]
        else:
            intervals.append([index])
    return ",".join(
        ("," if interval[-1] - interval[0] == 1 else "-").join(map(str, interval)) for interval in intervals
    )


def _parsed(text: str) -> Iterator[int]:
    for interval in filter(None, text.split(",")):
        first, _, last = interval.partition("-")
        yield from range(int(first), int(last or first) + 1)
