"""Rule 6 for what goes with the definition of its kind: nobody has deleted it, and nothing else goes because of it."""

from typing import Any

from simulation.end_rules import EndRules
from simulation.violations import Violation
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.manager.state.outbox import Dispatch, Held
from slicebus.sandbox.apiserver.store import HistoryEntry
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]
_JOB_KINDS = {(resource.group, resource.plural) for resource in JOB_RESOURCES.values()}
_Where = tuple[str, tuple[str, str]]
"""A cluster, and the group and plural of a kind."""


_OF_JOBS_THAT_STAY = ("ClusterLost", "AdmittedElsewhere")
"""The reasons of deletes that follow from something else than the end of a job."""


class DefinitionRules:
    """Follows the definitions of the job kinds, and what goes with them."""

    def __init__(self, ends: EndRules) -> None:
        self._ends = ends
        self._missing: set[_Where] = set()
        self._went: dict[str, _Where] = {}
        """Where the objects were that went with their definition, by UID."""
        self._ended: set[str] = set()
        """The UIDs of those that had ended by then: their copies go because of that."""
        self._withdrawn: dict[str, int] = {}
        """The versions of the deletes that were recorded by then: nothing stops these any more."""

    def see_definition(self, cluster: str, change: HistoryEntry, *, goes: bool) -> None:
        """A definition has changed; `goes`: somebody has just removed it."""
        plural, _, group = change.key[3].partition(".")
        where = cluster, (group, plural)
        if where[1] in _JOB_KINDS and goes:
            self._missing.add(where)
        elif change.type == "ADDED":
            self._missing.discard(where)

    def see_going(self, cluster: str, change: HistoryEntry, dispatch: Dispatch | None) -> None:
        """A job begins to go; a user may have deleted it, or its copy, before. `dispatch` is the newest of it, if it is
        the manager's."""
        if (cluster, change.key[:2]) not in self._missing:
            return
        job, uid = change.object, change.object["metadata"]["uid"]
        self._went[uid] = cluster, change.key[:2]
        self._ends.goes_with_definition(job)
        if KINDS[job["kind"]].outcome(job).phase.is_terminal:
            self._ended.add(uid)
        if dispatch is not None and dispatch.held is Held.ABSENT:
            self._withdrawn[uid] = dispatch.version

    def explains(self, job: Manifest) -> bool:
        """Whether a job went with its definition."""
        return job["metadata"]["uid"] in self._went

    def check_order(self, order: Manifest) -> None:
        """A job may be deleted on a worker that no user has deleted: not because it went with its definition, as long
        as that is missing. On a cluster that was given up it is deleted wherever it is by now. A suspended copy goes
        for the job's next place, which was decided while the job was there."""
        job, uid = order["job"], order["job"]["uid"]
        had_to_go = uid in self._ended or order["spec_version"] <= self._withdrawn.get(uid, 0)
        if order["reason"] not in _OF_JOBS_THAT_STAY and not had_to_go and self._went.get(uid) in self._missing:
            raise Violation(f"rule 6: {job['name']} went with its definition, and is deleted where it runs")
