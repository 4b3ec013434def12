"""The agent's settings, from the environment."""

from typing import Annotated

import msgspec

from slicebus.agent.state.settings import AgentDecisionSettings
from slicebus.proto.messages import CLUSTER_NAME, ClusterName, ClusterUid
from slicebus.runtime.environment import Seconds, variable_of
from slicebus.runtime.settings import RoleSettings
from slicebus.slices.schedulers import Profile, profiles_of

NAMESPACES = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(,[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"
"""Names of namespaces with commas between."""


class AgentSettings(RoleSettings, frozen=True, kw_only=True):
    """One agent process. Times in seconds."""

    cluster: Annotated[ClusterName, msgspec.Meta(pattern=CLUSTER_NAME)]
    """The name of its WorkerCluster; a DNS label, as it is the first word of a routing key."""
    manager_user: str
    """The broker user that orders must come from. The broker decides who may publish them, and its rights may be wider
    than they should be, so the agent checks it too."""
    policy_file: str | None = None
    """The path of the cluster's policy, YAML; None is the default policy. It is read again when it changes."""
    namespaces: Annotated[str, msgspec.Meta(pattern=NAMESPACES)] = ""
    """The only namespaces that it lists and watches, with commas between; empty is all of them."""
    schedulers: str = ""
    """The profiles of scheduler backends, JSON: a list of `Profile`, that of jobs which choose none first. Empty: only
    the default backend."""
    heartbeat_s: Seconds = 10.0
    inventory_s: Seconds = 600.0
    """The pause between inventories, up to a fifth shorter or longer."""
    status_interval_s: Seconds = 0.5
    """The least pause between two reports on one job; the next one has all changes in between."""
    autoscaler_shrink_s: Seconds = 30.0
    """How long Ray's autoscaler has to end pods that are taken back for others. Then the agent names them itself."""

    def __post_init__(self) -> None:
        """Raises ValueError for what every role refuses, and for profiles of scheduler backends that are wrong."""
        super().__post_init__()
        try:
            profiles_of(self.schedulers)
        except ValueError as error:
            raise ValueError(f"{variable_of('schedulers')}: {error}") from error

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """The profiles of the scheduler backends, at least one."""
        return profiles_of(self.schedulers)

    def leading(self, cluster_uid: ClusterUid) -> AgentDecisionSettings:
        """The settings of decisions, for the process that leads on a cluster."""
        return AgentDecisionSettings(
            cluster=self.cluster,
            cluster_uid=cluster_uid,
            manager_user=self.manager_user,
            status_interval_s=self.status_interval_s,
            autoscaler_shrink_s=self.autoscaler_shrink_s,
            profiles=self.profiles,
        )

    @property
    def watched_namespaces(self) -> tuple[str, ...]:
        """The namespaces, each once; none for all of them."""
        return tuple(dict.fromkeys(filter(None, self.namespaces.split(","))))
