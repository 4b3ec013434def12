"""Keeps pods gated that are not those that their slice is charged for.

Whoever may edit a job on its worker may give a pod template more cores, the label of another pod set, or the nodes of
another flavor. Its pods stay behind their gate, and the job says why on both sides. So do all pods while nothing here
says what they are charged for: somebody has deleted the Workload copy of their slice.
"""

from collections import Counter

from slicebus.agent.decide.pods.pod_placement import misplaced, nodes_of
from slicebus.agent.state.annotations import spec_version
from slicebus.agent.state.views import WorkerView
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import Problem
from slicebus.slices.workload.pod_fit import PodMisfit, of_pod, of_template
from slicebus.slices.workload.ungate import Pod, pod_set_of
from slicebus.slices.workload.waiting import PODS_PAST_SLICE, WORKLOAD_MISSING

_UNKNOWN = PodMisfit("nothing says what it is charged for")


class Fit:
    """What the pods of one job are compared with."""

    def __init__(self, view: WorkerView) -> None:
        """Read the pod sets that the job's slice is charged for, and the present templates of the job."""
        slice = view.reading.slice if view.reading is not None else ""

        def order(copy: Manifest) -> tuple[bool, int]:
            """All slices of a chain have the same pod sets. The newest one's copy may come after its job has its
            grant."""
            return copy["metadata"]["name"] == slice, spec_version(copy)

        copy = max(view.own_copies, key=order, default=None)
        pod_sets = copy["spec"].get("podSets") or () if copy is not None else ()
        self._charged: dict[str, Manifest] = {one["name"]: one["template"].get("spec") or {} for one in pod_sets}
        self._nodes = nodes_of(copy) if copy is not None else {}
        self._kind = KINDS[view.key.kind]
        self._templates = self._of_templates(view) if self._charged else {}
        self._edited = view.edited

    @property
    def is_known(self) -> bool:
        """Whether a Workload copy says what the pods are charged for. While none does, no gated pod may start."""
        return bool(self._charged)

    def misfit(self, pod: Pod) -> PodMisfit | None:
        """Why a gated pod may not start under its pod set's grant; None where it may."""
        if not self.is_known:
            return _UNKNOWN
        charged, made_for = self._charged.get(pod.pod_set), self._kind.pod_set_of(pod.labels)
        if charged is None or (made_for and made_for != pod.pod_set):
            return _of_other(made_for or pod.pod_set, pod.pod_set)
        named = self._edited.get(pod.pod_set, {})
        if misfit := self._templates.get(pod.pod_set) or of_pod(pod.manifest["spec"], charged, named):
            return misfit
        elsewhere = misplaced(pod.manifest, self._nodes.get(pod.pod_set, ()))
        return PodMisfit(elsewhere) if elsewhere else None

    def _of_templates(self, view: WorkerView) -> dict[str, PodMisfit]:
        """Why no pod of a pod set may start, by the present templates."""
        found: dict[str, PodMisfit] = {}
        for target in view.scale_targets:
            for name, template in self._kind.templates(view.job or {}, target).items():
                labelled = pod_set_of({"metadata": template.get("metadata") or {}})
                if labelled and labelled != name:
                    found |= {name: _of_other(name, labelled), labelled: _of_other(name, labelled)}
                elif name in self._charged and (misfit := of_template(template["spec"], self._charged[name])):
                    found[name] = misfit
        return found


def problem(view: WorkerView) -> Problem | None:
    """Why granted pods stay gated; None where all of them may start."""
    job = view.reading
    if job is None or not job.runs or not view.scale_targets:
        return None
    fit, kept = Fit(view), Counter[tuple[str, PodMisfit]]()
    for name, members in view.pod_sets.items():
        if members.gated and len(members.running) < job.granted.get(name, 0):
            kept.update((name, misfit) for pod in members.gated if (misfit := fit.misfit(pod)) is not None)
    if not kept:
        return None
    if not fit.is_known:
        return Problem(WORKLOAD_MISSING, _missing_text(kept.total()))
    texts = [f"{_pods(count)} of {name}: {misfit.text}" for (name, misfit), count in sorted(kept.items())]
    return Problem(PODS_PAST_SLICE, f"pods stay gated that are not those of their slice: {'; '.join(texts)}")


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def _missing_text(pods: int) -> str:
    stay, they = ("1 pod stays", "it is") if pods == 1 else (f"{pods} pods stay", "they are")
    return (
        f"{stay} gated: somebody has deleted the job's Workload on this cluster, which says what {they} charged for. "
        "The manager sends it again"
    )


def _of_other(made_for: str, labelled: str) -> PodMisfit:
    return PodMisfit(f"made for pod set {made_for!r}, and labelled as of {labelled!r}")
