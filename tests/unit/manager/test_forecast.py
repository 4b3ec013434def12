"""What would become of a job that nobody has submitted, and of a size that nobody has asked for."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Patch
from slicebus.manager.decide import catalog
from slicebus.manager.decide.forecast import dry_runs, hypothesis
from slicebus.manager.decide.forecast.forecast import Forecast, forecast
from slicebus.manager.decide.forecast.suggestions import Remedy
from slicebus.manager.decide.forecast.verdict import Prospect
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings, ManagerDecisionSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.slices.admission.sharing import FairSharing
from slicebus.slices.api import api_names, kueue
from unit.manager.objects import REF, a_job, a_workload, condition
from unit.manager.test_explain import a_store, an_object, of_another

Manifest = dict[str, Any]
MOMENT = datetime(2026, 6, 1, tzinfo=UTC)
NOW = "2026-06-01T00:00:00Z"
OWN = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def a_new_job(count: int, *, name: str = "new", priority: str = "", queue: str = "queue", **spec: Any) -> Manifest:
    job = a_job(count)
    job["metadata"] |= {"uid": f"uid-{name}", "name": name}
    job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = queue
    if priority:
        job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = priority
    job["spec"]["template"] = {"spec": {**job["spec"]["template"]["spec"], **spec}}
    return job


def of_jobs(store: ManagerStore, *jobs: Manifest) -> list[Forecast]:
    return forecast(store, [hypothesis.of_job(store, job, now=NOW) for job in jobs], moment=MOMENT)


def of_size(store: ManagerStore, **counts: int) -> Forecast:
    [found] = forecast(store, [hypothesis.of_size(store, REF, counts, now=NOW)], moment=MOMENT)
    return found


def running(count: int = 1, *, more: tuple[Manifest, ...] = (), **queue: Any) -> ManagerStore:
    """A job that has so many of the five cores of its queue."""
    return a_store(a_job(count), a_workload(count=count, admitted=count, dispatched=1, applied=1), *more, **queue)


def with_class(store: ManagerStore, name: str, value: int) -> ManagerStore:
    store.priority_classes.put(an_object(name, {}, value=value))
    return store


def with_queue(store: ManagerStore, name: str, cores: str, *, flavor: str = "spot") -> ManagerStore:
    groups = [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cores}]}],
        }
    ]
    store.cluster_queues.put(an_object(f"cq-{name}", {"namespaceSelector": {}, "resourceGroups": groups}))
    store.local_queues.put(an_object(name, {"clusterQueue": f"cq-{name}"}, metadata={"namespace": "team"}))
    return store


def told(found: Forecast) -> list[tuple[Remedy, str]]:
    return [(each.remedy, each.to) for each in found.suggestions]


def with_policy(store: ManagerStore, policy: Manifest) -> ManagerStore:
    """Its cluster, with what its agent tells of its policy."""
    east = store.clusters.get(None, "east")
    assert east is not None
    metadata = {**east["metadata"], "resourceVersion": "99"}
    store.clusters.put({**east, "metadata": metadata, "status": {**east["status"], "policy": policy}})
    return store


class TestAPolicyOfTheWorker:
    def test_refuses_what_would_be_made_there(self) -> None:
        job = a_new_job(2, volumes=[{"name": "v", "hostPath": {"path": "/etc"}}], hostNetwork=True)
        [found] = of_jobs(with_policy(running(), {}), job)
        verdict = found.verdict
        assert (verdict.outcome, verdict.reason, verdict.cluster) == (Prospect.REFUSED, "PodSecurity", "east")
        assert verdict.message.startswith("cluster east does not allow in pod set main hostNamespaces: ")
        assert "spec.volumes[0].hostPath" in verdict.message
        assert verdict.pod_sets, "it says what it would have had"
        [found] = of_jobs(with_policy(running(), {"podSecurity": "privileged"}), job)
        assert found.verdict.outcome is Prospect.ADMITTED

    def test_knows_the_tolerations_of_the_flavor(self) -> None:
        store = with_policy(running(), {"tolerationKeys": ["spot"]})
        tolerates = {"tolerations": [{"key": "other", "operator": "Exists"}]}
        store.flavors.put(an_object("spot", tolerates, metadata={"resourceVersion": "99"}))
        [found] = of_jobs(store, a_new_job(2))
        assert (found.verdict.outcome, found.verdict.reason) == (Prospect.REFUSED, "TolerationNotAllowed")
        assert "a toleration of the taint other in pod set main (policy tolerationKeys)" in found.verdict.message

    @pytest.mark.parametrize("policy", [{"podSecurity": 7}, {"labelPrefixes": {}}, None])
    def test_that_nobody_can_read_refuses_nothing(self, policy: Any) -> None:
        [found] = of_jobs(with_policy(running(), policy), a_new_job(2, hostNetwork=True))
        assert found.verdict.outcome is Prospect.ADMITTED

    def test_does_not_concern_who_waits_or_runs_there(self) -> None:
        store = with_policy(running(), {"podSecurity": "restricted"})
        [waits] = of_jobs(store, a_new_job(9, hostNetwork=True))
        assert waits.verdict.outcome is Prospect.WAITS
        assert of_size(store, main=2).verdict.outcome is Prospect.ADMITTED


class TestANewJob:
    def test_is_admitted_where_there_is_room(self) -> None:
        [found] = of_jobs(running(1), a_new_job(4))
        assert (found.job, found.size, found.local_queue) == ("Job/team/new", {"main": 4}, "queue")
        verdict = found.verdict
        assert (verdict.outcome, verdict.cluster_queue, verdict.cluster) == (Prospect.ADMITTED, "cq", "east")
        [place] = verdict.pod_sets
        assert (place.name, place.count, place.flavors) == ("main", 4, {"cpu": "spot"})
        assert (verdict.message, found.suggestions) == ("", ())

    def test_waits_and_hears_why_and_what_would_help(self) -> None:
        [found] = of_jobs(running(2), a_new_job(5))
        verdict = found.verdict
        assert verdict.outcome is Prospect.WAITS
        assert "insufficient unused quota for cpu in flavor spot, 2 more needed" in verdict.message
        assert (verdict.position, verdict.of, verdict.ahead) == (1, 1, ())
        assert told(found) == [(Remedy.PODS, "main=3"), (Remedy.QUOTA, "spot: cpu=2")]

    def test_waits_behind_those_of_a_higher_priority(self) -> None:
        before = of_another("before", 9)
        before["spec"]["priority"] = 10
        [found] = of_jobs(running(2, more=(before,)), a_new_job(4))
        assert (found.verdict.position, found.verdict.of, found.verdict.ahead) == (2, 2, ("team/before",))

    def test_takes_from_others_what_the_policies_allow(self) -> None:
        store = with_class(running(4, **OWN), "high", 10)
        [found] = of_jobs(store, a_new_job(5, priority="high"))
        verdict = found.verdict
        assert (verdict.outcome, verdict.cluster) == (Prospect.PREEMPTS, "east")
        assert [place.flavors for place in verdict.pod_sets] == [{"cpu": "spot"}]
        [loss] = verdict.losses
        assert (loss.slice, loss.job, loss.pods, loss.left) == ("team/w1", "Job/team/train", {"main": 4}, {})
        assert (loss.reason, found.suggestions) == ("InClusterQueue", ())

    def test_takes_pods_of_those_who_can_miss_some(self) -> None:
        willing = a_workload(count=4, admitted=4, dispatched=1, applied=1)
        willing["metadata"]["annotations"][api_names.MIN_SIZE_ANNOTATION] = "main=1"
        store = with_class(a_store(a_job(4), willing, **OWN), "high", 10)
        [found] = of_jobs(store, a_new_job(3, priority="high"))
        [loss] = found.verdict.losses
        assert (found.verdict.outcome, loss.pods, loss.left) == (Prospect.PREEMPTS, {"main": 4}, {"main": 2})

    def test_nothing_is_changed_by_asking(self) -> None:
        store = running(2)
        before = [[*cache.all()] for _, cache in store.decides_by()]
        of_jobs(store, a_new_job(9), a_new_job(1, name="other"))
        of_size(store, main=9)
        assert [[*cache.all()] for _, cache in store.decides_by()] == before
        assert len(store.slices) == 1

    def test_several_are_decided_together(self) -> None:
        first, second = of_jobs(running(1), a_new_job(3, name="a"), a_new_job(3, name="b"))
        assert (first.verdict.outcome, second.verdict.outcome) == (Prospect.ADMITTED, Prospect.WAITS)
        assert told(second) == [(Remedy.PODS, "main=1"), (Remedy.QUOTA, "spot: cpu=2")]

    def test_goes_by_the_settings_of_the_manager(self) -> None:
        store = running(4, **OWN)
        store.configure(LeaderSettings(fixed_jobs=True))
        job = a_new_job(1)
        del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
        assert [each.verdict.outcome for each in of_jobs(store, job)] == [Prospect.ADMITTED]
        assert [each.verdict.outcome for each in of_jobs(running(4), job)] == [Prospect.REFUSED]

    def test_the_settings_pass_by_the_lease(self) -> None:
        own = ManagerDecisionSettings(fixed_jobs=True, notice_cap_s=9.0, fair_sharing=FairSharing.BOTH)
        said = own.to_annotation()
        assert ManagerDecisionSettings.from_annotation(said) == own
        assert "resize_factor" not in said, "only what is not the default"
        assert ManagerDecisionSettings.from_annotation('{"notice_cap_s": "soon"}') is None


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("job", "reason", "message"),
        [
            (a_job(2, managed=False) | {"metadata": a_job(managed=False)["metadata"] | {"name": "x"}}, "NotManaged",
             "it has no label kueue.x-k8s.io/queue-name"),
            (a_new_job(1, priority="none"), "PriorityClassNotFound", "WorkloadPriorityClass none doesn't exist"),
            (a_new_job(1, name="train"), "AlreadyExists", "Job/team/train exists already"),
        ],
        ids=["no queue", "no class", "a name that is taken"],
    )  # fmt: skip
    def test_says_why(self, job: Manifest, reason: str, message: str) -> None:
        job = job | {"metadata": job["metadata"] | {"uid": "uid-new"}}
        [found] = of_jobs(running(), job)
        assert (found.verdict.outcome, found.verdict.reason, found.verdict.message) == (
            Prospect.REFUSED,
            reason,
            message,
        )

    def test_a_pod_set_that_the_job_has_not(self) -> None:
        found = of_size(running(), workers=3)
        assert (found.verdict.outcome, found.verdict.reason) == (Prospect.REFUSED, "InvalidSize")


class TestAnotherSize:
    def test_grows_by_what_is_free(self) -> None:
        found = of_size(running(2), main=5)
        assert (found.size, found.verdict.outcome, found.verdict.cluster) == ({"main": 5}, Prospect.ADMITTED, "east")

    def test_waits_for_more_and_hears_how_far_it_could_grow(self) -> None:
        found = of_size(running(2), main=8)
        assert found.verdict.outcome is Prospect.WAITS
        assert told(found) == [(Remedy.PODS, "main=5"), (Remedy.QUOTA, "spot: cpu=3")]

    @pytest.mark.parametrize("size", [1, 3])
    def test_no_decision_is_needed_for_less(self, size: int) -> None:
        found = of_size(running(3), main=size)
        assert (found.verdict.outcome, found.size) == (Prospect.ADMITTED, {"main": size})

    def test_past_what_the_job_allows(self) -> None:
        store = running(2)
        store.configure(LeaderSettings(resize_factor=3))
        assert of_size(store, main=6).verdict.outcome is Prospect.WAITS
        found = of_size(store, main=7)
        assert (found.verdict.outcome, found.verdict.reason) == (Prospect.REFUSED, "PastBounds")
        assert "and the job allows main=6" in found.verdict.message

    def test_of_a_job_of_a_fixed_size(self) -> None:
        job = a_job(2)
        del job["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
        workload = a_workload(count=2, admitted=2, dispatched=1, applied=1)
        del workload["metadata"]["annotations"][kueue.ELASTIC_ANNOTATION]
        store = a_store(job, workload)
        store.configure(LeaderSettings(fixed_jobs=True))
        found = of_size(store, main=4)
        assert (found.verdict.outcome, found.verdict.message) == (
            Prospect.REFUSED,
            "Job/team/train keeps its size, main=2",
        )

    def test_of_a_job_that_is_left_alone(self) -> None:
        found = of_size(a_store(a_job(1, managed=False)), main=3)
        assert (found.verdict.outcome, found.verdict.reason) == (Prospect.REFUSED, "NotManaged")
        assert found.verdict.message == "it has no label kueue.x-k8s.io/queue-name"

    def test_names_those_who_leave_for_it_already(self) -> None:
        asks = a_workload("w2", 5, replaces="w1")
        text = (
            "Preempted to accommodate a workload (UID: uid-w2, JobUID: uid-train) due to prioritization in the "
            "ClusterQueue; preemptor path: /cq; preemptee path: /cq"
        )
        told = tuple(condition(kind, True, "InClusterQueue", text) for kind in ("Evicted", "Preempted"))
        leaves = of_another("other", 3, admitted=3, dispatched=1, applied=1, conditions=told)
        store = a_store(a_job(2), a_workload(count=2, admitted=2, dispatched=1, applied=1), asks, leaves, **OWN)
        found = of_size(store, main=5)
        assert found.verdict.outcome is Prospect.PREEMPTS
        assert [(loss.job, loss.left, loss.reason) for loss in found.verdict.losses] == [
            ("Job/team/other", {}, "InClusterQueue")
        ]

    def test_takes_the_place_of_a_size_that_waits(self) -> None:
        store = running(2, more=(a_workload("w2", 9, replaces="w1"),))
        found = of_size(store, main=4)
        assert (found.verdict.outcome, found.size) == (Prospect.ADMITTED, {"main": 4})
        assert [slice.counts for slice in store.slices.values()] == [{"main": 2}, {"main": 9}]


class TestWhatWouldHelp:
    def test_another_queue_of_the_namespace(self) -> None:
        store = with_queue(with_queue(running(5), "other", "9"), "small", "1")
        [found] = of_jobs(store, a_new_job(3))
        assert (Remedy.QUEUE, "other") in told(found)
        assert (Remedy.QUEUE, "small") not in told(found)

    def test_a_queue_for_a_job_that_names_none_there_is(self) -> None:
        [found] = of_jobs(running(1), a_new_job(1, queue="nowhere"))
        assert found.verdict.message == "LocalQueue nowhere doesn't exist"
        assert told(found) == [(Remedy.QUEUE, "queue")]

    def test_the_lowest_class_that_is_enough(self) -> None:
        store = running(5, **OWN)
        for name, value in (("low", -1), ("high", 5), ("higher", 9)):
            with_class(store, name, value)
        [found] = of_jobs(store, a_new_job(2))
        [raised] = [each for each in found.suggestions if each.remedy is Remedy.PRIORITY]
        assert (raised.to, [loss.job for loss in raised.losses]) == ("high", ["Job/team/train"])

    def test_another_flavor_that_its_pods_do_not_suit(self) -> None:
        store = with_queue(running(), "mixed", "9", flavor="large")
        taint = {"key": "large", "value": "yes", "effect": "NoSchedule"}
        store.flavors.put(an_object("large", {"nodeLabels": {"size": "large"}, "nodeTaints": [taint]}))
        [found] = of_jobs(store, a_new_job(2, queue="mixed", nodeSelector={"size": "small"}))
        assert found.verdict.outcome is Prospect.WAITS
        assert (Remedy.FLAVOR, "large") in told(found)

    def test_whole_replicas_only(self) -> None:
        store = running(1)
        waiting = hypothesis.of_job(store, a_new_job(6), now=NOW)
        assert waiting.slice is not None
        hosts = msgspec.structs.replace(waiting.slice, replica_sizes={"main": 3})
        [found] = forecast(store, [msgspec.structs.replace(waiting, slice=hosts)], moment=MOMENT)
        assert told(found) == [(Remedy.PODS, "main=3"), (Remedy.QUOTA, "spot: cpu=2")]

    def test_nothing_for_what_no_queue_has(self) -> None:
        containers = [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]
        [found] = of_jobs(running(1), a_new_job(1, containers=containers))
        assert (found.verdict.outcome, found.suggestions) == (Prospect.WAITS, ())


def asking(count: int, *, name: str = "new", **metadata: Any) -> Manifest:
    job = a_new_job(count, name=name)
    job["metadata"]["annotations"][api_names.DRY_RUN_ANNOTATION] = "true"
    job["metadata"] |= metadata
    return job


def shown(store: ManagerStore, job: Manifest) -> dict[str, Any] | None:
    """The verdict that is written onto a job; None where nothing is."""
    match catalog.show_verdict(store, job=job_ref(job), now=NOW):
        case []:
            return None
        case [Patch(body={"metadata": {"annotations": {api_names.VERDICT_ANNOTATION: str(text)}}}, only_shows=True)]:
            found: dict[str, Any] = msgspec.json.decode(text)
            return found
        case [Patch(body={"metadata": {"annotations": {api_names.VERDICT_ANNOTATION: None}}})]:
            return {}
        case commands:
            raise AssertionError(commands)


class TestAJobThatOnlyAsks:
    def test_is_answered_and_has_no_workload(self) -> None:
        store, job = running(1), asking(2)
        store.jobs["Job"].put(job)
        assert [*dry_runs.asked(store)] == [job_ref(job)]
        assert catalog.reconcile_job(store, job=job_ref(job), deletes_held=False, now=NOW) == []
        assert shown(store, job) == {
            "outcome": "Admitted",
            "size": {"main": 2},
            "clusterQueue": "cq",
            "cluster": "east",
            "podSets": [{"name": "main", "count": 2, "flavors": {"cpu": "spot"}}],
        }

    def test_is_written_only_when_the_answer_changes(self) -> None:
        store, job = running(1), asking(2)
        store.jobs["Job"].put(job)
        [patch] = catalog.show_verdict(store, job=job_ref(job), now=NOW)
        assert isinstance(patch, Patch)
        assert isinstance(patch.body, dict)
        job["metadata"]["annotations"] |= patch.body["metadata"]["annotations"]
        store.jobs["Job"].put(job | {"metadata": job["metadata"] | {"resourceVersion": "11"}})
        assert catalog.show_verdict(store, job=job_ref(job), now="2026-06-01T00:00:09Z") == []

    def test_hears_no_name_of_another_namespace(self) -> None:
        before, own = of_another("before", 9), of_another("own", 9)
        for workload in (before, own):
            workload["spec"]["priority"] = 10
        before["metadata"]["namespace"] = "secret"
        store, job = running(2, more=(before, own)), asking(4)
        store.local_queues.put(an_object("queue", {"clusterQueue": "cq"}, metadata={"namespace": "secret"}))
        store.jobs["Job"].put(job)
        told = shown(store, job)
        assert told is not None
        assert (told["outcome"], told["position"], told["of"], told["ahead"]) == ("Waits", 3, 3, ["team/own"])

    def test_hears_how_many_it_would_preempt_and_not_whom(self) -> None:
        others = of_another("theirs", 5, admitted=5, dispatched=1, applied=1)
        others["metadata"]["namespace"] = "secret"
        store = with_class(a_store(a_job(1), others, **OWN), "high", 10)
        store.local_queues.put(an_object("queue", {"clusterQueue": "cq"}, metadata={"namespace": "secret"}))
        job = asking(5)
        job["metadata"]["labels"][kueue.PRIORITY_CLASS_LABEL] = "high"
        store.jobs["Job"].put(job)
        told = shown(store, job)
        assert told is not None
        assert (told["outcome"], told["preempts"], told.get("losses")) == ("Preempts", 1, None)
        assert "secret" not in msgspec.json.encode(told).decode()

    def test_loses_the_verdict_when_it_asks_no_more(self) -> None:
        store, job = running(1), a_new_job(2)
        job["metadata"]["annotations"][api_names.VERDICT_ANNOTATION] = "{}"
        store.jobs["Job"].put(job)
        assert [*dry_runs.asked(store)] == [job_ref(job)]
        assert shown(store, job) == {}

    def test_goes_on_where_it_runs_already(self) -> None:
        job = a_job(1, annotations={api_names.DRY_RUN_ANNOTATION: "true"})
        store = a_store(job, a_workload(count=1, admitted=1, dispatched=1, applied=1))
        assert shown(store, job) is None
        assert store.view(job_ref(job)).is_managed

    def test_is_not_answered_beside_a_kueue(self) -> None:
        store, job = running(1), asking(2)
        store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE))
        store.jobs["Job"].put(job)
        assert shown(store, job) is None
