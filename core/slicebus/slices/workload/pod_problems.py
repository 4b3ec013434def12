"""Says why a pod that may start does not run, in the words of the scheduler and the kubelet.

The text of a cause is the same for every pod of a pod set, and each time that the same is said: it has no names of
pods, and no pauses between tries. A pod that is only starting has no cause.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from slicebus.proto.messages import PROBLEM_LENGTH, PodProblem
from slicebus.slices.api import kueue

Manifest = dict[str, Any]

_UNSCHEDULABLE, _GATED, _CRASHES = "Unschedulable", "SchedulingGated", "CrashLoopBackOff"
_NOT_PULLED = "ImagePullBackOff"
_IMAGE_REASONS = ("InvalidImageName", "ErrImageNeverPull", _NOT_PULLED)
_WORST_FIRST = ("CreateContainerConfigError", *_IMAGE_REASONS, _CRASHES)
"""What does not mend itself comes first. Reasons that are not listed follow, and then those of pods without a node."""
_WITHOUT_NODE = (_UNSCHEDULABLE, _GATED)
_STARTING = ("", "ContainerCreating", "PodInitializing")
"""The kubelet's reasons while nothing is wrong (`pkg/kubelet/kubelet_pods.go`)."""
_SAME = {"ErrImagePull": _NOT_PULLED, "RunContainerError": _CRASHES}
"""Reasons that take turns with a pause between tries."""
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: (?:ErrImagePull: )?)?')
"""How the kubelet begins while it pauses. From Kubernetes 1.32 on the last error follows."""
_OTHER = "NotRunning"
"""In place of a reason that is no word in CamelCase."""
_REASON = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_MOST_SETS = 10
"""The most pod sets that are told: all annotations of an object share 256 KiB."""


class PodCause(msgspec.Struct, frozen=True):
    """Why one pod does not run, as its status says now."""

    reason: str
    """CamelCase, in the words of Kubernetes."""
    about: str = ""
    """What it is about: a container, and its image where that is the point."""
    detail: str = ""
    """What Kubernetes says; empty while the kubelet only says that it pauses."""
    running_since: str = ""
    """RFC 3339: since when the container runs again, where it has ended several times before."""

    @property
    def text(self) -> str:
        """The whole text, short enough for a message."""
        return ": ".join(filter(None, (self.about, self.detail)))[:PROBLEM_LENGTH]

    def adds_nothing_to(self, text: str) -> bool:
        """Whether an earlier text about the same says more."""
        return not self.detail and text.startswith(self.about)


def cause_of(pod: Manifest) -> PodCause | None:
    """Why a pod that our gate does not hold is not running; None for one that runs, or starts."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    gates = [gate["name"] for gate in spec.get("schedulingGates") or () if gate["name"] != kueue.ELASTIC_GATE]
    if gates:
        return PodCause(_GATED, detail=_plain(f"held by a gate that is not of slicebus: {', '.join(sorted(gates))}"))
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            reason = condition.get("reason") or _UNSCHEDULABLE
            return None if reason == _GATED else _cause(pod, reason, condition.get("message") or "")
    causes = [
        cause
        for kind, field in (("init container", "initContainerStatuses"), ("container", "containerStatuses"))
        for entry in status.get(field) or ()
        if (cause := _of_container(pod, kind, entry)) is not None
    ]
    return min(causes, key=lambda cause: rank(cause.reason), default=None)


def rank(reason: str) -> int:
    """The place of a reason among all, the worst one lowest."""
    if reason in _WORST_FIRST:
        return _WORST_FIRST.index(reason)
    return len(_WORST_FIRST) + (1 + _WITHOUT_NODE.index(reason) if reason in _WITHOUT_NODE else 0)


def worst_first(problems: Mapping[str, PodProblem]) -> dict[str, PodProblem]:
    """The problems by pod set, the worst first; as many as an annotation has room for."""
    by_rank = sorted(problems, key=lambda name: (rank(problems[name].reason), name))
    return {name: problems[name] for name in by_rank[:_MOST_SETS]}


def text_of(name: str, problem: PodProblem) -> str:
    """One sentence about a pod set."""
    said = f": {problem.message}" if problem.message else ""
    return f"pods of {name} do not run: {problem.reason}{said}"


def texts(problems: Mapping[str, PodProblem]) -> str:
    """One line about all of these pod sets, the worst first."""
    return "; ".join(text_of(name, problem) for name, problem in worst_first(problems).items())


def reasons(problems: Iterable[PodProblem]) -> frozenset[str]:
    """The different reasons."""
    return frozenset(problem.reason for problem in problems)


def _of_container(pod: Manifest, kind: str, entry: Manifest) -> PodCause | None:
    state, name = entry.get("state") or {}, f"{kind} {entry['name']}"
    waiting = state.get("waiting")
    last = (entry.get("lastState") or {}).get("terminated") or {}
    if waiting is None:
        since = (state.get("running") or {}).get("startedAt") or ""
        # The first end is followed by a start without a pause.
        crashes = since and (entry.get("restartCount") or 0) > 1 and last.get("exitCode")
        return replace(_crash(pod, name, last), running_since=since) if crashes else None
    said, message = waiting.get("reason") or "", waiting.get("message") or ""
    reason = _SAME.get(said, said)
    if reason in _STARTING:
        return None
    if reason == _CRASHES:
        return _crash(pod, name, last, message if said != reason else "")
    if reason in _IMAGE_REASONS:
        about = f"image {entry.get('image') or '?'} of {name} cannot be pulled"
        return _cause(pod, reason, _BACK_OFF.sub("", message), about=about)
    return _cause(pod, reason, message, about=name)


def _crash(pod: Manifest, name: str, last: Manifest, message: str = "") -> PodCause:
    """What is known of the last end. The message of an end is the container's own, and may have secrets; only that of
    one that could not start is the runtime's."""
    code, reason = last.get("exitCode"), last.get("reason") or ""
    if reason == "StartError":
        message = message or last.get("message") or ""
    if message:
        return _cause(pod, _CRASHES, message, about=f"{name} cannot start")
    detail = f"last with exit code {code}{f', {reason}' if reason else ''}" if code is not None else ""
    return _cause(pod, _CRASHES, detail, about=f"{name} ends again and again")


def _cause(pod: Manifest, reason: str, detail: str, *, about: str = "") -> PodCause:
    """A cause without what is only of this pod."""
    metadata = pod["metadata"]
    if not _REASON.fullmatch(reason):
        reason, detail = _OTHER, f"{reason}: {detail}"
    for own in (metadata["name"], metadata.get("uid")):
        detail = re.sub(rf"(?<![\w.-]){re.escape(own)}(?![\w-])", "*", detail) if own else detail
    return PodCause(reason, _plain(about), _plain(detail))


def _plain(text: str) -> str:
    """A text on one line."""
    return " ".join(text[: 4 * PROBLEM_LENGTH].split())
