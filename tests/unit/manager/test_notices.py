"""How long before it loses pods a job is told: what it asks for, as far as the manager allows."""

from datetime import datetime
from typing import Any

import pytest
from msgspec import UNSET, structs

from slicebus.decisions.commands import Emit, Publish, Requeue
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.decide.job import reclaims
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.demand import Demand
from slicebus.manager.state.outbox import Dispatch
from slicebus.manager.state.reclaims import ElasticRules, allowed, gone, is_awaited
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Delete, JobOrder, Notice, Resync, Suspend, WorkloadSpec
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api import api_names, kueue
from slicebus.slices.api.kueue import Condition, EvictionReason
from slicebus.slices.jobs import KINDS
from slicebus.slices.quota.ledger import Ledger
from slicebus.slices.quota.quota import ClusterQueue
from slicebus.slices.workload.reclaimed import Beneficiary, take_back
from slicebus.slices.workload.workload import Slice, SliceKey
from unit.manager.objects import NOW, REF, a_workload, condition
from unit.manager.test_reclaims import Story, counts_of

Manifest = dict[str, Any]

NOTICES: dict[str, tuple[str | None, float, float]] = {
    "none is asked for": (None, 600, 0),
    "none is allowed": ("120s", 0, 0),
    "as asked for": ("120s", 600, 120),
    "as allowed": ("2h", 600, 600),
    "makes no sense": ("soon", 600, 0),
}
EACH = pytest.mark.parametrize(("notice", "cap_s", "notice_s"), NOTICES.values(), ids=NOTICES.keys())


@EACH
def test_the_order_to_shrink_has_it(notice: str | None, cap_s: float, notice_s: float) -> None:
    story = Story(notice=notice, cap_s=cap_s)
    [order] = story.orders(story.shrink(4))
    note = story.note
    assert note is not None
    assert note.notice_s == notice_s
    wanted = Notice(id=note.id, notice_s=notice_s, why="so it is", beneficiaries=["team/high"])
    assert order.notice == (wanted if notice_s else UNSET)
    assert order.granted == {"main": 8}
    assert (f" after {notice_s:g} s of notice; " in "".join(reclaims.told(story.view))) is bool(notice_s)
    story.report()
    story.ask(4, follows=note.id)
    assert all(again.notice is UNSET for again in story.orders(story.reconcile())), "it has lost them"


def suspended(story: Story, reason: EvictionReason) -> Suspend:
    holder = story.view.holder
    assert holder is not None
    preemption = "InClusterQueue" if reason is EvictionReason.PREEMPTED else ""
    evict = Evict(key=SliceKey(holder.key), reason=reason, message="so it is", preemption=preemption)
    story.evict(evict)
    [slice] = story.view.slices
    [message] = [each.message for each in dispatch.suspend(story.view, slice) if isinstance(each, Publish)]
    assert isinstance(message, Suspend)
    return message


@EACH
def test_the_order_to_evict_has_it(notice: str | None, cap_s: float, notice_s: float) -> None:
    story = Story(notice=notice, cap_s=cap_s)
    told = suspended(story, EvictionReason.PREEMPTED).notice
    assert (told.notice_s if told else 0) == notice_s
    [slice] = story.view.slices
    again = [each.message for each in dispatch.suspend(story.view, slice) if isinstance(each, Publish)]
    assert all(isinstance(message, Suspend) and message.notice == told for message in again)


def test_the_order_to_go_for_a_drained_budget_has_it_too() -> None:
    told = suspended(Story(notice="120s", cap_s=600), EvictionReason.BUDGET_SPENT).notice
    assert isinstance(told, Notice)
    assert told.notice_s == 120


def test_no_other_eviction_has_one() -> None:
    assert suspended(Story(notice="120s", cap_s=600), EvictionReason.DEACTIVATED).notice is UNSET


@pytest.mark.parametrize(("mode", "cap_s"), [(AdmissionModeName.BUILTIN, 90.0), (AdmissionModeName.KUEUE, 0.0)])
def test_the_setting_allows_it_where_the_manager_admits(mode: AdmissionModeName, cap_s: float) -> None:
    store = ManagerStore()
    store.configure(LeaderSettings(admission=mode, notice_cap_s=90.0))
    assert store.view(REF).allowed.notice_cap_s == cap_s


@pytest.mark.parametrize(
    ("annotations", "settings", "expected"),
    [
        ({}, {}, (90.0, True, True)),
        ({"slicebus.dev/notice": "30s"}, {}, (30.0, True, True)),
        ({"slicebus.dev/notice": "0"}, {}, (0.0, True, True)),
        ({"slicebus.dev/notice": "1h"}, {}, (90.0, True, True)),
        ({"slicebus.dev/pods-before-jobs": "false"}, {}, (90.0, False, True)),
        ({"slicebus.dev/opportunistic": "false"}, {}, (90.0, True, False)),
        ({}, {"pods_before_jobs": False, "idle_growth_s": 0.0}, (90.0, False, False)),
        ({"slicebus.dev/pods-before-jobs": "true"}, {"pods_before_jobs": False}, (90.0, True, True)),
    ],
)
def test_its_queue_may_allow_less(
    annotations: dict[str, str], settings: dict[str, Any], expected: tuple[float, bool, bool]
) -> None:
    """The queue of the quota that it has, or else of the one that it wants."""
    queue = ClusterQueue.from_manifest({"metadata": {"name": "cq", "annotations": annotations}})
    rules = allowed(queue, LeaderSettings(notice_cap_s=90.0, **settings), beside_kueue=False)
    assert (rules.notice_cap_s, rules.gives_pods, rules.grows) == expected


@pytest.fixture
def story() -> Story:
    """A job that is told to lose half of its pods."""
    told = Story(notice="120s", cap_s=600)
    told.shrink(4)
    told.reconcile()
    told.report()
    return told


def test_a_notice_for_which_nobody_waits_is_withdrawn(story: Story) -> None:
    assert story.orders(story.reconcile()) == []
    word = story.note
    story.is_awaited = False
    commands = story.reconcile()
    [order] = story.orders(commands)
    assert word is not None
    assert (order.manifest["spec"]["parallelism"], order.granted, order.notice) == (8, {"main": 8}, UNSET)
    assert (order.taken_back, order.resized_reason) == (word.id, api_names.RESTORED)
    told = [(each.regarding["kind"], each.reason) for each in commands if isinstance(each, Emit)]
    assert told[:1] == [("Job", "ReclaimWithdrawn")]
    assert story.note is not None
    assert (story.note.done, story.note.to, story.sizes) == (True, {"main": 8}, [8])
    story.report()
    assert story.orders(story.reconcile()) == [], "once"


def test_a_larger_least_size_withdraws_what_would_leave_less(story: Story) -> None:
    """The story's job of 8 is told to keep 4."""
    assert story.orders(story.reconcile()) == []
    for least, is_withdrawn in (("main=4", False), ("main=6", True)):
        story.job["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = least
        commands = story.reconcile()
        texts = [each.note for each in commands if isinstance(each, Emit) and each.reason == "ReclaimWithdrawn"]
        assert texts == ["The job has another least size since pods were to be taken: keeps main=8"] * is_withdrawn
    [order] = story.orders(commands)
    assert (order.granted, order.notice, order.resized_reason) == ({"main": 8}, UNSET, api_names.RESTORED)
    story.report()
    assert story.orders(story.reconcile()) == [], "once"


@pytest.mark.parametrize("off", ["by its job", "by its queue"])
def test_who_loses_all_or_nothing_by_now_loses_what_it_was_told(story: Story, off: str) -> None:
    """It would be evicted instead."""
    story.reconcile()
    word = story.note
    if off == "by its job":
        del story.job["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION]
    else:
        story.allowed = ElasticRules(notice_cap_s=600, gives_pods=False)
    story.reconcile()
    assert story.note == word


def test_a_worker_that_has_followed_the_word_meanwhile_is_told_to_restore(story: Story) -> None:
    word = story.note
    assert word is not None
    story.is_awaited = False
    story.reconcile()
    story.ask(4, follows=word.id)
    orders = story.orders(story.reconcile())
    assert story.sizes == [8]
    assert story.note is not None
    assert all(counts_of(order) == (8, {"main": 8}) for order in orders)
    story.report()
    story.ask(8, follows=word.id)
    story.reconcile()
    assert story.sizes == [8]


def test_so_is_one_that_has_followed_an_earlier_word(story: Story) -> None:
    earlier = story.note
    story.shrink(2)
    story.reconcile()
    story.report()
    word = story.note
    assert earlier is not None
    assert word is not None
    story.is_awaited = False
    [order] = story.orders(story.reconcile())
    assert (counts_of(order), order.taken_back) == ((8, {"main": 8}), word.id)
    story.ask(4, follows=earlier.id)
    orders = story.orders(story.reconcile())
    assert (story.sizes, story.note is not None) == ([8], True)
    assert all(counts_of(order) == (8, {"main": 8}) for order in orders)
    story.report()
    story.ask(8, follows=word.id)
    story.reconcile()
    assert story.sizes == [8]


OTHER = Beneficiary(workload="team/other", uid="uid-other", job_uid="job-other")


@pytest.fixture
def for_two() -> Story:
    """A job that is told to lose two of its eight pods, and then another one for somebody else."""
    story = Story(notice="120s", cap_s=600)
    story.shrink(6)
    story.reconcile()
    story.report()
    story.shrink(5, beneficiary=OTHER)
    story.reconcile()
    story.report()
    return story


@pytest.mark.parametrize(("gone", "left", "names"), [("high", 7, ["team/other"]), ("other", 6, ["team/high"])])
def test_pods_stay_that_were_to_go_for_one_of_two(for_two: Story, gone: str, left: int, names: list[str]) -> None:
    word = for_two.note
    assert word is not None
    for_two.gone = frozenset([f"uid-{gone}"])
    commands = for_two.reconcile()
    [order] = for_two.orders(commands)
    assert counts_of(order) == (left, {"main": 8})
    assert order.notice == Notice(
        id=word.id, notice_s=120, why=f"Shrunk to main={left} to accommodate {names[0]}", beneficiaries=names
    )
    assert (order.taken_back, order.resized_reason) == (word.id, api_names.RECLAIMED), "the word stays the same"
    texts = [each.note for each in commands if isinstance(each, Emit) and each.reason == "ReclaimWithdrawn"]
    assert texts == [f"The pods that were to be taken for team/{gone} stay: goes to main={left}"]
    for_two.report()
    assert for_two.orders(for_two.reconcile()) == [], "once"
    for_two.ask(left, follows=word.id)
    for_two.reconcile()
    assert for_two.sizes == [left, 8], "the quota of the others is free, and they come back"


def test_a_notice_names_nobody_whose_pods_are_gone() -> None:
    story = Story(notice="120s", cap_s=600).shrunk(6)
    [order] = story.orders(story.shrink(5, beneficiary=OTHER))
    assert isinstance(order.notice, Notice)
    assert order.notice.beneficiaries == ["team/other"]


@pytest.mark.parametrize("served", [False, True])
def test_who_has_got_its_pods_and_waits_again_holds_no_notice(served: bool) -> None:
    """It was preempted itself since then."""
    story = Story(notice="120s", cap_s=600)
    if served:
        story.shrunk(6)
    else:
        story.shrink(6)
    story.shrink(5, beneficiary=OTHER)
    assert story.view.holder is not None
    chains = {"team/job-high": [waiting()]}
    assert is_awaited([story.view.holder], lambda id: chains.get(id, ()), lambda uid, job_uid: False) is not served


@pytest.mark.parametrize("follows", ["last", "first"])
def test_a_worker_that_has_followed_a_word_meanwhile_gets_back_what_is_spared(for_two: Story, follows: str) -> None:
    """It says so after the word is for fewer pods, and before it hears of that."""
    word = for_two.note
    assert word is not None
    first = reclaims_of(Story(notice="120s", cap_s=600), 6)
    for_two.gone = frozenset(["uid-high"])
    for_two.reconcile()
    for_two.ask(*{"last": (5,), "first": (6,)}[follows], follows=word.id if follows == "last" else first)
    for_two.reconcile()
    [slice] = [slice for slice in for_two.view.unfinished if slice.admission is not None]
    assert slice.granted == {"main": 7}, "its worker is told 7, and may run them"
    assert (for_two.note is not None, for_two.view.desired.sent) == (True, {"main": 7})
    for_two.report()
    for_two.ask(7, follows=word.id)
    for_two.reconcile()
    assert for_two.sizes == [7, 8]


def reclaims_of(story: Story, to: int) -> str:
    """The id of the word by which a job of this kind goes to a size."""
    story.shrink(to)
    assert story.note is not None
    return story.note.id


def evicted() -> Story:
    """A job that is told to go, whose worker knows nothing of it yet."""
    story = Story(notice="120s", cap_s=600)
    assert story.view.holder is not None
    key = SliceKey(story.view.holder.key)
    evict = Evict(key=key, reason=EvictionReason.PREEMPTED, message=PREEMPTOR, preemption="InClusterQueue")
    story.evict(evict)
    return story


def test_an_eviction_for_which_nobody_waits_is_withdrawn() -> None:
    story = evicted()
    order, *_ = [each.message for each in story.reconcile() if isinstance(each, Publish)]
    assert isinstance(order, Suspend)
    assert order.notice
    assert Requeue(job=REF, delay_s=6.0) in story.reconcile()
    story.is_awaited = False
    withdrawn = story.reconcile()
    assert [each.reason for each in withdrawn if isinstance(each, Emit)] == ["ReclaimWithdrawn"] * 2
    [asks] = [each.message for each in withdrawn if isinstance(each, Publish) and isinstance(each.message, Resync)]
    assert asks.jobs == [REF], "its worker may have asked for another size meanwhile"
    assert story.view.holder is not None
    assert story.view.holder.granted == {"main": 8}
    [again] = story.orders(story.reconcile())
    assert (again.granted, again.notice) == ({"main": 8}, UNSET)
    assert again.spec_version > order.spec_version
    assert not story.job["spec"].get("suspend")


@pytest.mark.parametrize("off", ["by its job", "by its queue"])
def test_it_is_withdrawn_also_where_there_are_no_notices_any_more(off: str) -> None:
    """Its worker keeps the one that runs."""
    story = evicted()
    story.reconcile()
    if off == "by its job":
        del story.job["metadata"]["annotations"][api_names.NOTICE_ANNOTATION]
    else:
        story.allowed = ElasticRules(notice_cap_s=0.0)
    story.reconcile()
    evicted_one, outbox = story.view.evicted, story.view.outbox
    assert evicted_one is not None
    assert not is_awaited([evicted_one], lambda chain: [], lambda uid, job_uid: False, outbox=outbox)
    story.is_awaited = False
    assert "ReclaimWithdrawn" in [each.reason for each in story.reconcile() if isinstance(each, Emit)]


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "all"])
def test_what_is_taken_next_without_a_notice_leaves_those_their_time_that_were_told(story: Story, whole: bool) -> None:
    """Their worker gives it the deadline of the notice that runs."""
    del story.job["metadata"]["annotations"][api_names.NOTICE_ANNOTATION]
    story.reconcile()
    if whole:
        holder = story.view.holder
        assert holder is not None
        story.evict(Evict(key=SliceKey(holder.key), reason=EvictionReason.PREEMPTED, message=PREEMPTOR, preemption="x"))
    else:
        story.shrink(2)
    orders = [each.message for each in story.reconcile() if isinstance(each, Publish)]
    [order] = [each for each in orders if isinstance(each, Suspend | WorkloadSpec)][-1:]
    assert isinstance(order.notice, Notice)
    assert order.notice.notice_s > 0


def stop(story: Story, how: str) -> None:
    match how:
        case "its Workload is deactivated":
            story.workloads["w1"]["spec"]["active"] = False
        case "its user suspends it":
            del story.job["metadata"]["annotations"][api_names.SUSPENDED_ANNOTATION]
        case _:
            story.allowed = ElasticRules(notice_cap_s=600, stopped=True)


STOPS_IT = pytest.mark.parametrize(
    "how", ["its Workload is deactivated", "its user suspends it", "its queue is drained"]
)


@STOPS_IT
def test_who_stops_a_job_ends_its_notice(how: str) -> None:
    """The notice is for what others take: a person's word counts at once."""
    story = evicted()
    [told] = ordered(story)
    stop(story, how)
    [again] = ordered(story)
    assert isinstance(again, Suspend)
    assert (again.notice, again.spec_version) == (UNSET, told.spec_version + 1)
    assert [each.spec_version for each in ordered(story)] == [again.spec_version], "once"
    story.report()
    story.reconcile()
    assert story.view.unfinished[0].admission is None


@STOPS_IT
def test_it_is_told_nothing_when_its_pods_are_gone(how: str) -> None:
    story = evicted()
    story.reconcile()
    story.report()
    stop(story, how)
    assert ordered(story) == []


@pytest.mark.usefixtures("not_suspendable")
def test_who_deactivates_a_job_that_cannot_be_suspended_ends_its_notice() -> None:
    story = evicted()
    ordered(story)
    stop(story, "its Workload is deactivated")
    [deleted] = ordered(story)
    assert isinstance(deleted, Delete)


def test_who_stops_a_job_ends_the_notice_of_a_shrink(story: Story) -> None:
    assert suspended(story, EvictionReason.CLUSTER_QUEUE_STOPPED).notice is UNSET


@pytest.mark.parametrize(
    ("stops", "stopped"),
    [({}, False), ({"cq": "Hold"}, False), ({"cq": "HoldAndDrain"}, True), ({"queue": "HoldAndDrain"}, True)],
)
@pytest.mark.parametrize("whole", [False, True], ids=["it runs", "it is evicted"])
def test_a_drained_queue_stops_its_jobs(stops: dict[str, str], stopped: bool, whole: bool) -> None:
    store = a_store(stops, "queue")
    store.workloads.put(a_preempted() if whole else a_workload(admitted=1))
    assert store.view(REF).allowed.stopped is stopped


def test_an_eviction_that_the_worker_has_carried_out_stays() -> None:
    story = evicted()
    story.reconcile()
    story.report()
    story.is_awaited = False
    story.reconcile()
    assert story.view.holder is None
    assert story.view.evicted is not None
    assert story.view.evicted.admission is None


@pytest.fixture
def not_suspendable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS["Job"], "suspend_path", None)


def ordered(story: Story) -> list[JobOrder]:
    """Each of them once: what was published is written nowhere."""
    found = [each.message for each in story.reconcile() if isinstance(each, Publish)]
    return [*{each.spec_version: each for each in found if not isinstance(each, Resync)}.values()]


@pytest.mark.usefixtures("not_suspendable")
def test_a_job_that_cannot_be_suspended_goes_when_its_notice_is_over() -> None:
    story = evicted()
    [told] = ordered(story)
    assert isinstance(told, Suspend)
    assert told.notice
    assert told.deleted_after
    story.allowed = ElasticRules(notice_cap_s=0.0)
    assert [type(again) for again in ordered(story)] == [Suspend], "the notice that has begun is kept"
    story.report()
    assert not story.view.is_without_pods, "it holds its quota"
    [deleted] = ordered(story)
    assert (type(deleted), deleted.spec_version) == (Delete, told.spec_version + 1)
    story.is_awaited = False
    assert ordered(story) == [deleted], "too late to be withdrawn"
    story.report()
    story.reconcile()
    assert (story.view.holder, story.view.is_without_pods) == (None, True)


@pytest.mark.usefixtures("not_suspendable")
def test_its_eviction_is_withdrawn_while_its_notice_runs() -> None:
    story = evicted()
    story.reconcile()
    story.is_awaited = False
    [again] = ordered(story)
    assert isinstance(again, WorkloadSpec)
    assert (again.granted, again.notice) == ({"main": 8}, UNSET)


@pytest.mark.usefixtures("not_suspendable")
def test_without_a_notice_it_goes_at_once() -> None:
    story = Story(notice="120s", cap_s=0)
    assert story.view.holder is not None
    key = SliceKey(story.view.holder.key)
    story.evict(Evict(key=key, reason=EvictionReason.PREEMPTED, message=PREEMPTOR, preemption="InClusterQueue"))
    [deleted] = ordered(story)
    assert isinstance(deleted, Delete)


def test_an_eviction_of_a_job_that_its_user_suspends_stays() -> None:
    story = evicted()
    story.job["spec"]["suspend"] = True
    story.is_awaited = False
    assert "ReclaimWithdrawn" not in [each.reason for each in story.reconcile() if isinstance(each, Emit)]


def test_what_was_lost_before_still_comes_back() -> None:
    story = Story(notice="120s", cap_s=600).shrunk(6)
    story.shrink(4)
    story.reconcile()
    story.report()
    story.is_awaited = False
    story.reconcile()
    assert story.sizes == [6, 8]
    assert story.note is not None
    assert (story.note.before, story.note.to) == ({"main": 8}, {"main": 6})


def test_it_is_asked_again_while_the_notice_runs(story: Story) -> None:
    assert reclaims.requeue_after(story.view, now=NOW) == [Requeue(job=REF, delay_s=6.0)]


def a_slice(*, told: bool = True, reason: str = "", **of: Any) -> Slice:
    workload = a_workload(count=8, admitted=8)
    beneficiary = Beneficiary(workload="team/high", uid="uid-high", job_uid="job-high")
    note = take_back(None, {"main": 8}, {"main": 4}, beneficiary=beneficiary, at=NOW, reason=reason, message="")
    note = structs.replace(note, notice_s=9.0 if told else 0.0, **of)
    workload["metadata"]["annotations"][api_names.RECLAIMED_ANNOTATION] = note.to_annotation()
    return Slice.from_manifest(workload)


def waiting(**of: Any) -> Slice:
    return structs.replace(Slice.from_manifest(a_workload("high")), **of)


PREEMPTOR = (
    "Preempted to accommodate a workload (UID: uid-high, JobUID: job-high) due to prioritization in the ClusterQueue; "
    "preemptor path: /queue; preemptee path: /queue"
)
AWAITED: dict[str, tuple[Slice, list[Slice], bool]] = {
    "whom it is for waits": (a_slice(), [waiting()], True),
    "is gone": (a_slice(), [], False),
    "has ended": (a_slice(), [waiting(finished=True)], False),
    "is deactivated": (a_slice(), [waiting(active=False)], False),
    "has quota": (a_slice(), [Slice.from_manifest(a_workload("high", admitted=1))], False),
    "it is done": (a_slice(done=True), [], True),
    "it was not told before": (a_slice(told=False), [], True),
}


@pytest.mark.parametrize(("slice", "chain", "wanted"), AWAITED.values(), ids=AWAITED.keys())
def test_whether_anybody_waits(slice: Slice, chain: list[Slice], wanted: bool) -> None:
    assert is_awaited([slice], {"team/job-high": chain}.__getitem__, lambda uid, job_uid: False) is wanted


RUNS = Slice.from_manifest(a_workload("before", admitted=1))
GREW = structs.replace(Slice.from_manifest(a_workload("high", admitted=1)), finished=True)
GONE: dict[str, tuple[Slice, list[Slice], bool]] = {
    "it runs, and grows no more": (a_slice(), [RUNS, waiting(finished=True)], True),
    "it runs, and waits to grow to another size": (a_slice(), [RUNS, waiting(finished=True), waiting(uid="x")], False),
    "it has grown, and has another size since": (a_slice(), [GREW, RUNS], False),
    "it has grown to another size": (a_slice(), [waiting(finished=True), RUNS], False),
    "it runs, and its growth is deactivated": (a_slice(), [RUNS, waiting(active=False)], True),
    "it waits": (a_slice(), [waiting()], False),
    "it is gone": (a_slice(), [], True),
    "it has ended": (a_slice(), [waiting(finished=True)], True),
    "it is deactivated": (a_slice(), [waiting(active=False)], True),
    "it has quota": (a_slice(), [Slice.from_manifest(a_workload("high", admitted=1))], False),
    "all is done": (a_slice(done=True), [], False),
    "nobody was told": (a_slice(told=False), [], False),
}


@pytest.mark.parametrize(("slice", "chain", "is_gone"), GONE.values(), ids=GONE.keys())
def test_who_is_gone_of_those_for_whom_pods_go(slice: Slice, chain: list[Slice], is_gone: bool) -> None:
    """Who has quota otherwise is not: others may count on what was to be freed for it."""
    assert gone([slice], {"team/job-high": chain}.__getitem__) == ({"uid-high"} if is_gone else set())


def preempted(**how: str) -> Slice:
    return Slice.from_manifest(a_preempted(**how))


def a_preempted(*, notice: str = "9s", status: str = "True", by: str = PREEMPTOR) -> Manifest:
    workload = a_workload(count=8, admitted=8, conditions=(condition(Condition.EVICTED, status == "True"),))
    workload["status"]["conditions"].append(condition(Condition.PREEMPTED, status == "True", "InClusterQueue", by))
    workload["metadata"]["annotations"][api_names.NOTICE_ANNOTATION] = notice
    return workload


EVICTIONS: dict[str, tuple[Slice, list[Slice], bool]] = {
    "its preemptor waits": (preempted(), [waiting(uid="uid-high")], True),
    "a newer slice of its job does": (preempted(), [waiting(uid="uid-new", job_uid="job-high")], True),
    "others do": (preempted(), [waiting(uid="uid-other", job_uid="job-other")], False),
    "it is gone": (preempted(), [], False),
    "it is deactivated": (preempted(), [waiting(uid="uid-high", active=False)], False),
    "it has quota": (
        preempted(),
        [structs.replace(Slice.from_manifest(a_workload(admitted=1)), uid="uid-high")],
        False,
    ),
    "nobody was told": (preempted(notice=""), [], True),
    "it is evicted no more": (preempted(status="False"), [], True),
    "by a message of somebody else": (preempted(by="so it is"), [], True),
}


@pytest.mark.parametrize(("slice", "others", "wanted"), EVICTIONS.values(), ids=EVICTIONS.keys())
def test_whether_anybody_waits_for_an_eviction(slice: Slice, others: list[Slice], wanted: bool) -> None:
    ledger = Ledger()
    for other in others:
        ledger.put(other)
    assert is_awaited([slice], ledger.chain, lambda *uids: any(ledger.pending(*uids))) is wanted


def queue_of(kind: str, name: str, namespace: str | None = None, **spec: Any) -> Manifest:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": kueue.API_VERSION,
        "kind": kind,
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"} | place,
        "spec": spec,
    }


POLICY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
STOPS: dict[str, tuple[dict[str, str], str, bool]] = {
    "nothing": ({}, "queue", True),
    "the queue is held": ({"cq": "Hold"}, "queue", False),
    "the queue is drained": ({"cq": "HoldAndDrain"}, "queue", False),
    "the local queue is held": ({"queue": "Hold"}, "queue", False),
    "another one is held": ({"other": "Hold", "else": "Hold"}, "queue", True),
    "it was moved to the same quota": ({}, "same", True),
    "it was moved to other quota": ({}, "else", False),
    "it was moved nowhere": ({}, "missing", False),
}


def a_store(stops: dict[str, str], queue: str) -> ManagerStore:
    """One in which `high` waits in a queue, of which some are stopped."""
    store = ManagerStore()
    for name in ("cq", "lender", "other"):
        cohort = {} if name == "other" else {"cohortName": "all"}
        spec = {"stopPolicy": stops.get(name, "None"), "resourceGroups": [], "namespaceSelector": {}} | cohort
        spec["preemption"] = POLICY
        store.cluster_queues.put(queue_of("ClusterQueue", name, **spec))
    for name, named in {"queue": "cq", "same": "lender", "else": "other"}.items():
        spec = {"clusterQueue": named, "stopPolicy": stops.get(name, "None")}
        store.local_queues.put(queue_of("LocalQueue", name, "team", **spec))
    preemptor = a_workload("high")
    preemptor["metadata"] |= {"uid": "uid-high", "labels": {kueue.JOB_UID_LABEL: "job-high"}}
    preemptor["metadata"]["ownerReferences"][0]["uid"] = "job-high"
    preemptor["spec"] |= {"queueName": queue, "priority": 1}
    store.workloads.put(preemptor)
    return store


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "all"])
@pytest.mark.parametrize(("stops", "queue", "wanted"), STOPS.values(), ids=STOPS.keys())
def test_who_waits_in_a_queue_that_gives_it_nothing_of_a_job_takes_nothing(
    stops: dict[str, str], queue: str, wanted: bool, whole: bool
) -> None:
    losing = preempted() if whole else a_slice()
    demand = Demand(a_store(stops, queue).quotas, [losing])
    assert is_awaited([losing], demand.chain, demand.waits) is wanted
    assert gone([losing], demand.chain) == (set() if wanted or whole else {"uid-high"})


@pytest.mark.parametrize(("stops", "queue", "wanted"), STOPS.values(), ids=STOPS.keys())
def test_nor_does_who_runs_and_waits_there_to_grow(stops: dict[str, str], queue: str, wanted: bool) -> None:
    store = a_store(stops, queue)
    runs = a_workload("before", admitted=1)
    runs["metadata"] |= {"uid": "uid-before", "labels": {kueue.JOB_UID_LABEL: "job-high"}}
    runs["metadata"] |= {"creationTimestamp": "2025-01-01T00:00:00Z"}
    runs["metadata"]["ownerReferences"][0]["uid"] = "job-high"
    store.workloads.put(runs)
    demand = Demand(store.quotas, [losing := a_slice()])
    assert is_awaited([losing], demand.chain, demand.waits) is wanted
    assert gone([losing], demand.chain) == (set() if wanted else {"uid-high"})


SPENT = "The cpu budget of ClusterQueue cq is spent: 5h/30d"
BUDGETS: dict[str, tuple[str | None, str, bool]] = {
    "the same": ("5h/30d", "drain", True),
    "a larger one": ("6h/30d", "drain", False),
    "another mode": ("5h/30d", "hard", False),
    "none": (None, "drain", False),
}


@pytest.mark.parametrize(("allowance", "mode", "wanted"), BUDGETS.values(), ids=BUDGETS.keys())
def test_an_eviction_for_a_budget_is_for_that_one_alone(allowance: str | None, mode: str, wanted: bool) -> None:
    store = ManagerStore()
    queue = queue_of("ClusterQueue", "cq", resourceGroups=[], namespaceSelector={})
    queue["metadata"]["annotations"] = {api_names.BUDGET_MODE_ANNOTATION: mode}
    if allowance is not None:
        queue["metadata"]["annotations"][api_names.BUDGET_ANNOTATION] = f'{{"cpu": "{allowance}"}}'
    store.cluster_queues.put(queue)
    store.local_queues.put(queue_of("LocalQueue", "queue", "team", clusterQueue="cq"))
    true = condition(Condition.EVICTED, True, EvictionReason.BUDGET_SPENT, SPENT)
    workload = a_workload(count=8, admitted=8, conditions=(true,))
    workload["metadata"]["annotations"][api_names.NOTICE_ANNOTATION] = "9s"
    store.workloads.put(workload)
    assert store.view(REF).is_awaited is wanted


def test_it_is_withdrawn_too() -> None:
    story = Story(notice="120s", cap_s=600)
    assert isinstance(suspended(story, EvictionReason.BUDGET_SPENT).notice, Notice)
    story.is_awaited = False
    notes = [each.note for each in story.reconcile() if isinstance(each, Emit) and each.reason == "ReclaimWithdrawn"]
    assert notes == ["The budget for which it was to go has changed: keeps main=8"] * 2
    assert story.view.holder is not None
    assert Condition.PREEMPTED not in story.view.holder.conditions


@pytest.mark.parametrize("suspended", [True, False])
def test_a_cycle_knows_what_an_evicted_job_was_told(suspended: bool) -> None:
    """Whoever waits for it is told that deadline, whatever its job says by now."""
    store = a_store({}, "queue")
    order = Dispatch(version=2, hash="h", cluster="east", suspended=suspended, notice_s=300.0)
    workload = a_preempted()
    workload["metadata"]["annotations"][api_names.DISPATCHED_ANNOTATION] = order.to_annotation()
    store.workloads.put(workload)
    snapshot = snapshot_of(store, None, Since.at(datetime.fromisoformat(NOW), growth_window_s=0.0))
    assert snapshot.told_s == ({"team/w1": 300.0} if suspended else {})


PRIORITIES: dict[str, tuple[int, int, dict[str, str], str, bool]] = {
    "it may take them": (1, 0, POLICY, "", True),
    "its priority is no longer higher": (0, 0, POLICY, "", False),
    "that of the job is as high by now": (1, 1, POLICY, "", False),
    "its queue preempts nobody any more": (1, 0, {}, "", False),
    "pods that nobody asked for go for everybody": (0, 9, {}, "Opportunistic", True),
}


@pytest.mark.parametrize("whole", [False, True], ids=["pods", "all"])
@pytest.mark.parametrize(("own", "other", "policy", "reason", "wanted"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_who_may_preempt_a_job_no_more_takes_nothing(
    own: int, other: int, policy: dict[str, str], reason: str, wanted: bool, whole: bool
) -> None:
    store = ManagerStore()
    store.cluster_queues.put(queue_of("ClusterQueue", "cq", resourceGroups=[], namespaceSelector={}, preemption=policy))
    store.local_queues.put(queue_of("LocalQueue", "queue", "team", clusterQueue="cq"))
    preemptor = a_workload("high")
    preemptor["metadata"] |= {"uid": "uid-high", "labels": {kueue.JOB_UID_LABEL: "job-high"}}
    preemptor["metadata"]["ownerReferences"][0]["uid"] = "job-high"
    preemptor["spec"]["priority"] = own
    store.workloads.put(preemptor)
    losing = structs.replace(preempted() if whole else a_slice(reason=reason), priority=other)
    if whole and reason:
        condition = losing.conditions[Condition.PREEMPTED] | {"reason": reason}
        losing = structs.replace(losing, conditions={**losing.conditions, Condition.PREEMPTED: condition})
    demand = Demand(store.quotas, [losing])
    assert is_awaited([losing], demand.chain, demand.waits) is wanted
