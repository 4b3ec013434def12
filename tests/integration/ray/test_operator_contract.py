"""What KubeRay makes of a RayCluster: states, and the pods expected then.

The stand-in has to pass on every machine; a real operator where `KUBERAY_BINARY` and `KUBERAY_CRDS` name one. Source of
the rules: KubeRay 1.7, `reconcilePods` in `ray-operator/controllers/ray/raycluster_controller.go`.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from integration.ray.contract import GROUP, HEAD, HOST_INDEX, OTHER, REPLICA, REPLICA_INDEX, Operator, RayCluster

Manifest = dict[str, Any]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster with one group, another size of it, what then happens, and the pods afterwards."""

    id: str
    replicas: int = 3
    hosts: int = 1
    fields: Manifest = {}
    autoscaling: bool = True
    held: tuple[int, ...] = ()
    """The pods that do not go as long as the test lasts."""
    to: int | None = None
    """Another number of replicas."""
    named: tuple[int, ...] = ()
    """The pods in `workersToDelete`, in the same patch."""
    failed: tuple[int, ...] = ()
    deleted: tuple[int, ...] = ()
    """The pods that somebody else deletes."""
    stay: tuple[int, ...] = ()
    going: tuple[int, ...] = ()
    made: int = 0


ANY_OPERATOR = [
    State(id="larger", replicas=1, to=3, stay=(0,), made=2),
    State(id="larger-than-max", replicas=1, fields={"maxReplicas": 2}, to=4, stay=(0,), made=1),
    State(id="smaller-than-min", replicas=1, fields={"minReplicas": 1}, to=0, stay=(0,)),
    State(id="smaller-and-nothing-named", to=1, stay=(0, 1, 2)),
    State(id="smaller-with-names", to=1, named=(0, 2), stay=(1,)),
    State(id="to-nothing-with-names", to=0, named=(0, 1, 2)),
    State(id="fewer-named-than-too-many", to=0, named=(1,), stay=(0, 2)),
    State(id="named-but-no-smaller-size", named=(1,), stay=(0, 2), made=1),
    State(id="named-and-larger", to=4, named=(1,), stay=(0, 2), made=2),
    State(id="named-and-still-there", named=(1,), held=(1,), stay=(0, 2), going=(1,), made=1),
    State(id="one-fails", failed=(0,), stay=(1, 2), made=1),
    State(id="one-fails-and-a-smaller-size", failed=(0,), to=2, stay=(1, 2)),
    State(id="failed-and-still-there", failed=(0,), held=(0,), stay=(1, 2), going=(0,)),
    State(id="deleted", deleted=(0,), stay=(1, 2), made=1),
    State(id="deleted-and-still-there", deleted=(0,), held=(0,), stay=(1, 2), going=(0,)),
    State(id="smaller-without-autoscaling-with-names", autoscaling=False, to=1, named=(0, 2), stay=(1,)),
]
WHOLE_REPLICAS = [
    State(id="larger", replicas=1, hosts=2, to=2, stay=(0, 1), made=2),
    State(id="smaller-and-nothing-named", replicas=2, hosts=2, to=1, stay=(0, 1, 2, 3)),
    State(id="one-pod-named", replicas=2, hosts=2, to=1, named=(1,), stay=(2, 3)),
    State(id="both-pods-named", replicas=2, hosts=2, to=1, named=(0, 1), stay=(2, 3)),
    State(
        id="smaller-without-autoscaling-with-names",
        autoscaling=False,
        replicas=3,
        hosts=2,
        to=1,
        named=(0, 1, 4, 5),
        stay=(2, 3),
    ),
    State(id="named-but-no-smaller-size", replicas=2, hosts=2, named=(1,), stay=(2, 3), made=2),
    State(
        id="named-and-still-there",
        replicas=2,
        hosts=2,
        named=(1,),
        held=(0,),
        stay=(2, 3),
        going=(0,),
    ),
    State(id="incomplete", replicas=2, hosts=2, deleted=(0,), stay=(2, 3), made=2),
    State(id="incomplete-and-a-smaller-size", replicas=2, hosts=2, deleted=(0,), to=1, stay=(2, 3)),
    State(id="incomplete-and-still-there", replicas=2, hosts=2, deleted=(0,), held=(1,), stay=(2, 3), going=(1,)),
    State(id="one-fails", replicas=2, hosts=2, failed=(3,), stay=(0, 1), made=2),
]
SINGLE_PODS = [
    State(id="larger", replicas=1, hosts=2, to=2, stay=(0, 1), made=2),
    State(id="smaller-and-nothing-named", replicas=2, hosts=2, to=1, stay=(0, 1, 2, 3)),
    State(id="one-pod-named", replicas=2, hosts=2, to=1, named=(1,), stay=(0, 2, 3)),
    State(id="both-pods-named", replicas=2, hosts=2, to=1, named=(0, 1), stay=(2, 3)),
    State(
        id="smaller-without-autoscaling-with-names",
        autoscaling=False,
        replicas=2,
        hosts=2,
        to=1,
        named=(1, 2),
        stay=(0, 3),
    ),
    State(id="deleted", replicas=2, hosts=2, deleted=(0,), stay=(1, 2, 3), made=1),
    State(id="one-fails", replicas=2, hosts=2, failed=(3,), stay=(0, 1, 2), made=1),
]
without_labels = pytest.mark.parametrize("replica_labels", [False], ids=["without-labels"])


@pytest.fixture
async def clusters(operator: Operator) -> AsyncIterator["Clusters"]:
    """The clusters of a test, which go with it."""
    made = Clusters(operator)
    yield made
    for cluster in made.made:
        await cluster.remove()
        await cluster.release()


class Clusters:
    """Makes clusters, and knows them."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.made: list[RayCluster] = []

    async def make(self, name: str, *groups: Manifest, autoscaling: bool = True) -> RayCluster:
        cluster = await self._operator.cluster(name, *groups, autoscaling=autoscaling)
        self.made.append(cluster)
        return cluster


async def in_state(clusters: Clusters, state: State, *, name: str) -> RayCluster:
    """A cluster after what a state says, with the pods that it expects."""
    group = {"replicas": state.replicas, "numOfHosts": state.hosts, **state.fields}
    cluster = await clusters.make(name, group, autoscaling=state.autoscaling)
    names = cluster.names(*state.named)
    await cluster.hold(*state.held)
    if state.to is not None or names:
        await cluster.scale(state.to, names or None)
        await cluster.until_seen()
    await cluster.fail(*state.failed)
    await cluster.delete(*state.deleted)
    await cluster.expect(stay=state.stay, going=state.going, made=state.made)
    assert await cluster.named() == names, "the operator never clears the list"
    await cluster.expect(group=HEAD, stay=(0,))
    return cluster


@pytest.mark.parametrize("state", ANY_OPERATOR, ids=lambda state: state.id)
async def test_pods_of_single_host_groups(clusters: Clusters, state: State) -> None:
    await in_state(clusters, state, name=f"s-{state.id}"[:40])


@pytest.mark.parametrize("state", WHOLE_REPLICAS, ids=lambda state: state.id)
async def test_replicas_of_several_hosts_are_whole(clusters: Clusters, state: State) -> None:
    await in_state(clusters, state, name=f"w-{state.id}"[:40])


@without_labels
@pytest.mark.parametrize("state", SINGLE_PODS, ids=lambda state: state.id)
async def test_without_labels_pods_of_several_hosts_are_single_ones(clusters: Clusters, state: State) -> None:
    await in_state(clusters, state, name=f"p-{state.id}"[:40])


async def test_a_failed_replica_is_replaced_before_it_has_gone(clusters: Clusters) -> None:
    """Unlike a failed pod of a single-host group: this pass goes on."""
    cluster = await clusters.make("failed-replica", {"replicas": 2, "numOfHosts": 2})
    await cluster.hold(0, 1)
    await cluster.fail(0)
    await cluster.expect(stay=(2, 3), going=(0, 1), made=2)


async def test_nothing_is_made_until_earlier_deletes_are_seen(clusters: Clusters) -> None:
    cluster = await clusters.make("expects", {"replicas": 2})
    await cluster.hold(0)
    await cluster.scale(1, cluster.names(0))
    await cluster.expect(stay=(1,), going=(0,))
    await cluster.scale(3)
    await cluster.expect(stay=(1,), going=(0,))
    await cluster.release()
    await cluster.expect(stay=(1,), made=2)


async def test_nothing_is_made_beside_a_failed_pod_that_is_still_there(clusters: Clusters) -> None:
    cluster = await clusters.make("fails", {"replicas": 2})
    await cluster.hold(0)
    await cluster.fail(0)
    await cluster.expect(stay=(1,), going=(0,))
    await cluster.scale(3)
    await cluster.expect(stay=(1,), going=(0,))
    await cluster.release()
    await cluster.expect(stay=(1,), made=2)


async def test_a_pod_that_somebody_else_deletes_counts_until_it_has_gone(clusters: Clusters) -> None:
    """KubeRay does not wait for what it has not done itself."""
    cluster = await clusters.make("not-its-own", {"replicas": 2})
    await cluster.hold(0)
    await cluster.delete(0)
    await cluster.expect(stay=(1,), going=(0,))
    await cluster.scale(3)
    await cluster.expect(stay=(1,), going=(0,), made=1)
    await cluster.release()
    await cluster.expect(stay=(1,), made=2)


async def test_a_group_that_waits_holds_up_no_other(clusters: Clusters) -> None:
    cluster = await clusters.make("groups", {"replicas": 2}, {"groupName": OTHER, "replicas": 1})
    await cluster.hold(0)
    await cluster.scale(1, cluster.names(0))
    await cluster.expect(stay=(1,), going=(0,))
    await cluster.scale(2, group=1)
    await cluster.expect(group=OTHER, stay=(0,), made=1)


async def test_a_broken_pod_of_one_group_holds_up_the_others_for_one_pass(clusters: Clusters) -> None:
    cluster = await clusters.make("broken", {"replicas": 1}, {"groupName": OTHER, "replicas": 1})
    await cluster.hold(0)
    await cluster.fail(0)
    await cluster.scale(2, group=1)
    await cluster.expect(group=OTHER, stay=(0,), made=1)
    await cluster.expect(going=(0,))


async def test_names_of_another_group_are_deleted_too(clusters: Clusters) -> None:
    cluster = await clusters.make("foreign", {"replicas": 1}, {"groupName": OTHER, "replicas": 2})
    await cluster.scale(None, cluster.names(0, group=OTHER))
    await cluster.expect(stay=(0,))
    await cluster.expect(group=OTHER, stay=(1,), made=1)


async def test_names_of_pods_that_have_gone_change_nothing(clusters: Clusters) -> None:
    """The autoscaler clears the list by a later patch; until then the names stand there."""
    cluster = await clusters.make("cleared", {"replicas": 3})
    names = cluster.names(0)
    await cluster.scale(2, names)
    await cluster.expect(stay=(1, 2))
    await cluster.scale(4)
    await cluster.expect(stay=(1, 2), made=2)
    assert await cluster.named() == names
    await cluster.scale(None, [])
    await cluster.expect(stay=(1, 2), made=2)
    assert await cluster.named() == []


async def test_the_status_of_a_list_that_was_cleared_names_an_older_generation(clusters: Clusters) -> None:
    """KubeRay writes the status only where something else than the generation is new."""
    cluster = await clusters.make("generations", {"replicas": 1})
    await cluster.scale(2)
    await cluster.until_seen()
    await cluster.expect(stay=(0,), made=1)
    seen, observed = await cluster.generations()
    assert seen == observed
    await cluster.scale(None, [])
    await cluster.expect(stay=(0,), made=1)
    assert await cluster.generations() == (seen + 1, observed)


async def test_a_smaller_maximum_removes_no_pod_with_autoscaling(clusters: Clusters) -> None:
    """It is for the autoscaler, whose names are obeyed."""
    cluster = await clusters.make("maximum", {"replicas": 3, "minReplicas": 0, "maxReplicas": 5})
    await cluster.patch({"op": "replace", "path": "/spec/workerGroupSpecs/0/maxReplicas", "value": 1})
    await cluster.until_seen()
    await cluster.expect(stay=(0, 1, 2))
    await cluster.scale(1, cluster.names(0, 2))
    await cluster.expect(stay=(1,))


async def test_without_autoscaling_the_surplus_goes(clusters: Clusters) -> None:
    cluster = await clusters.make("random", {"replicas": 3}, autoscaling=False)
    await cluster.scale(1)
    await cluster.note_pods({GROUP: 1})
    await cluster.expect(stay=(0,))


async def test_without_autoscaling_the_surplus_goes_by_replicas(clusters: Clusters) -> None:
    cluster = await clusters.make("random-replica", {"replicas": 2, "numOfHosts": 2}, autoscaling=False)
    await cluster.scale(1)
    await cluster.note_pods({GROUP: 2})
    await cluster.expect(stay=(0, 1))
    assert len({pod["metadata"]["labels"][REPLICA] for pod in await cluster.pods()}) == 1


async def test_a_suspended_group_has_no_pods(clusters: Clusters) -> None:
    cluster = await clusters.make("group-suspended", {"replicas": 2}, autoscaling=False)
    await cluster.patch({"op": "add", "path": "/spec/workerGroupSpecs/0/suspend", "value": True})
    await cluster.expect()
    await cluster.patch({"op": "remove", "path": "/spec/workerGroupSpecs/0/suspend"})
    await cluster.expect(made=2)
    await cluster.expect(group=HEAD, stay=(0,))


async def test_a_suspended_cluster_has_no_pods(clusters: Clusters) -> None:
    cluster = await clusters.make("suspended", {"replicas": 2})
    await cluster.patch({"op": "add", "path": "/spec/suspend", "value": True})
    await cluster.expect()
    await cluster.expect(group=HEAD)
    await cluster.patch({"op": "replace", "path": "/spec/suspend", "value": False})
    await cluster.expect(made=2)
    await cluster.expect(group=HEAD, made=1)


async def test_a_failed_head_is_replaced_and_the_workers_stay(clusters: Clusters) -> None:
    cluster = await clusters.make("head", {"replicas": 1})
    await cluster.fail(0, group=HEAD)
    await cluster.expect(group=HEAD, made=1)
    await cluster.expect(stay=(0,))


async def test_pods_are_labelled_with_their_replica(clusters: Clusters) -> None:
    cluster = await clusters.make("labels", {"replicas": 2, "numOfHosts": 2}, {"groupName": OTHER, "replicas": 2})
    labels = [pod["metadata"]["labels"] for pod in await cluster.pods()]
    assert [(found[REPLICA_INDEX], found[HOST_INDEX]) for found in labels] == [
        ("0", "0"),
        ("0", "1"),
        ("1", "0"),
        ("1", "1"),
    ]
    replicas = [found[REPLICA] for found in labels]
    assert replicas[0] == replicas[1] != replicas[2] == replicas[3]
    assert all(name.startswith(f"{GROUP}-") for name in replicas)
    single = [pod["metadata"]["labels"] for pod in await cluster.pods(OTHER)]
    assert [found[REPLICA_INDEX] for found in single] == ["0", "1"]
    assert not any(REPLICA in found or HOST_INDEX in found for found in single)


async def test_a_new_replica_takes_the_lowest_free_index(clusters: Clusters) -> None:
    cluster = await clusters.make("indices", {"replicas": 3, "numOfHosts": 2})
    await cluster.scale(2, cluster.names(0))
    await cluster.expect(stay=(2, 3, 4, 5))
    await cluster.scale(4, [])
    await cluster.expect(stay=(2, 3, 4, 5), made=4)
    indices = [pod["metadata"]["labels"][REPLICA_INDEX] for pod in await cluster.pods()]
    assert sorted(indices) == ["0", "0", "1", "1", "2", "2", "3", "3"]


@without_labels
async def test_without_labels_no_pod_tells_its_replica(clusters: Clusters) -> None:
    cluster = await clusters.make("no-labels", {"replicas": 1, "numOfHosts": 2}, {"groupName": OTHER, "replicas": 1})
    for pod in (*await cluster.pods(), *await cluster.pods(OTHER)):
        assert not {REPLICA, REPLICA_INDEX, HOST_INDEX} & set(pod["metadata"]["labels"])
