"""What becomes of jobs that end, and of jobs that users delete: no end is lost, and nothing deleted is left.

Noted as it happens, whoever may know of it. What has to be true of it is asked when the faults have ended.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from simulation.violations import Violation
from slicebus.agent.state import annotations
from slicebus.kube.resources import JOB_RESOURCES, PODS, WORKLOADS
from slicebus.proto.messages import JobPhase
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.api_names import END_KNOWN_CONDITION
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.workload import Slice

Manifest = dict[str, Any]
_JOB_KINDS = {(resource.group, resource.plural) for resource in JOB_RESOURCES.values()}


class EndRules:
    """Follows the ends of copies, what the manager's jobs say of them, and what users delete. Keys are the UIDs of the
    manager's jobs."""

    def __init__(self, apis: Mapping[str, Api]) -> None:
        self._apis = apis
        self._ended: dict[str, tuple[str, str, JobPhase]] = {}
        """The name of a job, the cluster where its copy ended, and how."""
        self._told: dict[str, JobPhase] = {}
        self._unknown: set[str] = set()
        """Jobs that have said that their end is unknown."""
        self._deleted: dict[str, str] = {}
        """The names of the jobs that users have deleted on the manager."""
        self._unwanted: set[tuple[str, str]] = set()
        """Clusters, and the jobs whose running copy a user has deleted there."""
        self._untold: set[str] = set()
        """Jobs of which nobody can tell any more how they ended."""
        self._restarted: set[str] = set()
        """Jobs that start anew when their copy is gone: somebody has deleted the Workload that had their quota."""

    def user_deletes(self, job: Manifest) -> None:
        """A user is about to delete one of the manager's jobs."""
        self._deleted[job["metadata"]["uid"]] = job["metadata"]["name"]

    def user_deletes_copy(self, copy: Manifest) -> None:
        """A user is about to delete a worker's copy of a job."""
        uid = annotations.annotation(copy, api_names.MANAGER_UID_ANNOTATION) or ""
        if _phase(copy) is JobPhase.RUNNING:
            own = copy["metadata"]["uid"]
            self._unwanted |= {(name, uid) for name, api in self._apis.items() if api.store.key_of_uid(own)}

    def namespace_goes(self, cluster: str) -> None:
        """With the namespace of a worker go the Workload copies, by which its agent reports what became of their jobs.

        An end that was not reported by then goes with them, and the job starts anew. If a user had deleted its running
        copy, the report of that may come when it runs again, and the manager's job goes then.
        """
        for uid in [uid for uid, (_, where, _) in self._ended.items() if where == cluster]:
            del self._ended[uid]
        self._untold |= {uid for where, uid in self._unwanted if where == cluster}

    def goes_with_namespace(self, found: Manifest) -> None:
        """A running copy that goes with its namespace counts as deleted by a user. The report of that may come when the
        job runs again, too."""
        uid = annotations.annotation(found, api_names.MANAGER_UID_ANNOTATION)
        if uid is not None and _phase(found) is JobPhase.RUNNING:
            self._untold.add(uid)

    def goes_with_definition(self, found: Manifest) -> None:
        """A job or a copy goes with the definition of its kind. None of the manager's is left to say how its copy ends.
        An end of a copy that was not reported by then goes with it, and the job starts anew when the definition is
        back."""
        self._untold.add(found["metadata"]["uid"])
        self._ended.pop(annotations.annotation(found, api_names.MANAGER_UID_ANNOTATION) or "", None)

    def see_copy(self, cluster: str, change: HistoryEntry, *, left: Collection[str]) -> None:
        """A worker's copy has changed. `left` are the clusters that were given up with it: nobody asks them."""
        uid, phase = annotations.annotation(change.object, api_names.MANAGER_UID_ANNOTATION), _phase(change.object)
        if uid in self._restarted and change.type == "DELETED":
            # It may have ended after that, and be cleaned up before its agent hears that it has to go.
            self._restarted.remove(uid)
            self._ended.pop(uid, None)
        if uid is not None and phase is not JobPhase.RUNNING and change.type != "DELETED" and cluster not in left:
            self._ended[uid] = change.object["metadata"]["name"], cluster, phase

    def see_slice(self, slice: Slice, *, left: Collection[str]) -> None:
        """One of the manager's Workloads has changed. `left` are the clusters that were given up with its job."""
        uid = slice.job_uid
        if slice.deleting and slice.admitted and not slice.finished:
            self._restarted.add(uid)
        if uid in self._ended and self._ended[uid][1] in left:
            del self._ended[uid]
        if slice.conditions.get(END_KNOWN_CONDITION, {}).get("status") == "False":
            self._unknown.add(uid)

    def see_job(self, change: HistoryEntry) -> None:
        """One of the manager's jobs has changed."""
        job, uid = change.object, change.object["metadata"]["uid"]
        if (phase := _phase(job)) is not JobPhase.RUNNING:
            self._told[uid] = phase
        if change.type == "DELETED":
            self._check_end(uid)

    def check(self) -> None:
        """Raise Violation for an end that nobody is told of, and for what is left of a job that a user deleted."""
        for uid in self._ended:
            if not self._can_tell(uid):
                self._check_end(uid)
        for cluster, api in self._apis.items():
            for key, found in api.store.objects.items():
                left = [self._deleted[uid] for uid in _jobs_of(key[:2], found) if uid in self._deleted]
                if left:
                    what = f"{found['kind']} {key[3]}"
                    raise Violation(f"gone everywhere: a user deleted {left[0]}, and {what} is left on {cluster}")

    def _can_tell(self, uid: str) -> bool:
        """Whether the copy is still there: its end is reported when the last pod is gone, and agreement sees to it."""
        objects = self._apis[self._ended[uid][1]].store.objects
        return any(uid in _jobs_of(key[:2], found) for key, found in objects.items() if key[:2] in _JOB_KINDS)

    def _check_end(self, uid: str) -> None:
        if uid not in self._ended or uid in self._deleted or uid in self._unknown | self._untold:
            return
        name, cluster, phase = self._ended[uid]
        if (told := self._told.get(uid)) is not phase:
            raise Violation(f"no end is lost: {name} ended as {phase} on {cluster}, the manager's job says {told}")


def has_outlived(job: Manifest) -> bool:
    """Whether a job of the manager has ended, and its user has given it a time to live after that."""
    return "ttlSecondsAfterFinished" in job["spec"] and _phase(job) is not JobPhase.RUNNING


def _phase(job: Manifest) -> JobPhase:
    return KINDS[job["kind"]].outcome(job).phase


def _jobs_of(kind: tuple[str, str], found: Manifest) -> Iterator[str]:
    """The jobs of the manager that an object may be, or belong to."""
    labels = found["metadata"].get("labels") or {}
    if kind in _JOB_KINDS:
        yield found["metadata"]["uid"]
    if kind in _JOB_KINDS or kind == (WORKLOADS.group, WORKLOADS.plural):
        yield annotations.annotation(found, api_names.MANAGER_UID_ANNOTATION) or ""
        yield labels.get(kueue.JOB_UID_LABEL, "")
    if kind == (PODS.group, PODS.plural):
        yield labels.get(api_names.MANAGER_UID_LABEL, "")
