"""What a role believes of each job, in the terms that both roles share."""

from collections.abc import Mapping

import msgspec

from slicebus.proto.messages import Counts


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """One job, as one role sees it."""

    cluster: str
    slice: str
    """The slice that the worker's pods may run on; empty for none."""
    version: int
    """Of the spec that was dispatched, or applied."""
    granted: Counts
    wanted: Counts
    note: str = ""
    """What only this role knows, in words."""


Beliefs = Mapping[str, Belief]
"""By `Kind/namespace/name`."""


class Disagreement(msgspec.Struct, frozen=True):
    """A job of one cluster that manager and agent do not see alike; None is a job that one of them does not know."""

    cluster: str
    job: str
    manager: Belief | None
    agent: Belief | None

    @property
    def about(self) -> tuple[str, ...]:
        """The fields that differ."""
        if self.manager is None or self.agent is None:
            return ("presence",)
        fields = ("slice", "version", "granted", "wanted")
        return tuple(field for field in fields if getattr(self.manager, field) != getattr(self.agent, field))


def disagreements(manager: Beliefs, agents: Mapping[str, Beliefs]) -> list[Disagreement]:
    """Where they differ, over the clusters whose agents are known. What is on its way differs too, for a moment."""
    found = []
    for cluster, agent in sorted(agents.items()):
        mine = {job: belief for job, belief in manager.items() if belief.cluster == cluster}
        for job in sorted(mine.keys() | agent.keys()):
            compared = Disagreement(cluster, job, mine.get(job), agent.get(job))
            if compared.about:
                found.append(compared)
    return found
