"""Says why a job does not have the size that it wants: by one annotation, on the manager's object and on the worker's.

It only shows. No decision about quota or pods depends on it, because whoever may edit the object may edit it too.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from slicebus.proto.messages import Counts, OptionalReason, PodProblem, PodSetName, Time
from slicebus.slices.api import api_names
from slicebus.slices.api.annotation_values import read_json
from slicebus.slices.workload import pod_problems

Manifest = dict[str, Any]

SURPLUS = "SurplusPods"
"""The reason of a smaller size that nobody carries out."""
PODS_REFUSED = "PodsRefused"
"""The reason of granted pods that the worker's API server does not let anybody make, as by a ResourceQuota."""
PODS_PAST_SLICE = "PodsPastSlice"
"""The reason of granted pods that request more than their slice is charged for, or are of another pod set."""
WORKLOAD_MISSING = "WorkloadMissing"
"""The reason of granted pods whose slice has no copy on the worker, because somebody has deleted it there."""
PODS_TERMINATING = "PodsTerminating"
"""The reason of granted pods that stay gated, as terminating pods that do not go have their places."""
CONTROLLER_REFUSED = "RefusedByController"
"""The reason of granted pods none of which is made, because the controller of their job refuses it."""
SPEC_REFUSED = "SpecRefused"
"""The reason of a job whose controller refuses its present spec, while pods of it are there."""
SUSPENDED_THERE = "SuspendedOnWorker"
"""The reason of a job with quota whose copy somebody on the worker suspends again and again."""
PODS_ORPHANED = "PodsOrphaned"
"""The reason of a job whose copy somebody on the worker has deleted without its pods: they keep its quota."""
REFUSED_THERE = (PODS_REFUSED, CONTROLLER_REFUSED, SPEC_REFUSED)
"""The reasons of jobs that are not carried out where they were granted."""
SCHEDULING = (
    "SchedulerNotEnabled",
    "SchedulerUnusable",
    "QueueNotFound",
    "QueueNotOpen",
    "SchedulingObjectRefused",
    "SchedulingObjectExists",
    "SchedulingPruned",
    "GangTooLarge",
)
"""The reasons of granted pods that wait for what their scheduler backend needs."""
WRITE_REFUSED = "WriteRefused"
"""The reason of a job whose worker's API server, or a policy or webhook there, refuses what the agent has to write."""
PODS_NOT_RUNNING = "PodsNotRunning"
"""The reason of granted pods that are there and do not run: `Waiting.pods` says why."""
BROKER_NOT_REACHED = "BrokerNotReached"
"""The reason of a resize that the worker's agent cannot ask for, as it does not reach the broker."""
MANAGER_NOT_REACHED = "ManagerNotReached"
"""The reason of a resize that nobody answers, as no manager reads what the worker's agent sends."""
UNREACHED = (BROKER_NOT_REACHED, MANAGER_NOT_REACHED)
ONLY_WORKERS_KNOW = (
    SURPLUS,
    PODS_PAST_SLICE,
    WORKLOAD_MISSING,
    PODS_TERMINATING,
    WRITE_REFUSED,
    SUSPENDED_THERE,
    PODS_ORPHANED,
    PODS_NOT_RUNNING,
    *REFUSED_THERE,
    *SCHEDULING,
    *UNREACHED,
)
"""All other reasons are those of conditions."""
_LENGTH = 2000
"""Of each text: all annotations of an object share 256 KiB."""
LEFT_OUT = "…"
"""In place of a number that somebody is not told."""
_NUMBER = re.compile(rf"{LEFT_OUT}|(?<![\w.-])\d+(?:\.\d+)?(?:n|u|m|k|[KMGTPE]i?)?(?![\w-])")
"""A number or a quantity that stands alone: no part of a name."""
_SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"
"""What the API server adds to a `generateName` (`k8s.io/apimachinery/pkg/util/rand`)."""
_MOST_PARTS = "126"
"""The most parts between the dashes of a name, which has 253 characters. A controller's text is a tenant's where it may
write Events: without bounds a long one would take the processor for minutes."""
_GENERATED = re.compile(rf"(?<![\w.-])([a-z0-9][a-z0-9.-]{{0,252}}?)(?:-\d++){{0,{_MOST_PARTS}}}-{_SUFFIX}(?![\w-])")
_ORDINAL = rf"-(?:\d++(?![a-z0-9])|(?!\d++(?![a-z0-9])){_SUFFIX})"
"""What comes after the name of an object that numbers its pods. No text is both: two ways to read each part of a name
would double the time for every part."""
_ONE_TIME = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"  # a UID, or the ID of a request
    r"|\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b\d{8}T\d{6}(?:\.\d+)?Z?\b"
    r"|(?<![\w.-])(?:\d+(?:\.\d+)?(?:ns|[uµ]s|ms|s|m|h))+(?![\w-])"  # a duration of Go
    r"|(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?(?![\w.])|\[[0-9a-fA-F:]+\]:\d+"  # one end of a connection
    r"|\b0x[0-9a-fA-F]+\b|\b(?<!sha256:)(?=[a-f]*\d)[0-9a-f]{16,64}\b"  # a place in memory, the ID of a trace
)


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a job wants, what it has, and why it has no more, or still has more."""

    wanted: Counts
    granted: Counts
    reason: OptionalReason
    message: str
    since: Time
    would_admit: str = ""
    """What would let it in, in words; empty where that is unknown."""
    pods: dict[PodSetName, PodProblem] = {}
    """Why granted pods do not run, by pod set, beside any other reason."""

    @classmethod
    def of(
        cls, wanted: Counts, granted: Counts, *, reason: str, message: str, since: str, would_admit: str = ""
    ) -> Self:
        """Build one with a granted count for each pod set that is wanted, and texts short enough for an annotation."""
        return cls(
            wanted=wanted,
            granted={name: granted.get(name, 0) for name in wanted},
            reason=reason,
            message=message[:_LENGTH],
            since=since,
            would_admit=would_admit[:_LENGTH],
        )

    @staticmethod
    def from_manifest(manifest: Manifest) -> "Waiting | None":
        """Read it from an object; None where the object shows none, or one that nobody can read."""
        return read_json(shown_on(manifest), _DECODER)

    @property
    def in_brief(self) -> str:
        """The reason and its message, short enough for a column; of pods that do not run that of the worst pod set."""
        worst = next(iter(pod_problems.worst_first(self.pods).values()), None)
        if worst is None or self.reason != PODS_NOT_RUNNING:
            return f"{self.reason}: {self.message}"
        return ": ".join(filter(None, (worst.reason, worst.message)))

    def to_annotation(self) -> str:
        """The text of the annotation, JSON."""
        return msgspec.json.encode(self, order="sorted").decode()

    def says_same(self, other: "Waiting | None") -> bool:
        """Whether another one says the same to a reader. Numbers in the texts are not compared: they change with every
        job that comes and goes. Neither is what a controller's text has of one pod, or of one try."""
        return other is not None and _story(self) == _story(other)


_DECODER = msgspec.json.Decoder(Waiting)


def with_pods(
    waiting: Waiting | None, pods: Mapping[str, PodProblem], *, wanted: Counts, granted: Counts
) -> Waiting | None:
    """What to show beside the reason to wait, if there is one, where granted pods do not run. `wanted` and `granted`
    count where only these are the reason."""
    told = pod_problems.worst_first(pods)
    if waiting is None and told:
        since = min(problem.since for problem in told.values())
        waiting = Waiting.of(wanted, granted, reason=PODS_NOT_RUNNING, message=pod_problems.texts(told), since=since)
    return msgspec.structs.replace(waiting, pods=told) if waiting is not None else None


def without_pods(waiting: Waiting) -> Waiting | None:
    """What is left to show where granted pods run, or are no longer there."""
    return msgspec.structs.replace(waiting, pods={}) if waiting.reason != PODS_NOT_RUNNING else None


def shown_on(manifest: Manifest) -> str | None:
    """The text of an object's annotation, whatever it is; None without one."""
    text: str | None = (manifest["metadata"].get("annotations") or {}).get(api_names.WAITING_ANNOTATION)
    return text


def without_numbers(text: str, *, mark: str = "#") -> str:
    """A text with a mark in place of each number."""
    return _NUMBER.sub(mark, text)


def without_pod_names(text: str, *, of: Iterable[str] = ()) -> str:
    """A text with `*` in place of what differs from pod to pod in their names: `train-x7k2p` is `train-*`.

    `of` are names of objects that number their pods: `web-0` is then `web-*` too.
    """
    text = _GENERATED.sub(r"\1-*", text)
    for name in of:
        begin = rf"{re.escape(name)}(?:-[a-z0-9]++){{0,{_MOST_PARTS}}}?"
        of_it = rf"(?<![\w.-])({begin})(?:{_ORDINAL}){{1,{_MOST_PARTS}}}(?![\w*-])"
        text = re.sub(of_it, r"\1-*", text)
    return text


def without_details(text: str) -> str:
    """A text with marks in place of everything that may differ each time that the same is said: numbers, names of pods,
    UIDs, times, durations and ends of connections."""
    return without_numbers(without_pod_names(_ONE_TIME.sub("#", text)))


def lacks(wanted: Mapping[str, int], granted: Mapping[str, int]) -> bool:
    """Whether more pods are wanted than granted, or other pod sets."""
    return wanted.keys() != granted.keys() or any(count > granted[name] for name, count in wanted.items())


def _story(waiting: Waiting) -> Waiting:
    if waiting.reason in (SURPLUS, PODS_TERMINATING):
        # Its numbers and names are of the worker's own pods and nodes.
        return waiting
    return msgspec.structs.replace(
        waiting,
        message=without_details(waiting.message),
        would_admit=without_numbers(waiting.would_admit),
        pods={name: _pods_story(problem) for name, problem in waiting.pods.items()},
    )


def _pods_story(problem: PodProblem) -> PodProblem:
    return msgspec.structs.replace(problem, message=without_details(problem.message))
