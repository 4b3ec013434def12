"""A fleet of one manager and one worker without servers and loops: decisions and what they write, step by step.

Both roles decide through a `Decider`, by their own stores. What they write goes into two dictionaries, one a cluster,
and from there into the caches. A few lines stand for the controllers of a worker: they make pods of whatever a job
says, as far as they can read it.
"""

import copy
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from slicebus.agent.act.heartbeat import told_of_policy
from slicebus.agent.decide import catalog as agent_catalog
from slicebus.agent.decide.cluster.capacity import PodUse, room, within_grant
from slicebus.agent.decide.job import inventory as agent_inventory
from slicebus.agent.decide.order import triage
from slicebus.agent.decide.order.triage import Triage
from slicebus.agent.decide.pods import pod_refusals
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.settings import AgentDecisionSettings
from slicebus.agent.state.store import POLICY, AgentStore
from slicebus.decisions.commands import (
    Command,
    Create,
    Emit,
    Forget,
    Patch,
    PatchEach,
    Publish,
    Remember,
    Remove,
    Requeue,
)
from slicebus.decisions.decider import Decider, Incoming
from slicebus.kube.resources import (
    CLUSTERQUEUES,
    JOB_RESOURCES,
    LOCALQUEUES,
    NAMESPACES,
    PODS,
    RESOURCEFLAVORS,
    WORKERCLUSTERS,
    WORKLOADS,
    Resource,
)
from slicebus.manager.decide import catalog
from slicebus.manager.decide.explain import explain
from slicebus.manager.decide.messages import message_router
from slicebus.manager.state.annotations import job_ref
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.codec import Decoded, decode_order, decode_report, encode
from slicebus.proto.envelope import Envelope
from slicebus.proto.errors import ConflictError, PermanentError, ProtocolError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, Direction, Heartbeat, Hello, JobRef, Message, RequestKey
from slicebus.sandbox.apiserver.patches import json_patch, merge_patch
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.slices.api import kueue
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.fit import fitted_job
from slicebus.slices.workload.ungate import is_gated

Manifest = dict[str, Any]
EAST, EAST_UID = ClusterName("east"), ClusterUid("uid-of-east")
NAMESPACE = "team"
NOW = "2026-01-31T12:00:00Z"
NOW_S = 1000.0
STRICT = Policy(
    service_accounts=("default",),
    label_prefixes=("app", "job"),
    runtime_classes=("kata",),
    csi_drivers=("csi.example.dev",),
    autoscaler_accounts=True,
)
"""The policy of the worker, which allows the jobs of the properties."""
RESOURCES = {
    resource.kind: resource
    for resource in (*JOB_RESOURCES.values(), PODS, WORKLOADS, WORKERCLUSTERS, CLUSTERQUEUES, LOCALQUEUES, NAMESPACES)
}
"""What anybody writes, by kind."""
_MOST_PODS = 6
"""A job of a billion pods is no other than one of some."""
_ROUNDS = 12


def _named(resource: Resource, name: str, spec: Manifest, **more: Any) -> Manifest:
    metadata = {"name": name} | ({"namespace": NAMESPACE} if resource.namespaced else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec} | more


class Cluster:
    """One API server: objects with versions, and the caches of the role that works with it."""

    _versions = itertools.count(1)

    def __init__(self, store: ManagerStore | AgentStore) -> None:
        self._store = store
        self.objects: dict[tuple[str, str, str], Manifest] = {}

    def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        number = next(self._versions)
        metadata = copy.deepcopy(manifest["metadata"])
        own = {"uid": f"uid-{number}", "creationTimestamp": NOW, "generation": 1}
        made = copy.deepcopy(manifest) | {"metadata": own | metadata}
        key = self._key(resource, made)
        if key in self.objects:
            raise ConflictError("there is one of that name")
        return self._put(resource, made)

    def write(self, resource: Resource, old: Manifest, new: Manifest) -> Manifest:
        """Store another state of an object; a changed spec is another generation."""
        if new.get("spec") != old.get("spec"):
            new = new | {"metadata": new["metadata"] | {"generation": old["metadata"].get("generation", 1) + 1}}
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            self._drop(resource, new)
            return new
        return self._put(resource, new)

    def delete(self, resource: Resource, manifest: Manifest) -> None:
        present = self.get(resource, manifest["metadata"]["name"], manifest["metadata"].get("namespace", ""))
        if present is None:
            return
        gone = present | {"metadata": present["metadata"] | {"deletionTimestamp": NOW}}
        self.write(resource, gone, gone)
        uid = present["metadata"]["uid"]
        for of in (*JOB_RESOURCES.values(), PODS, WORKLOADS):
            for owned in self.all(of):
                if any(owner.get("uid") == uid for owner in owned["metadata"].get("ownerReferences") or ()):
                    self.delete(of, owned)

    def get(self, resource: Resource, name: str, namespace: str = NAMESPACE) -> Manifest | None:
        return self.objects.get((resource.kind + resource.group, namespace if resource.namespaced else "", name))

    def all(self, resource: Resource) -> list[Manifest]:
        return [found for (kind, *_), found in self.objects.items() if kind == resource.kind + resource.group]

    def _put(self, resource: Resource, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"] | {"resourceVersion": str(next(self._versions))}
        stored = manifest | {"metadata": metadata}
        self.objects[self._key(resource, stored)] = stored
        if (cache := self._store.cache_of(resource)) is not None:
            if self._is_seen(resource, stored):
                cache.put(copy.deepcopy(stored))
            elif cache.get(metadata.get("namespace"), metadata["name"]) is not None:
                cache.remove(stored, is_final=True)
        return stored

    def _drop(self, resource: Resource, manifest: Manifest) -> None:
        del self.objects[self._key(resource, manifest)]
        if (cache := self._store.cache_of(resource)) is not None:
            final = manifest | {"metadata": manifest["metadata"] | {"resourceVersion": str(next(self._versions))}}
            cache.remove(final, is_final=True)

    def _is_seen(self, resource: Resource, manifest: Manifest) -> bool:
        return resource != PODS or kueue.POD_SET_LABEL in (manifest["metadata"].get("labels") or {})

    @staticmethod
    def _key(resource: Resource, manifest: Manifest) -> tuple[str, str, str]:
        metadata = manifest["metadata"]
        return resource.kind + resource.group, metadata.get("namespace", ""), metadata["name"]


class World:
    """The two roles, what they have published, and what they were told to do again."""

    def __init__(self) -> None:
        self.manager, self.agent = ManagerStore(), AgentStore()
        self.manager.configure(LeaderSettings(fixed_jobs=True, pods_ready_s=300.0, leads_since=NOW))
        own = AgentDecisionSettings(cluster=EAST, cluster_uid=EAST_UID, manager_user="manager", status_interval_s=0.0)
        self.agent.configure(own)
        self.agent.policy[POLICY] = STRICT
        self.here, self.there = Cluster(self.manager), Cluster(self.agent)
        self._decide, self._decide_there = Decider(self.manager), Decider(self.agent)
        self._use = PodUse(self.agent.pods, self.agent.foreign_pods)
        self._up, self._down = deque[Message](), deque[Message]()
        self.said: list[Message] = []
        """Everything that was published, by both."""
        self._issuers = {
            user: Issuer(epoch=1, user=user, now=lambda: datetime(2026, 1, 31, 12, tzinfo=UTC), random=bytes)
            for user in ("manager", "east")
        }
        self.dead: list[str] = []
        self._numbers = itertools.count(1)
        quota = [{"name": name, "nominalQuota": most} for name, most in (("cpu", "100"), ("memory", "1Ti"))]
        groups = [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "default", "resources": quota}]}]
        for resource, manifest in (
            (NAMESPACES, _named(NAMESPACES, NAMESPACE, {})),
            (RESOURCEFLAVORS, _named(RESOURCEFLAVORS, "default", {})),
            (CLUSTERQUEUES, _named(CLUSTERQUEUES, "cq", {"namespaceSelector": {}, "resourceGroups": groups})),
            (LOCALQUEUES, _named(LOCALQUEUES, "queue", {"clusterQueue": "cq"})),
            (WORKERCLUSTERS, _named(WORKERCLUSTERS, EAST, {"accepted": True, "capacity": "Unlimited"})),
        ):
            self.here.create(resource, manifest)
        self.say(Hello(agent_version="1", kubernetes_version="v1.36.0", schema_version="1.0"))
        self.say(
            Heartbeat(
                container_defaults={NAMESPACE: {"cpu": "100m"}},
                pod_overheads={"kata": {"cpu": "250m", "memory": "160Mi"}},
                policy=told_of_policy(STRICT),
            )
        )

    # --- what happens -------------------------------------------------------------------------------------------

    def go_on(self, rounds: int = _ROUNDS) -> None:
        """Let everybody work, until nothing happens any more or so many rounds are over."""
        for _ in range(rounds):
            before = self._versions()
            self._manage()
            self._deliver()
            self._control()
            self._work()
            self._deliver()
            if self._versions() == before and not (self._up or self._down):
                break

    def look(self) -> None:
        """Make every other decision about each job once, with what an inventory has of it."""
        for key in dict.fromkeys(self.agent.keys()):
            view = self.agent.view(key)
            item, request = agent_inventory.item(view, EAST), agent_inventory.unanswered(view)
            list(within_grant(view))
            pod_refusals.lacking(view)
            list(pod_refusals.selectors(view))
            if item is not None:
                self._compare(JobRef(KINDS[key.kind].resource.api_version, *_ref_of(item)), item, request)
        for ref in dict.fromkeys(self.manager.refs()):
            self._compare(ref, None, None)
        room((), nodes=(), use=self._use.by_node, granted=())
        for decision in (catalog.collect, catalog.report_queues, catalog.report_checks):
            self._decide(decision, now=NOW)
        self._decide(catalog.move)
        self._decide_there(agent_catalog.take_over_pods, epoch=2)
        for key in dict.fromkeys(self.agent.keys()):
            self._decide_there(agent_catalog.report, key=key, now_s=NOW_S)
            self._decide_there(agent_catalog.note_refused, key=key, problem="refused", now=NOW)
            self._decide_there(agent_catalog.show_set_aside, key=key, problem="odd")
        for ref in dict.fromkeys(self.manager.refs()):
            self._decide(catalog.show_set_aside, job=ref, problem="odd", now=NOW)
            if self.manager.view(ref).job is not None:
                explain(self.manager, ref)
        self._decide(catalog.is_outage, silent=[EAST])
        self._decide(catalog.lose, cluster=EAST, silent_s=600.0, now=NOW)
        self._decide(catalog.is_back, cluster=EAST)
        finding = self._decide(catalog.assess_silent, cluster=EAST, silent_s=600.0, outage=False)
        if finding is not None:
            self._decide(catalog.show_standing, cluster=EAST, finding=finding, now=NOW)

    def beside_kueue(self) -> None:
        """Decide about the same objects as a manager that has a Kueue beside it."""
        store = ManagerStore()
        store.configure(LeaderSettings(admission=AdmissionModeName.KUEUE, leads_since=NOW))
        check = {"metadata": {"name": "slicebus", "uid": "check", "resourceVersion": "1"}}
        store.admission_checks.put(check | {"spec": {"controllerName": "slicebus.dev/dispatch"}})
        for resource, cache in self.manager.decides_by():
            for manifest in cache.all():
                found = store.cache_of(resource)
                assert found is not None
                if resource == WORKLOADS:
                    state = {"name": "slicebus", "state": "Pending", "message": "", "lastTransitionTime": NOW}
                    manifest = manifest | {"status": manifest.get("status", {}) | {"admissionChecks": [state]}}
                found.put(manifest)
        decide = Decider(store)
        for ref in dict.fromkeys(store.refs()):
            decide(catalog.reconcile_job, job=ref, deletes_held=False, now=NOW)
        decide(catalog.report_checks, now=NOW)

    def say(self, message: Message) -> None:
        """Have the agent say something."""
        self._up.append(message)

    def say_otherwise(self, message: Message, body: Any) -> None:
        """Have a message come with another body. One that nobody can read is refused."""
        is_up = message.direction is Direction.UP
        wire = encode(self._envelope(message, is_up=is_up), message)
        wire = msgspec.structs.replace(wire, body=msgspec.json.encode(body))
        with suppress(ProtocolError):
            self._receive(decode_report(wire) if is_up else decode_order(wire), is_up=is_up)

    def change(self, cluster: Cluster, manifest: Manifest, changed: Manifest) -> None:
        """Somebody writes an object: its metadata stays its own but for labels and annotations."""
        metadata = manifest["metadata"] | {
            name: value for name, value in changed["metadata"].items() if name in ("labels", "annotations")
        }
        cluster.write(RESOURCES[manifest["kind"]], manifest, changed | {"metadata": metadata})

    # --- the manager --------------------------------------------------------------------------------------------

    def _manage(self) -> None:
        for ref in dict.fromkeys(self.manager.refs()):
            self._decide(catalog.ending, job=ref)
            self._carry_out(self.here, self._decide(catalog.reconcile_job, job=ref, deletes_held=False, now=NOW))
        for decision in self._decide(catalog.cycle, trees=None, preemption_cycles_since=NOW):
            version = self.manager.version_of(decision.key)
            try:
                commands = self._decide(
                    catalog.apply_decision, decision=decision, version=version, in_turn=True, now=NOW
                )
            except ConflictError:
                continue
            self._carry_out(self.here, commands)

    def _compare(self, ref: JobRef, item: Any, request: RequestKey | None) -> None:
        speaker, at = EAST_UID, (1, 10**6)
        self._decide(catalog.compare, job=ref, item=item, waits=request is not None)
        self._decide(catalog.is_stray, job=ref, cluster=EAST, reported_since=False)
        self._decide(catalog.whereabouts, job=ref, cluster=EAST)
        self._decide(catalog.delete_stray, job=ref, cluster=EAST, version=1, stored_uid=None)
        self._decide(catalog.publish_again, job=ref, item=item, speaker=speaker, published_at=at)
        self._decide(catalog.renew, job=ref, item=item, speaker=speaker, published_at=at)
        self._decide(catalog.forget_withdrawn, job=ref, speaker=speaker, published_at=at)
        self._decide(catalog.take_as_applied, job=ref, version=1)
        if item is not None:
            self._decide(catalog.status_differs, job=ref, item=item)
        if request is not None:
            self._decide(catalog.lacks_request, job=ref, request=request, speaker=speaker, published_at=at)

    # --- the agent ----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        for key in dict.fromkeys(self.agent.keys()):
            for _ in range(_ROUNDS):
                given = {"key": key, "fenced": False, "now": NOW, "now_s": NOW_S}
                then, commands = self._decide_there(agent_catalog.reconcile_job, **given)
                self._carry_out(self.there, commands)
                if then is not agent_catalog.Continuation.AGAIN:
                    break
            if then is agent_catalog.Continuation.FIND:
                found = self.there.get(JOB_RESOURCES[key.kind], key.name, key.namespace)
                try:
                    _, commands = self._decide_there(agent_catalog.reconcile_absent, key=key, stored=found, now=NOW)
                except ConflictError:
                    continue
                self._carry_out(self.there, commands)

    def _obey(self, incoming: Incoming[Any]) -> None:
        outcome, commands = self._decide_there(triage.triage, incoming=incoming)
        self._carry_out(self.there, commands)
        job = getattr(incoming.message, "job", None)
        if job is None or outcome is not Triage.TAKEN:
            return
        number: int | None = 0
        while number is not None:
            number, commands = self._decide_there(agent_catalog.proceed, incoming=incoming, number=number)
            self._carry_out(self.there, commands)

    # --- messages -----------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while self._up or self._down:
            is_up = bool(self._up)
            message = (self._up if is_up else self._down).popleft()
            wire = encode(self._envelope(message, is_up=is_up), message)
            # What a role publishes has to be readable for the other, whatever was written in its cluster.
            self._receive(decode_report(wire) if is_up else decode_order(wire), is_up=is_up)

    def _receive(self, decoded: Decoded[Any], *, is_up: bool) -> None:
        incoming: Incoming[Any] = Incoming(next(self._numbers), decoded)
        try:
            if is_up:
                self._carry_out(self.here, self._decide(message_router.receive, incoming=incoming, now=NOW))
            else:
                self._obey(incoming)
        except (ConflictError, PermanentError, ProtocolError) as error:
            self.dead.append(str(error))

    def _envelope(self, message: Message, *, is_up: bool) -> Envelope:
        return self._issuers["east" if is_up else "manager"].envelope(message, EAST, EAST_UID, to_shard=0)

    # --- what decisions ask for ---------------------------------------------------------------------------------

    def _carry_out(self, cluster: Cluster, commands: Sequence[Command]) -> None:
        tables = (self.manager if cluster is self.here else self.agent).tables()
        try:
            for command in commands:
                match command:
                    case Remember(table=table, key=key, value=value):
                        tables[table][key] = value
                    case Forget(table=table, key=key):
                        tables[table].pop(key, None)
                    case Create(resource=resource, manifest=manifest):
                        cluster.create(resource, manifest)
                    case Patch():
                        _patch(cluster, command)
                    case PatchEach(patches=patches):
                        for patch in patches:
                            _patch(cluster, patch)
                    case Remove(resource=resource, target=target):
                        cluster.delete(resource, target)
                    case Publish(message=message):
                        self.said.append(message)
                        (self._down if cluster is self.here else self._up).append(message)
                    case Emit() | Requeue():
                        pass
        except (ConflictError, ApiError):
            return

    def _versions(self) -> list[str]:
        stored = (*self.here.objects.values(), *self.there.objects.values())
        return [manifest["metadata"]["resourceVersion"] for manifest in stored]

    # --- the worker's controllers -------------------------------------------------------------------------------

    def _control(self) -> None:
        for name, kind in KINDS.items():
            for job in self.there.all(kind.resource):
                readable = fitted_job(job, kind.spec_shape, kind.status_shape)
                if kind.child_kind:
                    self._make_child(job, readable, name)
                else:
                    self._make_pods(job, readable)

    def _make_child(self, job: Manifest, readable: Manifest, kind: str) -> None:
        child = KINDS[KINDS[kind].child_kind]
        name = f"{job['metadata']['name']}-c"
        if self.there.get(child.resource, name) is None and not readable["spec"].get("suspend"):
            origin = {"ray.io/originated-from-cr-name": job["metadata"]["name"], "ray.io/originated-from-crd": kind}
            metadata = {"name": name, "namespace": NAMESPACE, "labels": origin, "ownerReferences": [_owner(job)]}
            spec = KINDS[kind].cluster_spec(readable)  # type: ignore[attr-defined]
            made = {"apiVersion": child.resource.api_version, "kind": child.resource.kind, "metadata": metadata}
            self.there.create(child.resource, made | {"spec": copy.deepcopy(spec)})
            field = {
                "RayJob": {"rayClusterName": name},
                "RayService": {"activeServiceStatus": {"rayClusterName": name}},
            }
            status = (readable.get("status") or {}) | field[kind]
            self.there.write(KINDS[kind].resource, job, job | {"status": status})

    def _make_pods(self, job: Manifest, readable: Manifest) -> None:
        kind = KINDS[job["kind"]]
        present = [pod for pod in self.there.all(PODS) if _owner(job) in pod["metadata"]["ownerReferences"]]
        wanted = {} if readable["spec"].get("suspend") else kind.counts(readable, readable)
        templates = {pod_set["name"]: pod_set["template"] for pod_set in kind.pod_sets(readable)}
        for pod_set, count in wanted.items():
            have = [pod for pod in present if pod["metadata"]["labels"].get(kueue.POD_SET_LABEL) == pod_set]
            for _ in range(min(count, _MOST_PODS) - len(have)):
                template = templates[pod_set]
                labels = (template.get("metadata") or {}).get("labels") or {}
                found = {label: value for labels in kind.pod_selectors(readable)[:1] for label, value in labels.items()}
                name = f"{job['metadata']['name']}-{next(self._numbers)}"
                metadata = {"name": name, "namespace": NAMESPACE, "labels": labels | found}
                metadata["ownerReferences"] = [_owner(job)]
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"], "status": {}}
                self.there.create(PODS, pod)
        for pod in present:
            if pod["metadata"]["labels"].get(kueue.POD_SET_LABEL) not in wanted:
                self.there.delete(PODS, pod)
            elif not is_gated(pod) and not pod["status"]:
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                self.there.write(PODS, pod, pod | {"status": ready})


def _owner(job: Manifest) -> Manifest:
    return {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }


def _patch(cluster: Cluster, command: Patch) -> None:
    metadata = command.target["metadata"]
    present = cluster.get(command.resource, metadata["name"], metadata.get("namespace", ""))
    if present is None or present["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
        raise ConflictError("it has changed")
    body = command.body
    changed = json_patch(present, body) if isinstance(body, list) else dict(merge_patch(present, body))
    cluster.write(command.resource, present, changed)


def _ref_of(item: Any) -> Iterable[str]:
    return item.kind, item.namespace, item.name, item.uid


def started(job: Manifest) -> tuple[World, JobRef]:
    """A world in which a job was made, and nothing has happened since."""
    world = World()
    metadata = {"name": "demo", "namespace": NAMESPACE, "uid": "uid-demo"}
    metadata["labels"] = {kueue.QUEUE_NAME_LABEL: "queue"}  # type: ignore[assignment]
    metadata["annotations"] = {kueue.ELASTIC_ANNOTATION: "true"}  # type: ignore[assignment]
    made = world.here.create(JOB_RESOURCES[job["kind"]], job | {"metadata": metadata})
    return world, job_ref(made)
