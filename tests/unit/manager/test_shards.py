"""Which part of the jobs a shard of the manager has, and how ClusterQueues go from one to another."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from slicebus.decisions.commands import Forget, Patch, Remember
from slicebus.decisions.decider import Decider
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.lease import LeaderElection, acquire_first
from slicebus.kube.resources import CLUSTERQUEUES, LEASES, WORKLOADS, Resource
from slicebus.manager.act.shard_keeper import ShardKeeper
from slicebus.manager.decide import catalog
from slicebus.manager.decide.admission import sharding
from slicebus.manager.permissions import lease_of
from slicebus.manager.settings import ManagerSettings
from slicebus.manager.state.job_changes import on_job_change
from slicebus.manager.state.quota_trees import NOWHERE
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings, Shard
from slicebus.manager.state.shards import belongs_to, claim_of, shards_once
from slicebus.manager.state.store import ManagerStore, Uncertain, owner_ref
from slicebus.proto.errors import ExpiredError, ForbiddenError, NotFoundError, NotServedError, SlicebusError
from slicebus.proto.messages import JobRef
from slicebus.proto.topology import Topology, addressed
from slicebus.runtime.executor import Executor
from slicebus.sandbox.bus import MemoryBroker, MemoryBus
from slicebus.slices.admission.cycle import Admit
from slicebus.slices.api import api_names, kueue
from slicebus.slices.workload.workload import Admission as Given
from slicebus.slices.workload.workload import SliceKey
from support.waiting import PATIENCE_S
from unit.kube.servers import SYSTEM
from unit.manager.objects import a_workload
from unit.manager.test_quota_trees import an_object

Manifest = dict[str, Any]
COHORTS = {"team": 1, "all": 0}
"""With the shard of two that the tree of each belongs to."""


def a_queue(name: str, cohort: str, shard: int | None = None, version: int = 1) -> Manifest:
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": "x", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}
    ]
    made = an_object("ClusterQueue", name, {"namespaceSelector": {}, "cohortName": cohort, "resourceGroups": groups})
    made["metadata"]["resourceVersion"] = str(version)
    if shard is not None:
        made["metadata"]["annotations"] = {api_names.SHARD_ANNOTATION: str(shard)}
    return made


def a_shard(text: str) -> Shard:
    """`1/2` is the second of two; the only one for an empty text."""
    return Shard(*map(int, text.split("/"))) if text else Shard()


def a_store(shard: str, *queues: Manifest, held: tuple[str, ...] = ()) -> ManagerStore:
    """LocalQueue `to-NAME` stands for ClusterQueue NAME."""
    store = ManagerStore()
    store.configure(LeaderSettings(shard=a_shard(shard)))
    for queue in queues:
        name = queue["metadata"]["name"]
        store.cluster_queues.put(queue)
        store.local_queues.put(an_object("LocalQueue", f"to-{name}", {"clusterQueue": name}, "team"))
    for name in held:
        store.held[name] = True
    return store


def waits_in(store: ManagerStore, queue: str, name: str = "w1") -> JobRef:
    """A job of that queue, which waits."""
    workload = a_workload(name)
    workload["spec"]["queueName"] = f"to-{queue}"
    workload["metadata"]["labels"][kueue.JOB_UID_LABEL] = f"job-{name}"
    workload["metadata"]["ownerReferences"][0] |= {"uid": f"job-{name}", "name": name}
    store.workloads.put(workload)
    ref = owner_ref(workload)
    assert ref is not None
    return ref


def test_one_more_shard_takes_and_moves_nothing_else() -> None:
    roots = [f"cohort/{number}" for number in range(300)]
    for count in range(1, 5):
        before, after = ([belongs_to(root, shards) for root in roots] for shards in (count, count + 1))
        assert set(after) == set(range(count + 1)), "everybody has some"
        assert all(now in (then, count) for then, now in zip(before, after, strict=True))
    assert {name: belongs_to(f"cohort/{name}", 2) for name in COHORTS} == COHORTS


@pytest.mark.parametrize("text", ["", "x", "-1", "1.0", "²", "16", "9" * 5000, None])
def test_an_unreadable_claim_is_that_of_the_first(text: str | None) -> None:
    queue = a_queue("q", "team")
    if text is not None:
        queue["metadata"]["annotations"] = {api_names.SHARD_ANNOTATION: text}
    assert claim_of(queue) == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("16", 16), ("17", 1), ("0", 1), ("-1", 1), ("x", 1), ("9" * 5000, 1), (None, 1)],
)
def test_how_many_shards_there_were_is_a_number_that_there_can_be(text: str | None, count: int) -> None:
    assert shards_once({} if text is None else {api_names.SHARDS_ANNOTATION: text}) == count


class TestWhatAShardHas:
    def test_a_manager_that_is_alone_has_everything(self) -> None:
        store = a_store("", a_queue("a", "team", 1), a_queue("b", "all"))
        assert store.shards.own == Shard(0, 1)
        assert store.shards.trees(None) is None
        assert store.shards.trees(["cohort/team"]) == ["cohort/team"]
        assert (store.shards.misplaced(), store.shards.unheld()) == ({}, [])
        assert store.has(waits_in(store, "a"))

    def test_a_tree_of_which_it_holds_every_queue(self) -> None:
        queues = a_queue("a", "team", 1), a_queue("b", "team", 1), a_queue("c", "all")
        assert a_store("1/2", *queues, held=("a", "b")).shards.trees(None) == ["cohort/team"]
        assert a_store("1/2", *queues, held=("a",)).shards.trees(None) == []
        assert a_store("0/2", *queues, held=("c",)).shards.trees(None) == ["cohort/all", NOWHERE]
        assert a_store("0/2", *queues, held=("c",)).shards.trees(["cohort/all", "cohort/team"]) == ["cohort/all"]

    def test_the_jobs_of_the_queues_that_name_it(self) -> None:
        queues = a_queue("a", "team", 1), a_queue("b", "all")
        for shard in (0, 1):
            store = a_store(f"{shard}/2", *queues)
            refs = [waits_in(store, "a", "w1"), waits_in(store, "b", "w2")]
            assert [store.has(ref) for ref in refs] == [shard == 1, shard == 0]

    def test_jobs_without_a_queue_are_the_first_ones(self) -> None:
        store = a_store("0/2")
        assert store.shards.has_queue(("team", "nowhere"))
        assert not a_store("1/2").shards.has_queue(("team", "nowhere"))

    def test_what_is_of_a_shard_that_is_over_is_nobodys_before_its_lease_is_taken(self) -> None:
        store = a_store("0/2", a_queue("a", "team", 3))
        assert (store.shards.orphaned, store.shards.unheld()) == ([3], [])
        store.adopted[3] = True
        assert (store.shards.orphaned, store.shards.unheld(), store.shards.misplaced()) == ([], ["a"], {"a": 1})

    def test_a_queue_that_becomes_its_own_has_its_jobs_looked_at(self) -> None:
        store = a_store("0/2", a_queue("a", "all"), a_queue("b", "team", 1))
        ref, called = waits_in(store, "b"), list[JobRef]()
        on_job_change(store, called.append, when=lambda _: True)
        assert called == []
        moved = an_object("LocalQueue", "to-b", {"clusterQueue": "a"}, "team")
        moved["metadata"]["resourceVersion"] = "2"
        store.local_queues.put(moved)
        assert called == [ref]

    def test_it_shows_the_status_of_its_own_queues(self) -> None:
        store = a_store("1/2", a_queue("a", "team", 1), a_queue("b", "all"))
        commands = catalog.report_queues(store, now="2026-01-01T00:00:00Z")
        shown = [command.target["metadata"]["name"] for command in commands if isinstance(command, Patch)]
        assert shown == ["a", "to-a"]


class TestGivingAway:
    def test_it_lets_go_before_it_writes(self) -> None:
        store = a_store("0/2", a_queue("a", "team"), held=("a",))
        forget, patch = sharding.give_away(store, queue="a", to=1)
        assert forget == Forget(table="held", key="a")
        assert isinstance(patch, Patch)
        assert patch.body == {"metadata": {"annotations": {api_names.SHARD_ANNOTATION: "1"}}}

    def test_not_while_an_admission_to_it_is_unanswered(self) -> None:
        store = a_store("0/2", a_queue("a", "team"), a_queue("b", "team"), held=("a", "b"))
        admit = Admit(key=SliceKey("team/w"), admission=Given(cluster_queue="a", pod_sets=()), cluster="east")
        store.uncertain[SliceKey("team/w")] = Uncertain(admit, "1")
        assert sharding.give_away(store, queue="a", to=1) == []
        assert sharding.give_away(store, queue="b", to=1) != []

    def test_what_it_gets_has_its_jobs_ordered_anew(self) -> None:
        store = a_store("1/2", a_queue("a", "team", 1))
        ref = waits_in(store, "a")
        commands = sharding.hold(store, queues=["a"])
        assert commands[0] == Remember(table="held", key="a", value=True)
        assert Forget(table="published", key=ref) in commands


class Keeper:
    """A keeper of one shard on an API server of this process."""

    def __init__(self, client: KubeClient, shard: str, once: int = 1, bus: type[MemoryBus] = MemoryBus) -> None:
        self.client = client
        self.store = ManagerStore()
        self.store.configure(LeaderSettings(shard=a_shard(shard)))
        self.took = asyncio.Event()
        self.waits: list[str] = []
        self.adopted: list[int] = []
        self.broker = MemoryBroker()
        decide = Decider(self.store)
        executor = Executor(
            client=client,
            caches=self.store.cache_of,
            tables=self.store.tables(),
            publish=None,  # type: ignore[arg-type]
            requeue=lambda job, delay_s: None,
            component="slicebus-manager",
            record=lambda regarding, **event: None,
        )
        self.keeper = ShardKeeper(
            client=client,
            namespace=SYSTEM,
            election=lambda name: candidate(client, name),
            decide=decide,
            executor=executor,
            resyncer=None,  # type: ignore[arg-type]
            bus=bus(self.broker, user="manager"),
            once=once,
            adopted=lambda shard, _: self.adopted.append(shard),
            waits=self.waits.append,
        )

    async def read_queues(self) -> None:
        for queue in (await self.client.list(CLUSTERQUEUES)).items:
            self.store.cluster_queues.put(queue)


def candidate(client: KubeClient, name: str, identity: str = "me") -> LeaderElection:
    return LeaderElection(client, namespace=SYSTEM, name=name, identity=identity, duration_s=30.0, renew_s=1.0)


@pytest.fixture
async def queues(api: KubeClient) -> KubeClient:
    """Queues `a` of the second shard's cohort and `b` of the first's, which belong to nobody yet."""
    for name, cohort in (("a", "team"), ("b", "all")):
        made = a_queue(name, cohort)
        made["metadata"] = {"name": name}
        await api.create(CLUSTERQUEUES, made)
    return api


async def claim(client: KubeClient, name: str) -> int:
    return claim_of(await client.get(CLUSTERQUEUES, name))


async def test_a_queue_goes_to_a_shard_that_renews_its_lease(queues: KubeClient) -> None:
    first = Keeper(queues, "0/2")
    await first.read_queues()
    assert not await first.keeper.give_away(), "there is no such shard"
    other = candidate(queues, lease_of(1), "other")
    await other.acquire()
    assert not await first.keeper.give_away(), "it may have died long ago"
    assert not await first.keeper.give_away()
    lease = await queues.get(LEASES, lease_of(1), SYSTEM)
    await queues.patch(LEASES, lease_of(1), SYSTEM, MergePatch({"spec": {"renewTime": lease["spec"]["acquireTime"]}}))
    assert await first.keeper.give_away() is (await claim(queues, "a") == 1) is True
    assert await claim(queues, "b") == 0


async def test_a_shard_that_may_give_nothing_away_says_so_and_keeps_it(
    queues: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(resource: Resource, *_: Any, **__: Any) -> Manifest:
        raise ForbiddenError(f"403: cannot patch {resource.plural}")

    first, other = Keeper(queues, "0/2"), candidate(queues, lease_of(1), "other")
    await first.read_queues()
    await other.acquire()
    first.keeper._leases[1] = "before"
    monkeypatch.setattr(queues, "patch", refuse)
    assert not await first.keeper.give_away()
    assert "cannot patch clusterqueues" in first.waits[-1]
    assert first.keeper._given_to_us() == ["a", "b"]
    monkeypatch.undo()
    assert not await first.keeper.give_away(), "not at once"
    first.keeper._again_at = 0.0
    first.keeper._leases[1] = "before"
    assert await first.keeper.give_away()
    assert first.waits[-1] == ""


async def test_what_was_given_away_without_an_answer_is_not_taken_again(queues: KubeClient) -> None:
    first = Keeper(queues, "0/2")
    await first.read_queues()
    first.keeper._given_at["a"] = first.store.cluster_queues.get(None, "a")["metadata"]["resourceVersion"]  # type: ignore[index]
    assert first.keeper._given_to_us() == ["b"]
    await queues.patch(CLUSTERQUEUES, "a", None, MergePatch({"metadata": {"labels": {"x": "y"}}}))
    await first.read_queues()
    assert first.keeper._given_to_us() == ["a", "b"], "the write cannot come about any more"


async def test_whoever_gets_a_queue_reads_every_workload_first(queues: KubeClient) -> None:
    second = Keeper(queues, "1/2")
    await second.read_queues()
    second.keeper.prepare()
    workload = a_workload("w1")
    workload["metadata"] = {"name": "w1", "namespace": "team"}
    await queues.create(WORKLOADS, workload)
    workloads, known_when_held = second.store.workloads, list[bool]()
    second.store.held.observe(lambda name, value: known_when_held.append(bool(workloads.get("team", "w1"))))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(second.keeper.run(second.took.set, group))
        await second.keeper.begin(group)
        body = {"metadata": {"annotations": {api_names.SHARD_ANNOTATION: "1"}}}
        second.store.cluster_queues.put(await queues.patch(CLUSTERQUEUES, "a", None, MergePatch(body)))
        await asyncio.wait_for(second.took.wait(), PATIENCE_S)
        running.cancel()
    assert (dict(second.store.held), known_when_held) == ({"a": True}, [True])


@pytest.mark.parametrize("error", [ForbiddenError("403"), NotServedError("404"), ExpiredError("410")], ids=repr)
async def test_workloads_that_cannot_be_read_for_a_moment_end_no_shard(
    queues: KubeClient, monkeypatch: pytest.MonkeyPatch, error: SlicebusError
) -> None:
    read, answers = queues.list, iter([error, error])

    async def refused_first(*args: Any, **more: Any) -> Any:
        for answer in answers:
            raise answer
        return await read(*args, **more)

    second = Keeper(queues, "1/2")
    second.store.cluster_queues.put(a_queue("a", "team", 1))
    second.keeper._changed.set()
    monkeypatch.setattr(queues, "list", refused_first)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(second.keeper.run(second.took.set, group))
        await asyncio.wait_for(second.took.wait(), PATIENCE_S)
        running.cancel()
    assert dict(second.store.held) == {"a": True}


async def test_the_only_manager_waits_for_the_end_of_the_shards_of_before(queues: KubeClient) -> None:
    await queues.patch(
        CLUSTERQUEUES, "a", None, MergePatch({"metadata": {"annotations": {api_names.SHARD_ANNOTATION: "1"}}})
    )
    other = candidate(queues, lease_of(1), "other")
    await other.acquire()
    holding = asyncio.create_task(other.hold())
    alone = Keeper(queues, "")
    await alone.read_queues()
    async with asyncio.TaskGroup() as group:
        begun = group.create_task(alone.keeper.begin(group))
        await asyncio.sleep(0.3)
        assert not begun.done()
        assert "slicebus-manager-1" in alone.waits[-1]
        holding.cancel()
        await begun
        assert (alone.adopted, alone.waits[-1]) == ([1], "")
        for task in asyncio.all_tasks():
            if task.get_name() == "lease:1":
                task.cancel()


async def test_the_first_shard_takes_the_place_of_one_that_left_nothing_but_messages(queues: KubeClient) -> None:
    alone = Keeper(queues, "", once=3)
    alone.broker.declare(Topology((), (), addressed(2, taken_by=2)))
    async with asyncio.TaskGroup() as group:
        await alone.keeper.begin(group)
        assert alone.adopted == [1, 2]
        await asyncio.sleep(0)
        assert alone.keeper.left == set(), "their queues are not there"
        assert set(alone.broker.bindings) == {*addressed(1, taken_by=0), *addressed(2, taken_by=0)}
        for task in asyncio.all_tasks():
            if task.get_name().startswith("lease:"):
                task.cancel()


async def test_the_lease_of_a_shard_of_before_is_made_anew_where_somebody_deletes_it(queues: KubeClient) -> None:
    """It ended the manager."""
    alone = Keeper(queues, "", once=2)
    async with asyncio.TaskGroup() as group:
        await alone.keeper.begin(group)
        [keeping] = (task for task in asyncio.all_tasks() if task.get_name() == "lease:1")
        lease = await queues.get(LEASES, lease_of(1), SYSTEM)
        await queues.delete(LEASES, lease_of(1), SYSTEM)
        for _ in range(100):
            with suppress(NotFoundError):
                anew = await queues.get(LEASES, lease_of(1), SYSTEM)
                break
            await asyncio.sleep(0.05)
        assert anew["metadata"]["uid"] != lease["metadata"]["uid"]
        assert anew["spec"]["holderIdentity"] == "me"
        assert not keeping.done()
        keeping.cancel()


async def test_the_only_manager_says_for_whom_it_waits_after_another_has_ended(queues: KubeClient) -> None:
    other = candidate(queues, lease_of(2), "other")
    await other.acquire()
    alone = Keeper(queues, "", once=3)
    async with asyncio.TaskGroup() as group:
        begun = group.create_task(alone.keeper.begin(group))
        await asyncio.sleep(0.3)
        assert alone.adopted == [1]
        assert lease_of(2) in alone.waits[-1]
        begun.cancel()
        for task in asyncio.all_tasks():
            if task.get_name().startswith("lease:"):
                task.cancel()


class RefusingBus(MemoryBus):
    """Of a user whose rights are those of one shard, until somebody gives it more."""

    refusals = 2

    async def declare(self, topology: Topology) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ForbiddenError("no right to bind *.status.1")
        await super().declare(topology)


async def test_the_first_shard_says_what_it_may_not_take(queues: KubeClient) -> None:
    alone = Keeper(queues, "", once=2, bus=RefusingBus)
    async with asyncio.TaskGroup() as group:
        await alone.keeper.begin(group)
        assert alone.adopted == [1], "what is in the queues is taken all the same"
        [settling] = (task for task in asyncio.all_tasks() if task.get_name() == "settle:1")
        await settling
        for task in asyncio.all_tasks():
            if task.get_name().startswith("lease:"):
                task.cancel()
    said = "cannot get what agents address to slicebus-manager-1: no right to bind *.status.1"
    assert (said in alone.waits, alone.waits[-1]) == (True, "")
    assert set(alone.broker.bindings) == {*addressed(1, taken_by=0)}


@pytest.mark.parametrize(
    "others",
    [{"SLICEBUS_ADMISSION": AdmissionModeName.KUEUE}, {"SLICEBUS_CLUSTER_LOST_REQUEUE_SECONDS": "300"}],
    ids=["beside a Kueue", "clusters that are given up"],
)
def test_what_only_one_manager_can_do(others: dict[str, str]) -> None:
    environment = {"AMQP_URL": "memory://manager@x", "SLICEBUS_SHARDS": "2"}
    assert ManagerSettings.from_env(environment).shards == 2
    with pytest.raises(Exception, match="SLICEBUS_"):
        ManagerSettings.from_env(environment | others)


async def test_each_process_has_one_shard_and_the_others_stand_by(api: KubeClient) -> None:
    async def process(identity: str) -> tuple[str, asyncio.Task[None]]:
        candidates = [candidate(api, lease_of(shard), identity) for shard in range(2)]
        lease, _ = await acquire_first(candidates)
        return lease_of(candidates.index(lease)), asyncio.create_task(lease.hold())

    (first, first_holds), (second, second_holds) = await process("a"), await process("b")
    assert (first, second) == ("slicebus-manager", "slicebus-manager-1")
    third = asyncio.create_task(process("c"))
    await asyncio.sleep(0.3)
    assert not third.done()
    second_holds.cancel()
    third_lease, third_holds = await asyncio.wait_for(third, PATIENCE_S)
    assert third_lease == second
    for holds in (first_holds, third_holds):
        holds.cancel()
    await asyncio.gather(first_holds, second_holds, third_holds, return_exceptions=True)
