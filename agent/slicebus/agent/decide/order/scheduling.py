"""Chooses the scheduler backend of a new job on this cluster."""

from slicebus.agent.decide.order.refusals import RefusedOrder
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import WorkloadSpec
from slicebus.slices.api import api_names
from slicebus.slices.schedulers import SchedulerBackend, chosen_by


def ensure_usable(view: WorkerView, order: WorkloadSpec) -> SchedulerBackend:
    """The backend that the job chooses, or the cluster's default one. Raises RefusedOrder where no profile enables it,
    the cluster lacks what it needs, or the job cannot be scheduled that way."""
    known = view.schedulers
    name = chosen_by(order.manifest) or known.default
    backend = known.backend(name)
    if backend is None:
        message = f"its agent enables no scheduler backend {name}: it has {', '.join(known.names)}"
        raise RefusedOrder("SchedulerNotEnabled", message)
    if reason := known.why_unusable(name):
        raise RefusedOrder("SchedulerUnusable", f"the scheduler backend {name} cannot be used: {reason}")
    for problem in backend.validate(order.manifest):
        raise RefusedOrder(problem.reason, problem.message)
    return backend


def note(backend: SchedulerBackend) -> dict[str, str]:
    """The annotation that names the backend of a job, where it needs objects."""
    return {api_names.SCHEDULER_ANNOTATION: backend.name} if backend.makes else {}
