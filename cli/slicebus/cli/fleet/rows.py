"""WorkerClusters as rows of `slicebus fleet list`."""

from typing import Any

import msgspec

from slicebus.cli.cluster.listing import Column
from slicebus.cli.durations import age_of
from slicebus.manager.decide.cluster.worker_cluster_status import held_deletes
from slicebus.manager.state.worker_clusters import WorkerCluster


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker cluster of the fleet."""

    name: str
    status: str
    """Whether it is connected, and everything that is out of the ordinary, with commas between."""
    jobs: int
    heard: str | None
    """When its agent was last heard, RFC 3339; None for never."""
    room: str
    """What is left by flavor, as the WorkerCluster has it."""
    agent: str
    """The version of its agent."""
    kubernetes: str

    @property
    def resource_name(self) -> str:
        """Its name for kubectl."""
        return f"workercluster.slicebus.dev/{self.name}"

    @classmethod
    def of(cls, manifest: dict[str, Any], *, is_known: bool = True) -> "ClusterRow":
        """The row of a WorkerCluster. `is_known`: a manager works, who would have written that it has fallen silent."""
        cluster, status = WorkerCluster.from_manifest(manifest), manifest.get("status", {})
        return cls(
            name=cluster.name,
            status=", ".join(states_of(cluster, status, is_known=is_known)),
            jobs=status.get("jobs", 0),
            heard=status.get("lastHeartbeatTime"),
            room=status.get("room", ""),
            agent=status.get("agentVersion", ""),
            kubernetes=status.get("kubernetesVersion", ""),
        )


COLUMNS = (
    Column[ClusterRow]("CLUSTER", lambda row: row.name),
    Column[ClusterRow]("STATUS", lambda row: row.status),
    Column[ClusterRow]("JOBS", lambda row: str(row.jobs)),
    Column[ClusterRow]("SEEN", lambda row: f"{age_of(row.heard)} ago" if row.heard else "never"),
    Column[ClusterRow]("AGENT", lambda row: row.agent, is_wide=True),
    Column[ClusterRow]("KUBERNETES", lambda row: row.kubernetes, is_wide=True),
    Column[ClusterRow]("ROOM", lambda row: row.room),
)


def states_of(cluster: WorkerCluster, status: dict[str, Any], *, is_known: bool = True) -> list[str]:
    """Whether a cluster is connected, and everything that is out of the ordinary."""
    held, out_of_sync = sum(hold["jobs"] for hold in held_deletes(status)), status.get("outOfSync", 0)
    lag_s = status.get("lagSeconds", 0)
    return [
        "unknown" if not is_known else "connected" if cluster.connected else "silent",
        *(["not accepted"] if not cluster.accepted else []),
        *(["given up"] if cluster.given_up else []),
        *(["drained"] if cluster.draining else ["cordoned"] if cluster.cordoned else []),
        *([f"{held} deletes held"] if held else []),
        *([f"{out_of_sync} out of sync"] if out_of_sync else []),
        *([f"{lag_s} s behind"] if lag_s else []),
    ]
