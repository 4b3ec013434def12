"""The shape of a pod's status: the parts that are read by name."""

from slicebus.proto.messages import Manifest
from slicebus.slices.jobs.fit import fitted
from slicebus.slices.jobs.shapes import Amounts, ConditionShape, Shape


class _Resources(Shape):
    requests: Amounts | None = None


class _Waits(Shape):
    reason: str | None = None
    message: str | None = None


class _Runs(Shape):
    started_at: str | None = None


class _Ended(Shape):
    exit_code: int | None = None
    reason: str | None = None
    message: str | None = None


class _State(Shape):
    waiting: _Waits | None = None
    running: _Runs | None = None
    terminated: _Ended | None = None


class _Container(Shape):
    name: str
    image: str | None = None
    restart_count: int | None = None
    state: _State | None = None
    last_state: _State | None = None
    resources: _Resources | None = None
    allocated_resources: Amounts | None = None


class PodStatusShape(Shape):
    """What is read of `status`."""

    phase: str | None = None
    conditions: list[ConditionShape] | None = None
    container_statuses: list[_Container] | None = None
    init_container_statuses: list[_Container] | None = None
    resources: _Resources | None = None
    allocated_resources: Amounts | None = None


def fitted_pod(pod: Manifest) -> Manifest:
    """A pod whose status has this shape; the same where it has it. An ill-typed part counts as absent."""
    if "status" not in pod:
        return pod
    status = fitted(pod["status"], PodStatusShape)
    return pod if status is pod["status"] else pod | {"status": status}
