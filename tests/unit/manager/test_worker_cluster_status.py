"""The WorkerCluster's status: what an agent reports is written, silence is noticed once."""

from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Command, Patch
from slicebus.manager.decide.cluster import identity, worker_cluster_status
from slicebus.manager.state.worker_clusters import CONNECTED, Sender, WorkerCluster
from slicebus.proto.errors import ProtocolError
from slicebus.proto.messages import ClusterUid, Heartbeat, Hello
from slicebus.sandbox.apiserver.patches import merge_patch
from slicebus.slices.api.selectors import selects
from slicebus.slices.workload.pod_additions import PodAdditions
from slicebus.slices.workload.workload import FlavorName
from unit.manager.objects import NOW, an_envelope, condition, shorts

Manifest = dict[str, Any]
BEFORE, LATER, MUCH_LATER = "2026-01-31T11:59:59Z", "2026-01-31T13:00:00Z", "2026-01-31T14:00:00Z"
HELLO = Hello(agent_version="0.1.0", kubernetes_version="v1.34.0", schema_version="1.0")
BEAT = Heartbeat(capacity={"": {"cpu": "64"}}, used={"": {"cpu": "5"}}, jobs=2, lag_s=1.6, out_of_sync=1)


def a_cluster(
    connected: bool | None = None, *, name: str = "east", status: Manifest | None = None, **spec: Any
) -> Manifest:
    conditions = [] if connected is None else [condition(CONNECTED, connected, "Connected", "The agent speaks")]
    return {
        "apiVersion": "slicebus.dev/v1alpha1",
        "kind": "WorkerCluster",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "3", "generation": 1},
        "spec": {"accepted": True} | spec,
        "status": {"conditions": conditions} | (status or {}),
    }


def carried_out(cluster: Manifest, commands: list[Command]) -> Manifest:
    for command in commands:
        if isinstance(command, Patch):
            assert command.subresource == "status"
            cluster = merge_patch(cluster, command.body)
    return cluster


SPECS: dict[str, tuple[Manifest, dict[str, Any]]] = {
    "accepted": (a_cluster(), {"accepted": True, "cordoned": False, "weight": 1, "user": "east", "connected": False}),
    "bare": (
        {"metadata": {"name": "east"}},
        {"accepted": False, "cordoned": False, "weight": 1, "user": "east", "connected": False, "epoch": 0},
    ),
    "another user": (a_cluster(brokerUser="agent-1"), {"user": "agent-1"}),
    "cordoned and weighed": (a_cluster(cordoned=True, weight=3), {"cordoned": True, "weight": 3}),
    "open to all": (a_cluster(), {"namespace_selector": {}, "cluster_queues": None, "max_room": {}}),
    "for some": (
        a_cluster(namespaceSelector={"matchLabels": {"a": "b"}}, clusterQueues=["cq"], maxRoom={"cpu": "2", "pods": 5}),
        {
            "namespace_selector": {"matchLabels": {"a": "b"}},
            "cluster_queues": frozenset({"cq"}),
            "max_room": {"cpu": 2000, "pods": 5},
        },
    ),
    "connected": (a_cluster(True, status={"epoch": 7}), {"connected": True}),
    "lost": (a_cluster(False), {"connected": False}),
}


def test_a_cluster_whose_selector_is_none_takes_no_jobs() -> None:
    """It would otherwise keep every tree of quota from being decided."""
    read = WorkerCluster.from_manifest(a_cluster(namespaceSelector={"matchExpressions": [{"key": "team"}]}))
    assert not selects(read.place.namespace_selector, {"team": "a"})


@pytest.mark.parametrize(("manifest", "expected"), SPECS.values(), ids=SPECS.keys())
def test_a_cluster_is_read(manifest: Manifest, expected: dict[str, Any]) -> None:
    read = WorkerCluster.from_manifest(manifest)
    assert {name: getattr(read, name) for name in expected} == expected


def test_who_may_speak_for_which_cluster() -> None:
    east, west = a_cluster(status={"epoch": 7}), a_cluster(name="west", accepted=False, brokerUser="w")
    assert Sender.from_manifest(east) == Sender(accepted=True, user="east", epoch=7)
    assert Sender.from_manifest(west) == Sender(accepted=False, user="w", epoch=0)


@pytest.mark.parametrize(
    ("connected", "is_reported"), [(None, True), (False, True), (True, False)], ids=["new", "lost", "connected"]
)
@pytest.mark.parametrize("kind", ["hello", "heartbeat"])
def test_the_first_message_connects_it(kind: str, connected: bool | None, is_reported: bool) -> None:
    cluster, envelope = a_cluster(connected), an_envelope(epoch=9)
    commands = (
        worker_cluster_status.hello(cluster, HELLO, envelope, now=NOW)
        if kind == "hello"
        else worker_cluster_status.heartbeat(cluster, BEAT, envelope, now=NOW)
    )
    assert [what for what, *_ in shorts(commands)] == ["east", *(["event WorkerCluster"] if is_reported else [])]
    after = carried_out(cluster, commands)
    assert WorkerCluster.from_manifest(after).connected
    assert after["status"]["epoch"] == 9
    assert after["status"]["lastHeartbeatTime"] == NOW


def test_what_the_agent_reports_is_written() -> None:
    cluster, envelope = a_cluster(), an_envelope()
    cluster = carried_out(cluster, worker_cluster_status.hello(cluster, HELLO, envelope, now=NOW))
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, BEAT, envelope, now=LATER))
    assert {name: value for name, value in cluster["status"].items() if name != "conditions"} == {
        "epoch": 1,
        "clusterUID": "uid-of-east",
        "agentVersion": "0.1.0",
        "kubernetesVersion": "v1.34.0",
        "schemaVersion": "1.0",
        "capacity": {"": {"cpu": "64"}},
        "used": {"": {"cpu": "5"}},
        "ours": {},
        "room": "",
        "jobs": 2,
        "lagSeconds": 2,
        "outOfSync": 1,
        "lastHeartbeatTime": LATER,
    }
    [connected] = cluster["status"]["conditions"]
    assert (connected["status"], connected["lastTransitionTime"]) == ("True", NOW)


def test_what_a_cluster_adds_to_pods_is_written_and_read() -> None:
    added = {"container_defaults": {"team": {"cpu": "4"}}, "pod_overheads": {"kata": {"memory": "128Mi"}}}
    cluster, told = a_cluster(), Heartbeat(**added)
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, told, an_envelope(), now=NOW))
    additions = WorkerCluster.from_manifest(cluster).additions
    assert additions == PodAdditions({"team": {"cpu": 4000}}, {"kata": {"memory": 2**27}})
    assert WorkerCluster.from_manifest(cluster).place.additions == additions
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, Heartbeat(), an_envelope(), now=LATER))
    assert WorkerCluster.from_manifest(cluster).additions == additions, "an agent that cannot tell takes nothing back"
    nothing = Heartbeat(container_defaults={}, pod_overheads={})
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, nothing, an_envelope(), now=LATER))
    assert WorkerCluster.from_manifest(cluster).additions == PodAdditions()


@pytest.mark.parametrize(
    ("told", "written"),
    [
        ({}, {}),
        ({"ingress": True, "podSecurity": "restricted"}, {"ingress": True, "podSecurity": "restricted"}),
        ({"ingress": True, "rulesOfLater": ["x"]}, {"ingress": True}),
        ({"podSecurity": "tight"}, None),
        ({"serviceTypes": 3}, None),
    ],
)
def test_the_policy_of_a_cluster_is_written(told: Manifest, written: Manifest | None) -> None:
    cluster = a_cluster()
    cluster = carried_out(
        cluster, worker_cluster_status.heartbeat(cluster, Heartbeat(policy=told), an_envelope(), now=NOW)
    )
    assert cluster["status"].get("policy") == written
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, Heartbeat(), an_envelope(), now=LATER))
    assert cluster["status"].get("policy") == written, "an agent that cannot tell takes nothing back"
    default = Heartbeat(policy={})
    cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, default, an_envelope(), now=MUCH_LATER))
    assert cluster["status"]["policy"] == {}


def test_an_addition_that_is_no_quantity_is_a_dead_letter() -> None:
    told = Heartbeat(container_defaults={"team": {"cpu": "lots"}})
    with pytest.raises(ProtocolError, match="not a quantity: 'lots'"):
        worker_cluster_status.heartbeat(a_cluster(), told, an_envelope(), now=NOW)


BEATS = {
    "a resource less": (Heartbeat(used={"": {"cpu": "5", "gpu": "1"}}), Heartbeat(used={"": {"cpu": "5"}})),
    "nothing runs any more": (Heartbeat(used={"": {"cpu": "5"}}), Heartbeat(used={"": {}})),
    "a flavor less": (Heartbeat(capacity={"a": {"cpu": "1"}, "b": {}}), Heartbeat(capacity={"a": {"cpu": "2"}})),
    "the same": (BEAT, BEAT),
}


@pytest.mark.parametrize(("first", "second"), BEATS.values(), ids=BEATS.keys())
def test_what_is_no_longer_reported_is_no_longer_written(first: Heartbeat, second: Heartbeat) -> None:
    cluster = a_cluster()
    for beat in (first, second):
        cluster = carried_out(cluster, worker_cluster_status.heartbeat(cluster, beat, an_envelope(), now=NOW))
    assert cluster["status"]["used"] == second.used
    assert cluster["status"]["capacity"] == second.capacity


BUSY = Heartbeat(
    capacity={"": {"cpu": "64"}}, used={"": {"cpu": "5"}}, ours={"": {"cpu": "2"}}, jobs=2, lag_s=0.0, out_of_sync=0
)
SOON, IN_HALF_A_MINUTE = "2026-01-31T12:00:29Z", "2026-01-31T12:00:30Z"
WRITTEN_AT_ONCE: dict[str, tuple[Manifest, bool]] = {
    "the same": ({}, False),
    "one more job": ({"jobs": 3}, False),
    "a job has grown": ({"used": {"": {"cpu": "8"}}, "ours": {"": {"cpu": "5"}}}, False),
    "others use more": ({"used": {"": {"cpu": "8"}}}, True),
    "a pod of ours is another's now": ({"ours": {}}, True),
    "a node less": ({"capacity": {"": {"cpu": "32"}}}, True),
    "a namespace is lacking": ({"lacking": {"team-a": "NotFound"}}, True),
    "another scheduler": ({"scheduler_backends": ["kai"]}, True),
    "a fence": ({"fence_s": 60.0}, True),
    "it falls behind": ({"lag_s": 3.0}, True),
    "a job is not what was ordered": ({"out_of_sync": 1}, True),
}


@pytest.mark.parametrize(("news", "at_once"), WRITTEN_AT_ONCE.values(), ids=WRITTEN_AT_ONCE.keys())
def test_what_is_only_shown_is_written_every_half_minute(news: Manifest, at_once: bool) -> None:
    cluster = carried_out(a_cluster(), worker_cluster_status.heartbeat(a_cluster(), BUSY, an_envelope(), now=NOW))
    beat = msgspec.structs.replace(BUSY, **news)

    def written(cluster: Manifest = cluster, *, now: str, **sender: Any) -> bool:
        return bool(worker_cluster_status.heartbeat(cluster, beat, an_envelope(**sender), now=now))

    assert written(now=SOON) == at_once
    assert written(now=IN_HALF_A_MINUTE)
    assert written(now=BEFORE), "a clock that was set back"
    assert written(now=SOON, epoch=2)
    assert written(now=SOON, uid=ClusterUid("u-2"))
    silent = carried_out(cluster, worker_cluster_status.lost(cluster, silent_s=31, now=NOW))
    assert written(silent, now=SOON)
    envelope = an_envelope(uid=ClusterUid("u-2"))
    assert written(carried_out(cluster, identity.conflict(cluster, envelope, now=NOW)), now=SOON)


def test_silence_is_noticed_once() -> None:
    cluster = a_cluster(True)
    commands = worker_cluster_status.lost(cluster, silent_s=31.4, now=NOW)
    assert shorts(commands) == [("east", "Connected=False HeartbeatLost"), ("warn WorkerCluster", "HeartbeatLost")]
    after = carried_out(cluster, commands)
    assert not WorkerCluster.from_manifest(after).connected
    assert worker_cluster_status.lost(after, silent_s=60.0, now=LATER) == []


def test_a_cluster_that_never_spoke_is_not_lost() -> None:
    assert worker_cluster_status.lost(a_cluster(), silent_s=1e6, now=NOW) == []


def test_losing_it_keeps_what_it_reported() -> None:
    cluster = a_cluster(True, status={"epoch": 7, "jobs": 3})
    after = carried_out(cluster, worker_cluster_status.lost(cluster, silent_s=31, now=NOW))
    assert (after["status"]["epoch"], after["status"]["jobs"]) == (7, 3)


ROOM = {
    "what others leave": (
        {"used": {"default": {"cpu": "3"}}, "ours": {"default": {"cpu": "2"}}},
        {},
        63_000,
    ),
    "ours alone": ({"used": {"default": {"cpu": "2"}}, "ours": {"default": {"cpu": "2"}}}, {}, 64_000),
    "more of ours than is used": ({"used": {"default": {"cpu": "2"}}, "ours": {"default": {"cpu": "3"}}}, {}, 64_000),
    "others use all of it": ({"used": {"default": {"cpu": "65"}}, "ours": {}}, {}, 0),
    "before the first report": ({"capacity": None}, {}, 0),
    "a flavor that is not reported": ({"capacity": {"": {"cpu": "9"}}, "ours": {}}, {}, 0),
    "unlimited": ({"used": {}, "ours": {}}, {"capacity": "Unlimited"}, None),
    "an unlimited flavor": ({"used": {}, "ours": {}}, {"flavorCapacity": {"default": "Unlimited"}}, None),
    "another unlimited flavor": ({"used": {}, "ours": {}}, {"flavorCapacity": {"gpu": "Unlimited"}}, 64_000),
}


@pytest.mark.parametrize(("status", "spec", "limit"), ROOM.values(), ids=ROOM.keys())
def test_what_our_jobs_may_use_of_a_cluster(status: Manifest, spec: Manifest, limit: int | None) -> None:
    cluster = a_cluster(True)
    cluster["spec"] |= spec
    told = {"capacity": {"default": {"cpu": "64"}}} | status
    cluster["status"] |= {name: value for name, value in told.items() if value is not None}
    assert WorkerCluster.from_manifest(cluster).place.limit((FlavorName("default"), "cpu")) == limit


SHOWN_ROOM: dict[str, tuple[Manifest, Heartbeat, str]] = {
    "less what others use, and what was granted": (
        {},
        Heartbeat(
            capacity={"": {"cpu": "80"}, "default": {"cpu": "40", "memory": "160Gi", "pods": "110"}},
            used={"default": {"cpu": "3500m", "memory": "5Gi"}},
            ours={"default": {"cpu": "1", "memory": "1Gi"}},
        ),
        "default 29.5/40 cpu, 156/160Gi",
    ),
    "each flavor, and devices": (
        {},
        Heartbeat(
            capacity={"gpu": {"cpu": "8", "nvidia.com/gpu": "4", "amd.com/gpu": "0"}, "default": {"cpu": "8"}},
            used={"gpu": {"nvidia.com/gpu": "1"}},
            ours={},
        ),
        "default 0/8 cpu; gpu 8/8 cpu, 3/4 nvidia.com/gpu",
    ),
    "a flavor without nodes": ({}, Heartbeat(capacity={"default": {}}, ours={}), "default 0/0 cpu"),
    "an unlimited flavor": (
        {"flavorCapacity": {"spot": "Unlimited"}},
        Heartbeat(capacity={"default": {"cpu": "8"}, "spot": {"cpu": "2"}}, ours={}),
        "default 0/8 cpu; spot unlimited",
    ),
    "an unlimited cluster": ({"capacity": "Unlimited"}, Heartbeat(capacity={"default": {}}, ours={}), "unlimited"),
}


@pytest.mark.parametrize(("spec", "beat", "shown"), SHOWN_ROOM.values(), ids=SHOWN_ROOM.keys())
def test_the_room_that_is_left_is_shown(spec: Manifest, beat: Heartbeat, shown: str) -> None:
    cluster, granted = a_cluster(**spec), {(FlavorName("default"), "cpu"): 8_000}
    commands = worker_cluster_status.heartbeat(cluster, beat, an_envelope(), now=NOW, granted=granted)
    assert carried_out(cluster, commands)["status"]["room"] == shown


def test_a_heartbeat_with_what_is_no_quantity_is_refused() -> None:
    beat = Heartbeat(capacity={"default": {"cpu": "many"}}, ours={})
    with pytest.raises(ProtocolError, match="not a quantity: 'many'"):
        worker_cluster_status.heartbeat(a_cluster(), beat, an_envelope(), now=NOW)
