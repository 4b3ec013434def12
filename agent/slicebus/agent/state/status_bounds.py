"""Bounds what a status carries, so that the manager takes it.

Whoever may write the job, its pods or their annotations on the worker chooses what is in them: a pod may request
thousands of resources and be labelled as of any pod set, and the texts of a job may be of any length. A message that is
larger than its type may be is a dead letter, and nothing of the job would be told any more.
"""

from collections.abc import Collection, Mapping

import msgspec
from msgspec import UNSET

from slicebus.proto.messages import RESOURCES_LEFT_OUT, Counts, Manifest, PodProblem, PodSetStatus, Status
from slicebus.slices.api.levels import is_too_deep
from slicebus.slices.workload.ungate import Members, PodSets

MOST_STATUS_BYTES = 32 * 1024
"""Of the job's own status."""
MOST_REQUESTS_BYTES = 12 * 1024
"""Of what the pods request, of all pod sets together: an inventory has it too, in a page of 32 KiB."""
MOST_POD_SETS = 32
"""A Workload has at most 18."""
MOST_BYTES = 56 * 1024
"""Of a whole status. The manager takes 64 KiB with headers."""
_SHORT = 500
"""Characters of a text in a status that is too large."""
_NO_POD_SET = ""
_BESIDE = 6
"""The bytes of an entry beside its name and its quantity."""


def told_pods(
    pod_sets: PodSets, *, own: Collection[str] = (), problems: Mapping[str, PodProblem] | None = None
) -> dict[str, PodSetStatus]:
    """What is told of the pods, by pod set. Of too many pod sets, those that are not the job's `own` are told as one
    without a name, which counts as well; of too many resources as many as there is room for."""
    told = _fewer(pod_sets, own)
    requests = {name: members.requests for name, members in told.items()}
    if sum(map(_size_of, requests.values())) > MOST_REQUESTS_BYTES:
        room = MOST_REQUESTS_BYTES // len(told)
        requests = {name: _largest_part(told[name], requests[name], room) for name in told}
    return {
        name: _pod_set_status(members, (problems or {}).get(name), requests=requests[name])
        for name, members in sorted(told.items())
    }


def _pod_set_status(members: Members, problem: PodProblem | None, *, requests: dict[str, str]) -> PodSetStatus:
    """What is told of the pods of one pod set."""
    gated, running = len(members.gated), len(members.running)
    ready, told = sum(pod.is_ready for pod in members.running), problem or UNSET
    return PodSetStatus(ready=ready, gated=gated, total=gated + running, requests=requests, problem=told)


def bounded(status: Status) -> Status:
    """The status; with shorter texts, fewer counts and less of the job's own status where it is too large."""
    if len(msgspec.json.encode(status)) <= MOST_BYTES:
        return status
    pods = {name: msgspec.structs.replace(one, problem=_shorter(one.problem)) for name, one in status.pods.items()}
    waits, gang = status.waits, status.gang
    return msgspec.structs.replace(
        status,
        workload=status.workload[:_SHORT],
        message=status.message[:_SHORT],
        job_status=fitting(status.job_status, most_bytes=MOST_STATUS_BYTES // 4),
        pods=pods,
        waits=waits and msgspec.structs.replace(waits, wanted=_first(waits.wanted), message=waits.message[:_SHORT]),
        gang=gang if gang is UNSET else _first(gang),
    )


def fitting(status: Manifest, *, most_bytes: int = MOST_STATUS_BYTES) -> Manifest:
    """The status; without the fields that are nested too deep for a message, and without its largest ones where it is
    larger than `most_bytes`. The manager shows and compares what it gets, so both sides agree on what is left out."""
    if any(map(is_too_deep, status.values())):
        status = {name: value for name, value in status.items() if not is_too_deep(value)}
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


def _fewer(pod_sets: PodSets, own: Collection[str]) -> PodSets:
    if len(pod_sets) <= MOST_POD_SETS:
        return pod_sets
    in_order = sorted((name for name in pod_sets if name), key=lambda name: (name not in own, name))
    kept = {name: pod_sets[name] for name in in_order[: MOST_POD_SETS - 1]}
    others = [members for name, members in pod_sets.items() if name not in kept]
    gated = [pod for members in others for pod in members.gated]
    return {**kept, _NO_POD_SET: Members(gated, [pod for members in others for pod in members.running])}


def _size_of(requests: Mapping[str, str]) -> int:
    return sum(len(resource) + len(quantity) + _BESIDE for resource, quantity in requests.items())


def _largest_part(members: Members, requests: dict[str, str], room: int) -> dict[str, str]:
    """As many of the requests as there is room for, and how many there is none for. What pods on nodes request comes
    first: a node has those resources, and the quota is charged for them."""
    if _size_of(requests) <= room:
        return requests
    placed = (pod for pod in members.running if pod.manifest["spec"].get("nodeName"))
    there = {resource for pod in placed for resource in pod.requests}
    kept, left = dict[str, str](), room - len(RESOURCES_LEFT_OUT) - len(str(len(requests))) - _BESIDE
    for resource in sorted(requests, key=lambda resource: (resource not in there, "/" in resource, resource)):
        left -= len(resource) + len(requests[resource]) + _BESIDE
        if left < 0:
            break
        kept[resource] = requests[resource]
    return {**kept, RESOURCES_LEFT_OUT: str(len(requests) - len(kept))}


def _shorter(problem: PodProblem | msgspec.UnsetType) -> PodProblem | msgspec.UnsetType:
    if problem is UNSET:
        return problem
    reason, message = problem.reason[: _SHORT // 5].rstrip(",:"), problem.message[: _SHORT // 5]
    return msgspec.structs.replace(problem, reason=reason, message=message)


def _first(counts: Counts) -> Counts:
    return {name: counts[name] for name in sorted(counts)[:MOST_POD_SETS]}
