"""Why a pod does not run: what its status says, in the same words for every pod of its kind."""

from typing import Any

import pytest

from slicebus.proto.messages import PROBLEM_LENGTH, PodProblem
from slicebus.slices.api import kueue
from slicebus.slices.workload import pod_problems
from slicebus.slices.workload.pod_problems import PodCause, cause_of

Manifest = dict[str, Any]
SINCE = "2026-01-31T12:00:00Z"
NO_NODE = (
    "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {spot: }. preemption: 0/3 nodes are "
    "available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
)
NOT_FOUND = 'rpc error: code = NotFound desc = failed to pull and unpack image "reg/ray:9": not found'
NO_COMMAND = 'exec: "trian": executable file not found in $PATH: unknown'


def a_pod(status: Manifest, *, gates: tuple[str, ...] = ()) -> Manifest:
    spec = {"containers": [{"name": "ray"}], "schedulingGates": [{"name": name} for name in gates]}
    return {"metadata": {"name": "train-x7k2p", "uid": "5f5e-uid"}, "spec": spec, "status": status}


def unscheduled(message: str = NO_NODE, reason: str = "Unschedulable") -> Manifest:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


def a_container(state: Manifest, *, name: str = "ray", restarts: int = 0, last: Manifest | None = None) -> Manifest:
    entry = {"name": name, "image": "reg/ray:9", "restartCount": restarts, "state": state}
    return entry | ({"lastState": {"terminated": last}} if last else {})


def waits(reason: str, message: str | None = None, **more: Any) -> Manifest:
    waiting = {"reason": reason} | ({"message": message} if message is not None else {})
    return a_container({"waiting": waiting}, **more)


def runs(since: str = SINCE, **more: Any) -> Manifest:
    return a_container({"running": {"startedAt": since}}, **more)


def of(*containers: Manifest, init: tuple[Manifest, ...] = ()) -> Manifest:
    scheduled = {"type": "PodScheduled", "status": "True"}
    status = {"phase": "Pending", "conditions": [scheduled], "containerStatuses": list(containers)}
    return status | ({"initContainerStatuses": list(init)} if init else {})


NOT_PULLED = "image reg/ray:9 of container ray cannot be pulled"
ENDED = {"exitCode": 1, "reason": "Error", "message": "token=hunter2"}
CAUSES: dict[str, tuple[Manifest, str, str]] = {
    "no node": (unscheduled(), "Unschedulable", NO_NODE),
    "a scheduler that fails": (unscheduled("no such claim", "SchedulerError"), "SchedulerError", "no such claim"),
    "no word of why": ({"conditions": [{"type": "PodScheduled", "status": "False"}]}, "Unschedulable", ""),
    "the image is not there": (of(waits("ErrImagePull", NOT_FOUND)), "ImagePullBackOff", f"{NOT_PULLED}: {NOT_FOUND}"),
    "the kubelet pauses, of Kubernetes 1.32": (
        of(waits("ImagePullBackOff", f'Back-off pulling image "reg/ray:9": ErrImagePull: {NOT_FOUND}')),
        "ImagePullBackOff",
        f"{NOT_PULLED}: {NOT_FOUND}",
    ),
    "the kubelet pauses": (of(waits("ImagePullBackOff", 'Back-off pulling image "reg/ray:9"')),
        "ImagePullBackOff", NOT_PULLED),
    "no image's name": (of(waits("InvalidImageName", "couldn't parse")), "InvalidImageName",
        f"{NOT_PULLED}: couldn't parse"),
    "it ends again and again": (
        of(waits("CrashLoopBackOff", "back-off 5m0s restarting failed container=ray pod=train-x7k2p_team(5f5e-uid)",
            restarts=4, last=ENDED)),
        "CrashLoopBackOff",
        "container ray ends again and again: last with exit code 1, Error",
    ),
    "it has no memory": (
        of(waits("CrashLoopBackOff", "back-off 10s", last={"exitCode": 137, "reason": "OOMKilled"})),
        "CrashLoopBackOff",
        "container ray ends again and again: last with exit code 137, OOMKilled",
    ),
    "nobody knows how it ended": (of(waits("CrashLoopBackOff", "back-off 10s")), "CrashLoopBackOff",
        "container ray ends again and again"),
    "no command": (of(waits("RunContainerError", NO_COMMAND)), "CrashLoopBackOff",
        f"container ray cannot start: {NO_COMMAND}"),
    "no command, and a pause": (
        of(waits("CrashLoopBackOff", "back-off 10s",
            last={"exitCode": 128, "reason": "StartError", "message": NO_COMMAND})),
        "CrashLoopBackOff",
        f"container ray cannot start: {NO_COMMAND}",
    ),
    "no Secret": (of(waits("CreateContainerConfigError", 'secret "s3" not found')), "CreateContainerConfigError",
        'container ray: secret "s3" not found'),
    "a reason of another runtime": (of(waits("WeirdError", "of train-x7k2p (5f5e-uid)")), "WeirdError",
        "container ray: of * (*)"),
    "a reason that is no word": (of(waits("it does not work", "\nat\tall")), "NotRunning",
        "container ray: it does not work: at all"),
    "an init container": (
        of(waits("PodInitializing"), init=(waits("ErrImageNeverPull", "it is not there", name="env"),)),
        "ErrImageNeverPull", "image reg/ray:9 of init container env cannot be pulled: it is not there"),
    "the worst of two": (of(waits("CrashLoopBackOff"), waits("ErrImagePull", "no", name="log")), "ImagePullBackOff",
        "image reg/ray:9 of container log cannot be pulled: no"),
}  # fmt: skip


@pytest.mark.parametrize(("status", "reason", "text"), CAUSES.values(), ids=CAUSES.keys())
def test_a_pod_that_does_not_run_says_why(status: Manifest, reason: str, text: str) -> None:
    cause = cause_of(a_pod(status))
    assert cause is not None
    assert (cause.reason, cause.text, cause.running_since) == (reason, text, "")


FINE: dict[str, Manifest] = {
    "new": {},
    "it has a node": of(),
    "its image is being pulled": of(waits("ContainerCreating")),
    "its init containers run": of(waits("PodInitializing"), init=(runs(name="env"),)),
    "it runs": of(runs()),
    "it has ended once": of(runs(restarts=1, last=ENDED)),
    "it has ended well several times": of(runs(restarts=3, last={"exitCode": 0, "reason": "Completed"})),
    "the kubelet says nothing": of(a_container({})),
    "no gate is left": unscheduled("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated"),
}


@pytest.mark.parametrize("status", FINE.values(), ids=FINE.keys())
def test_a_pod_that_runs_or_starts_says_nothing(status: Manifest) -> None:
    assert cause_of(a_pod(status)) is None


def test_a_gate_of_somebody_else_is_named() -> None:
    gated = unscheduled("Scheduling is blocked due to non-empty scheduling gates", "SchedulingGated")
    cause = cause_of(a_pod(gated, gates=("z.io/b", kueue.ELASTIC_GATE, "a.io/x")))
    assert cause == PodCause("SchedulingGated", detail="held by a gate that is not of slicebus: a.io/x, z.io/b")


def test_a_container_that_has_just_started_again_may_end_again() -> None:
    cause = cause_of(a_pod(of(runs(restarts=2, last=ENDED))))
    assert cause is not None
    assert (cause.reason, cause.running_since) == ("CrashLoopBackOff", SINCE)
    assert cause.text == "container ray ends again and again: last with exit code 1, Error"


def test_texts_are_bounded() -> None:
    cause = cause_of(a_pod(unscheduled("x" * 50_000)))
    assert cause is not None
    assert len(cause.text) == PROBLEM_LENGTH
    image = waits("ErrImagePull", "y" * 50_000) | {"image": "z" * 5000}
    cause = cause_of(a_pod(of(image)))
    assert cause is not None
    assert len(cause.text) == PROBLEM_LENGTH


def a_problem(reason: str, message: str = "") -> PodProblem:
    return PodProblem(reason, message, SINCE)


def test_the_worst_is_what_does_not_mend_itself() -> None:
    by_name = {
        "a": a_problem("SchedulingGated"),
        "b": a_problem("Unschedulable", "no node"),
        "c": a_problem("SchedulerError"),
        "d": a_problem("CrashLoopBackOff"),
        "e": a_problem("ImagePullBackOff"),
        "f": a_problem("CreateContainerConfigError"),
    }
    assert list(pod_problems.worst_first(by_name)) == ["f", "e", "d", "c", "b", "a"]
    assert pod_problems.texts({name: by_name[name] for name in "bd"}) == (
        "pods of d do not run: CrashLoopBackOff; pods of b do not run: Unschedulable: no node"
    )


def test_an_annotation_has_room_for_the_worst_pod_sets() -> None:
    many = {f"group-{number:02}": a_problem("Unschedulable") for number in range(40)}
    told = pod_problems.worst_first(many | {"z": a_problem("ImagePullBackOff")})
    assert list(told)[:2] == ["z", "group-00"]
    assert len(told) == 10
