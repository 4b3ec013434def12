"""The state of each job as one role has it, in fields that both roles share, and how two roles differ."""

from collections.abc import Mapping

import msgspec

from slicebus.proto.messages import Counts


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as one role has it."""

    cluster: str
    slice: str
    """The slice under which the worker's pods may run; empty for none."""
    version: int
    """The spec version: the manager's is dispatched, the agent's applied."""
    granted: Counts
    wanted: Counts
    note: str = ""
    """What only this role knows, for people."""


JobStates = Mapping[str, JobState]
"""By `Kind/namespace/name`."""


class Disagreement(msgspec.Struct, frozen=True):
    """A job of one cluster whose states differ between manager and agent; None where a role does not know the job."""

    cluster: str
    job: str
    manager: JobState | None
    agent: JobState | None

    @property
    def about(self) -> tuple[str, ...]:
        """The fields that differ."""
        if self.manager is None or self.agent is None:
            return ("presence",)
        fields = ("slice", "version", "granted", "wanted")
        return tuple(field for field in fields if getattr(self.manager, field) != getattr(self.agent, field))


def disagreements(manager: JobStates, agents: Mapping[str, JobStates]) -> list[Disagreement]:
    """The jobs whose states differ, in the clusters of `agents`. A job whose message is on its way differs too."""
    found = []
    for cluster, agent in sorted(agents.items()):
        mine = {job: state for job, state in manager.items() if state.cluster == cluster}
        for job in sorted(mine.keys() | agent.keys()):
            compared = Disagreement(cluster, job, mine.get(job), agent.get(job))
            if compared.about:
                found.append(compared)
    return found
