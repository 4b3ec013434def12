"""`slicebus top`: what is seen of a fleet, what is left out where not everything fits, and what of it is drawn."""

import io
from typing import Any

import msgspec
import pytest

from slicebus.bus.contract import Record
from slicebus.cli.cluster.finding import job_refs
from slicebus.cli.live.observation import (
    Observation,
    PodCount,
    SeenCluster,
    SeenQuota,
    observe,
    reported_pods,
    seen_quotas,
)
from slicebus.cli.live.view import ViewRoom, view
from slicebus.cli.screen import SafeConsole
from slicebus.cli.top.messages import LastMessages
from slicebus.journal.entry import Entry
from slicebus.manager.decide.problems import Sight
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.store import ManagerStore
from unit.cli.test_hostile_text import URL, broker, recorded
from unit.cli.test_job_rows import READY, admitted
from unit.cli.test_queue_rows import LOCAL, used
from unit.manager.objects import a_job, a_workload, asking, condition
from unit.manager.test_explain import a_store

MESSAGE = "couldn't assign flavors to pod set main: insufficient unused quota"
PENDING = a_workload("w2", 4, replaces="w1", conditions=(condition("QuotaReserved", False, "Pending", MESSAGE),))


def grows() -> ManagerStore:
    """A job of 2 pods that waits to grow to 4."""
    return a_store(asking(2, 4), admitted(conditions=(READY,)), PENDING)


def seen(store: ManagerStore, **how: Any) -> Observation:
    return observe(store, store.refs(), reported_pods, **how)


def drawn(
    observation: Observation,
    entries: list[Entry] | None = None,
    room: ViewRoom = ViewRoom(),  # noqa: B008 a frozen value
    width: int = 160,
) -> list[str]:
    out = io.StringIO()
    page = view([], observation, entries, pods="ready", room=room)
    SafeConsole(file=out, width=width, soft_wrap=False).print(page)
    return out.getvalue().splitlines()


def test_a_job_that_grows() -> None:
    [job] = seen(grows()).jobs
    assert (job.state, job.cluster, job.pods) == (ShownState.RESIZING, "east", PodCount(running=2, gated=2))
    assert [(each.state, each.counts, each.message) for each in job.slices] == [
        ("Admitted", "main=2", ""),
        ("Pending", "main=4", MESSAGE),
    ]
    assert job.why == "", "a slice says it"


def test_a_job_without_a_slice_says_why_itself() -> None:
    store = a_store(a_job(2, managed=False))
    [alone] = observe(store, job_refs(store), reported_pods).jobs
    assert (alone.state, alone.slices) == (ShownState.UNMANAGED, ())
    assert "slicebus leaves it alone" in alone.why
    assert any("slicebus leaves it alone" in line for line in drawn(observe(store, job_refs(store), reported_pods)))


def test_clusters_have_the_pods_of_their_jobs() -> None:
    [east] = seen(grows()).clusters
    assert (east.name, east.connected, east.pods) == ("east", True, PodCount(running=2, gated=2))


def test_nobody_knows_a_cluster_while_no_manager_works() -> None:
    [east] = seen(grows(), is_known=False).clusters
    assert east.connected is None
    assert any("?" in line and "east" in line for line in drawn(seen(grows(), is_known=False)))


def test_a_silent_cluster_has_another_mark_than_one_that_is_heard() -> None:
    """A terminal may have no colours."""
    silent = a_store(a_job(2), admitted(conditions=(READY,)), connected=False)
    marks = [line.split()[1] for store in (silent, grows()) for line in drawn(seen(store))[:2] if "east" in line]
    assert marks == ["✗", "●"]


def test_who_sees_no_worker_clusters_sees_those_of_the_jobs() -> None:
    store = grows()
    for cluster in store.clusters.all():
        store.clusters.remove(cluster)
    [east] = seen(store, sight=Sight(quota=False, clusters=False)).clusters
    assert (east.name, east.connected) == ("east", None)


def test_quota_is_that_of_the_status() -> None:
    store = grows()
    [queue] = store.cluster_queues.all()
    newer = queue["metadata"] | {"resourceVersion": "999"}
    store.cluster_queues.put(queue | {"metadata": newer, "status": {"flavorsUsage": [used("spot", cpu="4")]}})
    assert next(iter(seen_quotas(store, None))) == SeenQuota("cq", "spot", "cpu", "4", "5", 0.8)


def test_who_sees_no_cluster_queues_sees_the_use_of_local_queues() -> None:
    store = ManagerStore()
    store.local_queues.put(LOCAL | {"metadata": {"resourceVersion": "1", "uid": "u", **LOCAL["metadata"]}})
    [local] = seen_quotas(store, "team-a")
    assert (local.queue, local.used, local.nominal, local.share) == ("main", "2", "", None)
    assert list(seen_quotas(store, "team-b")) == []


def many() -> ManagerStore:
    """Jobs a to e."""
    store = ManagerStore()
    for name in "abcde":
        job = a_job()
        store.jobs["Job"].put(job | {"metadata": job["metadata"] | {"name": name, "uid": f"uid-{name}"}})
    return store


def test_where_not_every_job_fits_what_waits_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {"a": ShownState.SUCCEEDED, "b": ShownState.RUNNING, "c": ShownState.RUNNING}
    monkeypatch.setattr(
        "slicebus.cli.live.observation.shown_state",
        lambda view, *, is_reached: states.get(view.ref.name, ShownState.PENDING),
    )
    store = many()
    whole = observe(store, job_refs(store), reported_pods)
    assert [job.name for job in whole.jobs] == list("abcde"), "and by name where all fit"
    some = observe(store, job_refs(store), reported_pods, most_lines=3)
    assert ([job.name for job in some.jobs], some.left_out) == (["d", "e", "b"], 2)
    lines = drawn(some)
    assert any("2 Pending, 2 Running, 1 Succeeded" in line for line in lines)
    assert any("2 more" in line for line in lines)


def test_only_the_namespace_that_is_asked_for() -> None:
    store = many()
    assert observe(store, job_refs(store), reported_pods, namespace="nowhere").jobs == ()


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("height", [5, 24, 40, 100])
@pytest.mark.parametrize("has_hops", [True, False])
def test_a_frame_fits_into_the_terminal(width: int, height: int, has_hops: bool) -> None:
    """As far as every panel has five rows."""
    store = grows()
    room = ViewRoom.of(height, width, beside=30, has_hops=has_hops)
    observation = msgspec.structs.replace(
        seen(store),
        clusters=tuple(SeenCluster(f"c{number}", True, PodCount()) for number in range(30)),
        quotas=tuple(SeenQuota(f"queue-{number}", "default", "cpu", "1", "2", 0.5) for number in range(30)),
    )
    [job] = observation.jobs
    assert room.jobs is not None
    observation = msgspec.structs.replace(observation, jobs=(job,) * (room.jobs // 2))
    entries = [Entry.from_record(Record(0, message, None)) for message in recorded()] * 20
    assert len(drawn(observation, entries if has_hops else None, room, width)) <= max(height, 30)


def test_messages_are_shown_with_their_zone() -> None:
    entries = [Entry.from_record(Record(0, message, None)) for message in recorded()]
    lines = drawn(seen(grows()), entries)
    assert any("messages, in " in line for line in lines)
    assert not any("heartbeat" in line for line in lines)
    assert (
        len(drawn(seen(grows()), entries, ViewRoom(hops=3))) == len(drawn(seen(grows()), entries, ViewRoom(hops=2))) + 1
    )
    assert not any("messages" in line for line in drawn(seen(grows())))


async def test_the_last_messages_of_a_broker() -> None:
    with broker(journal=recorded()):
        messages = LastMessages(URL, None)
        await messages.collect(follow=False)
        assert len(messages.entries) == len(recorded())
        elsewhere = LastMessages(URL, "nowhere")
        await elsewhere.collect(follow=False)
        assert not [entry for entry in elsewhere.entries if entry.subject]


async def test_a_broker_that_cannot_be_read_is_said() -> None:
    messages = LastMessages("amqp://broker", None)
    await messages.collect(follow=True)
    assert messages.problem.startswith("no messages: ")
