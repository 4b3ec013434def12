"""What each page of `slicebus view` shows, by what was read."""

from html.parser import HTMLParser
from typing import Any

import aiohttp
import pytest

from slicebus.cli.cluster.reading import ListedResource, Reading
from slicebus.cli.doctor.check import Check
from slicebus.cli.jobs.rows import JobRow, in_order, shown_refs
from slicebus.cli.leaders import Leaders
from slicebus.cli.view.fleet_state import FleetState
from slicebus.cli.view.pages.fleet import FleetPage, fleet_page
from slicebus.cli.view.pages.job import JobPage, job_page
from slicebus.cli.view.pages.jobs import jobs_page
from slicebus.cli.view.pages.messages import messages_page
from slicebus.cli.view.pages.paging import PAGE, page_number, page_of
from slicebus.cli.view.pages.queues import cluster_queue_rows, queue_page, queues_page
from slicebus.kube.resources import CLUSTERQUEUES, WORKERCLUSTERS, WORKLOADS
from slicebus.manager.state.shown_states import ShownState
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError, ForbiddenError, NotFoundError
from slicebus.slices.api import api_names
from slicebus.slices.api.kueue import Condition
from support.view import a_state, an_hour, still_view
from unit.cli.hostile import NAMED, is_harmless, leaves, replaced
from unit.journal.records import entry
from unit.journal.test_traces import pending, request, spec, status
from unit.manager.objects import a_job, a_workload, asking, condition
from unit.manager.test_explain import a_store, of_another
from unit.manager.test_pod_problems import SHOWN

Manifest = dict[str, Any]
BY = "Preempted to accommodate a workload (UID: uid-w1, JobUID: uid-train) due to prioritization; preemptor path: /cq;"


def rows_of(state: FleetState) -> list[JobRow]:
    store, sight = state.reading.store, state.reading.sight
    return in_order(JobRow.of(store, ref, sight) for ref in shown_refs(store))


def fleet_of(state: FleetState, *, letters: Check | None = None) -> FleetPage:
    queues = cluster_queue_rows(state.reading.store)
    return fleet_page(state, rows_of(state), queues=queues, journal="", dead_letters=letters)


def running() -> ManagerStore:
    return a_store(
        a_job(2), a_workload(count=2, admitted=2, dispatched=1, applied=1, conditions=(condition("PodsReady"),))
    )


# --- the fleet --------------------------------------------------------------------------------------------------------


def test_a_fleet_that_is_well_has_no_alarm() -> None:
    page = fleet_of(a_state(running()), letters=Check("dead letters", "none"))
    assert page.alarms == ()
    assert (page.leading, page.dead_letters) == (("manager-1 leads",), "none")
    assert page.jobs == ((ShownState.RUNNING, 1),)
    assert [(cluster.name, len(cluster.jobs)) for cluster in page.clusters] == [("east", 1)]


def test_jobs_that_hold_quota_for_pods_that_do_not_run_are_an_alarm() -> None:
    job = a_job(2, annotations={api_names.WAITING_ANNOTATION: SHOWN.to_annotation()})
    store = a_store(job, a_workload(count=2, admitted=2, dispatched=1, applied=1))
    [alarm] = fleet_of(a_state(store)).alarms
    assert alarm.text == "1 job holds quota for pods that do not run: team/train (PodsNotRunning)"
    assert alarm.href == "/jobs/Job/team/train"


def test_what_is_wrong_comes_first_with_where_to_look() -> None:
    silent = a_store(a_job(2), a_workload(count=2, admitted=2, dispatched=1, applied=1), connected=False)
    silent.cluster_queues.put(
        silent.cluster_queues.all()[0]
        | {"metadata": {"name": "cq", "uid": "cq", "resourceVersion": "2"}}
        | {"status": {"conditions": [condition("Active", False, "FlavorNotFound", "no spot")]}}
    )
    lost = Leaders(("no manager leads shard 1",), holders=("manager-1", ""))
    page = fleet_of(a_state(silent, leaders=lost), letters=Check("dead letters", "2 messages", "look at them"))
    assert [(alarm.text, alarm.href) for alarm in page.alarms] == [
        ("no manager leads shard 1", ""),
        ("cluster east is silent", "/clusters/east"),
        ("dead letters: 2 messages. look at them", ""),
        ("1 job of unknown state: nobody knows what their pods do", "/jobs?state=Unknown"),
        ("queue cq admits nothing: FlavorNotFound: no spot", "/queues/cq"),
    ]
    assert page.leading == ("manager-1 leads shard 0", "nobody leads shard 1")


@pytest.mark.parametrize(
    "changes", [{"lost": "etcd is away"}, {"leaders": Leaders(("no manager leads",), fleet_is_known=False)}]
)
def test_what_nobody_knows_is_unknown(changes: dict[str, Any]) -> None:
    [cluster] = fleet_of(a_state(running(), **changes)).clusters
    assert cluster.states == ("unknown",)


# --- jobs -------------------------------------------------------------------------------------------------------------


def many_rows(count: int) -> list[JobRow]:
    return [
        JobRow(
            namespace=f"team-{number % 3}",
            name=f"job-{number:05}",
            kind="Job",
            state=ShownState.RUNNING if number % 2 else ShownState.PENDING,
            queue="queue",
            cluster_queue="cq",
            priority=0,
            cluster="east",
            wanted={"main": 1},
            granted={},
            ready=0,
            created="2026-01-31T12:00:00Z",
            reason="",
            message="",
        )
        for number in range(count)
    ]


def test_ten_thousand_jobs_are_paged() -> None:
    rows = many_rows(10_000)
    page = jobs_page(rows, {"page": "100", "state": "pending", "name": "JOB-"}).page
    assert (page.total, page.pages, page.number, page.first, page.last) == (5000, 50, 50, 4901, 5000)
    assert len(jobs_page(rows, {}).page.rows) == PAGE


def test_filters_are_those_of_the_command() -> None:
    rows, known = many_rows(30), {"queues": ["cq", "idle"], "clusters": ["north"]}
    found = jobs_page(rows, {"namespace": "team-1", "queue": "cq", "cluster": "east", "state": "Running"}, **known)
    assert {(row.namespace, row.state) for row in found.page.rows} == {("team-1", ShownState.RUNNING)}
    assert found.namespaces == ("team-0", "team-1", "team-2")
    assert (found.queues, found.clusters) == (("cq", "idle", "queue"), ("east", "north"))
    assert jobs_page(rows, {"queue": "idle", "cluster": "north"}, **known).page.total == 0
    for query, told in (({"state": "Runing"}, "Running"), ({"queue": "qeue"}, "queue"), ({"cluster": "eats"}, "east")):
        with pytest.raises(ConfigurationError, match=f"did you mean {told}"):
            jobs_page(rows, query, **known)


@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "\u0661", "9" * 30])
def test_a_page_that_is_no_number(text: str) -> None:
    with pytest.raises(ConfigurationError, match="use a number from 1"):
        page_number(text)


def test_pages_of_nothing() -> None:
    page = page_of([], 3)
    assert (page.number, page.pages, page.first, page.last) == (1, 1, 0, 0)


# --- one job ----------------------------------------------------------------------------------------------------------


def job_of(store: ManagerStore, *entries: Any, kind: str = "Job", **changes: Any) -> JobPage:
    state = a_state(store)
    return job_page(state, an_hour(*entries, **changes), kind, "team", "train", until=state.at)


def test_a_job_that_waits_says_what_would_admit_it_and_shows_the_wait() -> None:
    store = a_store(asking(2, 6), a_workload(count=2, admitted=2), a_workload("w2", count=6, replaces="w1"))
    chain = "chain-1"
    recorded = [
        entry(spec(2, version=1), offset=0, at_s=0),
        entry(request(2, 6), offset=1, at_s=600, chain=chain),
        entry(pending(6), offset=2, at_s=601, chain=chain),
    ]
    page = job_of(store, *recorded)
    assert page.explanation is not None
    [waiting] = page.explanation.waiting
    assert (waiting.position, waiting.of) == (1, 1)
    assert waiting.would_admit
    assert page.chart is not None
    [band] = page.chart.bands
    assert (band.wait.reason, band.wait.ended, band.x + band.width) == ("3 more needed", None, pytest.approx(100))
    assert [mark.anchor for mark in page.chart.marks] == ["change-1", "change-2"]
    assert [row.trace.title for row in page.changes] == ["start with main=2", "resize main 2 -> 6"]
    assert page.tree is not None
    assert [node.kind for node in page.tree.children][:2] == ["Workload", "Workload"]


def test_a_job_that_is_gone_shows_what_the_journal_has() -> None:
    store = running()
    store.jobs["Job"].remove(a_job(2))
    page = job_of(store, entry(spec(2, version=1)), entry(status(2, version=1), offset=1, at_s=1))
    assert (page.explanation, len(page.changes)) == (None, 1)


def test_a_job_that_nobody_knows() -> None:
    with pytest.raises(NotFoundError, match="there is no job Jbo/team/train; did you mean Job/team/train"):
        job_of(running(), kind="Jbo")


# --- queues -----------------------------------------------------------------------------------------------------------


def busy() -> ManagerStore:
    """A queue with a victim, and two that wait; another one of its cohort borrows."""
    victim = of_another("v1", 2, admitted=2, conditions=(condition(Condition.PREEMPTED, True, "InClusterQueue", BY),))
    store = a_store(a_job(6), a_workload(count=6), victim, of_another("p9", 9))
    usage = [{"name": "spot", "resources": [{"name": "cpu", "total": "7", "borrowed": "2"}]}]
    other = {"metadata": {"name": "other", "uid": "other", "resourceVersion": "1"}}
    spec = store.cluster_queues.all()[0]["spec"]
    store.cluster_queues.put({**other, "spec": spec, "status": {"flavorsUsage": usage}})
    return store


def test_a_queue_shows_who_waits_who_borrows_and_who_preempted_whom() -> None:
    page = queue_page(a_state(busy()), "cq", 1)
    assert [(row.position, row.job.name if row.job else "") for row in page.waiting.rows] == [(1, "train"), (2, "p9")]
    assert [(one.queue, one.use.borrowed) for one in page.borrowers] == [("other", "2")]
    assert [row.name for row in page.cohort] == ["other"]
    [preemption] = page.preemptions
    assert (preemption.victim, preemption.preemptor) == ("team/v1", "team/w1")
    assert preemption.victim_job is not None
    assert preemption.victim_job.name == "v1"
    assert [row.name for row in page.local_queues] == ["queue"]
    assert page.order_is_known


def test_queues_that_are_not_there_or_not_shown() -> None:
    with pytest.raises(NotFoundError, match="did you mean other"):
        queue_page(a_state(busy()), "othr", 1)
    store = ManagerStore()
    reading = Reading(
        store=store, parts=(ListedResource(WORKLOADS, "team", "1"),), hidden=(CLUSTERQUEUES, WORKERCLUSTERS)
    )
    hidden = a_state(store, reading=reading)
    with pytest.raises(ForbiddenError, match="you may not see ClusterQueues"):
        queue_page(hidden, "cq", 1)
    assert queues_page(hidden).is_hidden
    assert fleet_of(hidden).clusters_hidden


# --- messages ---------------------------------------------------------------------------------------------------------


def test_messages_are_the_newest_first_and_filtered() -> None:
    hour = an_hour(
        entry(spec(2, version=1), offset=0),
        entry(request(2, 6), offset=1, at_s=1, chain="c"),
        entry(pending(6), offset=2, at_s=2, chain="c"),
    )
    assert [row.type for row in messages_page(hour, {}).page.rows] == ["pending", "scale-request", "workload-spec"]
    assert [row.type for row in messages_page(hour, {"chain": "c"}).page.rows] == ["pending", "scale-request"]
    assert [row.offset for row in messages_page(hour, {"type": "pending", "job": "train"}).page.rows] == [2]
    with pytest.raises(ConfigurationError, match="did you mean pending"):
        messages_page(hour, {"type": "pendng"})
    with pytest.raises(ConfigurationError, match="did you mean east"):
        messages_page(hour, {"cluster": "eats"})


# --- hostile texts ----------------------------------------------------------------------------------------------------


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[tuple[str, str]] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found |= {(tag, name) for name, _ in attributes}


def tags(page: str) -> set[tuple[str, str]]:
    parser = _Tags()
    parser.feed(page)
    return parser.found


PAGES = ("/", "/jobs", "/jobs/Job/team/train", "/queues", "/queues/cq", "/messages", "/clusters/east")


async def pages_of(state: FleetState, hour: Any) -> dict[str, str]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with still_view(state, hour) as view, aiohttp.ClientSession(cookie_jar=jar) as session:
        async with session.get(view.address) as answer:
            assert answer.status == 200
        pages = {}
        for path in PAGES:
            async with session.get(view.site + path) as answer:
                assert answer.status == 200, path
                pages[path] = await answer.text()
        return pages


@pytest.mark.parametrize("text", [text for text in NAMED.values() if len(text) < 10_000])
async def test_hostile_texts_are_texts(text: str) -> None:
    """In the status of every object, and in what messages say."""
    message = pending(6)
    hostile = type(message)(**{name: getattr(message, name) for name in message.__struct_fields__} | {"message": text})
    hour = an_hour(entry(spec(2, version=1), offset=0), entry(hostile, offset=1, at_s=1))
    ordinary = await pages_of(a_state(busy()), hour)
    store = busy()
    for cache in (store.workloads, store.cluster_queues, store.clusters, store.local_queues):
        for manifest in cache.all():
            spoiled = dict(manifest)
            for path in leaves(spoiled.get("status", {})):
                if path[-1] in ("message", "reason", "agentVersion", "room"):
                    spoiled = replaced(spoiled, ("status", *path), text)
            spoiled = replaced(spoiled, ("metadata", "resourceVersion"), "99")
            cache.put(spoiled)
    leaders = Leaders((text,), holders=(text,), unknown=text)
    pages = await pages_of(a_state(store, leaders=leaders, lost=text), hour)
    allowed = set().union(*map(tags, ordinary.values()))
    for path, page in pages.items():
        assert is_harmless(page), path
        assert tags(page) <= allowed, path
