"""The settings that the agent's decisions depend on.

They are part of the store, so that a recording has them and a replay decides by the same ones.
"""

import msgspec

from slicebus.proto.messages import ClusterName, ClusterUid
from slicebus.slices.schedulers import NO_PROFILES, Profile


class AgentDecisionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one agent that leads. `AgentSettings` describes each, and has the defaults."""

    cluster: ClusterName = ClusterName("")
    cluster_uid: ClusterUid = ClusterUid("")
    """The UID that the cluster itself has, whatever its name."""
    manager_user: str = ""
    status_interval_s: float = 0.0
    autoscaler_shrink_s: float = 30.0
    profiles: tuple[Profile, ...] = NO_PROFILES
    """The profiles of the scheduler backends; that of jobs which choose none comes first."""
