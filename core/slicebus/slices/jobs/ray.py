"""Reads and writes a RayCluster's spec for all Ray kinds: groups, their pods, and what KubeRay adds to the head."""

from collections.abc import Mapping, Sequence
from typing import Any

from slicebus.proto.messages import MOST_COUNT, Counts
from slicebus.slices.jobs.base import Exposure, Placement
from slicebus.slices.jobs.copies import dns_label, gated_template, pod_labels, with_containers, without
from slicebus.slices.workload.pod_requests import ADDITIONS, COLLECTOR, GCS_WAIT
from slicebus.slices.workload.redis_cleanup import NODE_TYPE_LABEL

Manifest = dict[str, Any]

HEAD = "head"
NO_CLUSTER: Manifest = {"headGroupSpec": {"template": {"spec": {"containers": []}}}}
"""In place of the spec of a cluster that a job has not."""
_SERVICE_TYPE = "ClusterIP"
"""The type of the Service of a head that names none."""
ALLOCATE_TIMEOUT = "RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S"
"""The variable that says after how long autoscaler v2 gives up a pod that does not run; 300 s by default."""
_ALLOCATE_TIMEOUT_S = 86400
"""A day. A pod whose node cannot run it is then given up later, too."""
_REPLICA_LABEL = "ray.io/worker-group-replica-name"
"""KubeRay's name of the replica that a pod of a multi-host group belongs to."""
_GROUP_LABEL = "ray.io/group"
_HEAD_READY = "HeadPodReady"
"""The condition of a RayCluster."""
_NO_BOUND = 2**31 - 1
_RANGE = ("minReplicas", "maxReplicas")
_SIZES = ("replicas", *_RANGE, "scaleStrategy")
_SUSPEND = "suspend"
_IDLE_TIME = "idleTimeoutSeconds"
_OPTIONS = (_IDLE_TIME, "upscalingMode")
_RECREATE = "Recreate"
_AUTOSCALER_REQUESTS = {"cpu": "500m", "memory": "512Mi"}


def autoscales(cluster_spec: Manifest) -> bool:
    """Whether the Ray autoscaler owns the replicas."""
    return bool(cluster_spec.get("enableInTreeAutoscaling"))


def autoscaler_version(cluster_spec: Manifest) -> str | None:
    """The explicit version, the only one that counts for KubeRay; None leaves it to Ray."""
    version: str | None = (cluster_spec.get("autoscalerOptions") or {}).get("version")
    return version


def head_environment(cluster_spec: Manifest) -> dict[str, str]:
    """The variables of the head's Ray container by name; one whose value comes from elsewhere is empty."""
    container = _first_container(cluster_spec["headGroupSpec"]["template"]["spec"])
    return {entry["name"]: entry.get("value", "") for entry in container.get("env") or ()}


def head_image(cluster_spec: Manifest) -> str:
    """The image of the head's Ray container; empty without one."""
    return _first_image(cluster_spec["headGroupSpec"]["template"]["spec"])


def ready_pods(cluster_status: Manifest) -> int | None:
    """How many pods of a RayCluster are ready by its status: its workers, and its head. None where it has none yet."""
    workers = cluster_status.get("readyWorkerReplicas")
    true = {entry["type"] for entry in cluster_status.get("conditions") or () if entry.get("status") == "True"}
    head = cluster_status.get("state") == "ready" or _HEAD_READY in true
    return workers + head if workers is not None else int(head) if cluster_status else None


def groups(cluster_spec: Manifest) -> list[Manifest]:
    """The worker groups."""
    worker_groups: list[Manifest] = cluster_spec.get("workerGroupSpecs") or []
    return worker_groups


def pod_set_name(group: Manifest) -> str:
    """The group's name as a pod set name."""
    return dns_label(str(group["groupName"]))


def hosts(group: Manifest) -> int:
    """How many pods a replica of a group has. A number below one is refused at the submission; who edits a running
    group to one makes it no smaller."""
    return max(1, int(group.get("numOfHosts") or 1))


def desired_replicas(group: Manifest) -> int:
    """Replicas that KubeRay will make: nothing while suspended, clamped to min and max.

    Source: KubeRay `utils.GetWorkerGroupDesiredReplicas`.
    """
    if group.get("suspend"):
        return 0
    least, most, wanted = group.get("minReplicas") or 0, group.get("maxReplicas"), group.get("replicas")
    if wanted is None or wanted < least:
        return max(0, int(least))
    return max(0, int(wanted if most is None else min(wanted, most)))


def cluster_counts(cluster_spec: Manifest) -> Counts:
    """Pods of the head and of each group, cut to a count of 32 bits."""
    pods = {pod_set_name(group): desired_replicas(group) * hosts(group) for group in groups(cluster_spec)}
    return {HEAD: 1} | {name: min(count, MOST_COUNT) for name, count in pods.items()}


def cluster_pod_sets(cluster_spec: Manifest, *, beside_head: tuple[Manifest, ...] = ()) -> list[Manifest]:
    """The pod sets of a cluster. The templates have what KubeRay adds to their pods, so that it is charged."""
    counts, head = cluster_counts(cluster_spec), cluster_spec["headGroupSpec"]["template"]
    collector = _collector(cluster_spec)
    added = [_autoscaler(cluster_spec), *beside_head] if autoscales(cluster_spec) else list(beside_head)
    pod_sets = [{"name": HEAD, "count": 1, "template": with_containers(head, [*added, *collector])}]
    for group in groups(cluster_spec):
        name, template = pod_set_name(group), with_containers(group["template"], collector)
        pod_sets.append({"name": name, "count": counts[name], "template": waiting_for_gcs(template)})
    return pod_sets


def templates(cluster_spec: Manifest) -> dict[str, Manifest]:
    """The pod templates of a cluster as they are, by pod set, and in the head's the autoscaler: its user sizes it."""
    head = cluster_spec["headGroupSpec"]["template"]
    if autoscales(cluster_spec):
        head = with_containers(head, [_autoscaler(cluster_spec)])
    return {HEAD: head} | {pod_set_name(group): group["template"] for group in groups(cluster_spec)}


def pod_set_of(labels: dict[str, str]) -> str:
    """The pod set of a pod by KubeRay's labels; empty for a pod that is not a cluster's.

    Source: KubeRay `common.labelPod`.
    """
    if labels.get(NODE_TYPE_LABEL) == HEAD:
        return HEAD
    return pod_set_name({"groupName": labels[_GROUP_LABEL]}) if _GROUP_LABEL in labels else ""


def most(cluster_spec: Manifest) -> Counts:
    """The most pods of a cluster by pod set, where its spec has a bound. KubeRay's definition has a default for it, the
    largest number there is."""
    bound = {
        pod_set_name(group): min(group["maxReplicas"] * hosts(group), MOST_COUNT)
        for group in groups(cluster_spec)
        if group.get("maxReplicas") is not None and 0 <= group["maxReplicas"] < _NO_BOUND
    }
    return {HEAD: 1} | bound


def least(cluster_spec: Manifest) -> Counts:
    """The fewest pods of each group by pod set, whatever anybody scales."""
    return {pod_set_name(g): min((g.get("minReplicas") or 0) * hosts(g), MOST_COUNT) for g in groups(cluster_spec)}


def waiting_for_gcs(template: Manifest) -> Manifest:
    """A worker's template with the init container that KubeRay adds last, unless its operator is told not to.

    Source: KubeRay `common.DefaultWorkerPodTemplate`.
    """
    spec, resources = template["spec"], {"requests": ADDITIONS[GCS_WAIT], "limits": ADDITIONS[GCS_WAIT]}
    wait = {"name": GCS_WAIT, "image": _first_image(spec), "resources": resources}
    return template | {"spec": spec | {"initContainers": [*(spec.get("initContainers") or ()), wait]}}


def _collector(cluster_spec: Manifest) -> list[Manifest]:
    """The container that KubeRay adds to every pod of a cluster with a history server; none without one."""
    if not cluster_spec.get("historyServerOptions"):
        return []
    return [{"name": COLLECTOR, "image": head_image(cluster_spec), "resources": {"requests": ADDITIONS[COLLECTOR]}}]


def _first_image(spec: Manifest) -> str:
    image: str = _first_container(spec).get("image", "")
    return image


def _first_container(spec: Manifest) -> Manifest:
    """The Ray container of a PodSpec; empty where there is none."""
    containers = spec["containers"]
    return containers[0] if containers else {}


def is_resizable(cluster_spec: Manifest) -> bool:
    """Whether replicas may be written: not where the autoscaler owns them, unless it has no pod to run in."""
    return not autoscales(cluster_spec) or bool(cluster_spec.get("suspend"))


def gated_cluster(cluster_spec: Manifest, placements: dict[str, Placement]) -> Manifest:
    """The spec of a cluster for a worker, with gated templates."""
    head = cluster_spec["headGroupSpec"]
    changed: Manifest = {"headGroupSpec": _gated_group(head, HEAD, placements)}
    if groups(cluster_spec):
        changed["workerGroupSpecs"] = [
            _gated_group(group, pod_set_name(group), placements) for group in groups(cluster_spec)
        ]
    if autoscales(cluster_spec):
        changed["autoscalerOptions"] = _patient(cluster_spec.get("autoscalerOptions") or {})
    return without(cluster_spec, ("managedBy", "suspend")) | changed


def head_exposure(cluster_spec: Manifest, *, name: str) -> Exposure:
    """Read the Ingress, and the Service that KubeRay makes for the head, from the job's own Service if it has one, and
    whether its autoscaler needs an account. `name` is that of the job.

    Source: KubeRay `common.BuildServiceForHeadPod`, `common.BuildServiceAccount`.
    """
    head = cluster_spec["headGroupSpec"]
    service = head.get("headService") or {}
    metadata, spec = service.get("metadata") or {}, service.get("spec") or {}
    return Exposure(
        service_types=frozenset(type for type in (head.get("serviceType") or _SERVICE_TYPE, spec.get("type")) if type),
        external_ips=bool(spec.get("externalIPs")),
        ingress=bool(head.get("enableIngress")),
        labels=metadata.get("labels") or {},
        annotations=(cluster_spec.get("headServiceAnnotations") or {}) | (metadata.get("annotations") or {}),
        service_names=frozenset(given_name(metadata, but=f"{name}-head-svc")),
        makes_account=autoscales(cluster_spec),
    )


def given_name(metadata: Manifest, *, but: str) -> list[str]:
    """The name that a job gives a Service, unless it is the one that KubeRay gives it."""
    name = metadata.get("name") or but
    return [str(name)] if name != but else []


def resize_groups(cluster_spec: Manifest, counts: Counts, *, at: str = "/spec") -> list[Manifest]:
    """The JSON patch that sets replicas, each guarded by the group's name at its index. Whole replicas only.

    `at` is where the object has the cluster's spec.
    """
    patch: list[Manifest] = []
    for index, group in enumerate(groups(cluster_spec)):
        wanted = counts.get(pod_set_name(group))
        if wanted is None or wanted // hosts(group) == desired_replicas(group):
            continue
        path = f"{at}/workerGroupSpecs/{index}"
        patch.append({"op": "test", "path": f"{path}/groupName", "value": group["groupName"]})
        patch.append({"op": "add", "path": f"{path}/replicas", "value": wanted // hosts(group)})
    return patch


def bounds(cluster_spec: Manifest, *, only_range: bool = False) -> Manifest:
    """The least and most replicas of each group. With an autoscaler also the idle time of each, and its own idle time
    and mode; without one whether a group is suspended, which KubeRay takes only then.

    With `upgradeStrategy: Recreate`, and for a RayService, KubeRay makes the cluster anew for any of these but the
    replicas. They are left out for the former, and with `only_range`.
    """
    keeps = only_range or _is_made_anew(cluster_spec)
    scaled, limits = autoscales(cluster_spec), dict[str, Manifest]()
    for group in groups(cluster_spec):
        more = {} if keeps else _own_limits(group, scaled=scaled)
        limits[str(group["groupName"])] = {name: group[name] for name in _RANGE if name in group} | more
    options = cluster_spec.get("autoscalerOptions") or {}
    own = {"options": {name: options[name] for name in _OPTIONS if name in options}} if scaled and not keeps else {}
    return {"groups": limits} | own if scaled or limits else {}


def _is_made_anew(cluster_spec: Manifest) -> bool:
    """Whether KubeRay makes the cluster anew for an edit of more than its replicas."""
    return bool((cluster_spec.get("upgradeStrategy") or {}).get("type") == _RECREATE)


def _own_limits(group: Manifest, *, scaled: bool) -> Manifest:
    """What bounds a group beside its range: the idle time that Ray's autoscaler goes by, or a suspension without it."""
    if scaled:
        return {_IDLE_TIME: group[_IDLE_TIME]} if _IDLE_TIME in group else {}
    return {_SUSPEND: bool(group.get(_SUSPEND))}


def set_bounds(cluster_spec: Manifest, wanted: Manifest, *, at: str = "/spec") -> list[Manifest]:
    """The JSON patch that gives a cluster these bounds, each guarded by the group's name at its index.

    Those that the cluster has no use for are passed over: a suspension with the autoscaler, its options without it; and
    those for which KubeRay would make it anew. It goes by its own spec: the manager's may have been edited since. `at`
    is where the object has that spec.
    """
    patch: list[Manifest] = []
    is_scaled, keeps = autoscales(cluster_spec), _is_made_anew(cluster_spec)
    has_options = is_scaled and not keeps and "options" in wanted
    may_suspend = not is_scaled and not keeps
    for index, group in enumerate(groups(cluster_spec)):
        path, fields = f"{at}/workerGroupSpecs/{index}", wanted.get("groups", {}).get(group["groupName"])
        known = (*_RANGE, _IDLE_TIME) if has_options else _RANGE
        changes = _changes(group, fields, known, path) if fields is not None else []
        is_suspended = bool(group.get(_SUSPEND))
        if fields is not None and may_suspend and fields.get(_SUSPEND, is_suspended) is not is_suspended:
            changes.append({"op": "add", "path": f"{path}/{_SUSPEND}", "value": not is_suspended})
        if changes:
            patch += [{"op": "test", "path": f"{path}/groupName", "value": group["groupName"]}, *changes]
    if has_options:
        path, present = f"{at}/autoscalerOptions", cluster_spec.get("autoscalerOptions")
        changes = _changes(present or {}, wanted["options"], _OPTIONS, path)
        patch += [{"op": "add", "path": path, "value": {}}] * (present is None and bool(changes)) + changes
    return patch


def _changes(present: Manifest, wanted: Manifest, fields: tuple[str, ...], path: str) -> list[Manifest]:
    changes: list[Manifest] = []
    for field in fields:
        if field in wanted and present.get(field) != wanted[field]:
            changes.append({"op": "add", "path": f"{path}/{field}", "value": wanted[field]})
        elif field not in wanted and field in present:
            changes.append({"op": "remove", "path": f"{path}/{field}"})
    return changes


def with_replicas(cluster_spec: Manifest, counts: Counts) -> Manifest:
    """A cluster's spec with the replicas that make these counts. A group that makes them stays, as a suspended one."""
    wanted = cluster_counts(cluster_spec) | counts
    sizes = [(group, wanted[pod_set_name(group)] // hosts(group)) for group in groups(cluster_spec)]
    changed = [group if size == desired_replicas(group) else group | {"replicas": size} for group, size in sizes]
    return cluster_spec | ({"workerGroupSpecs": changed} if changed else {})


def without_sizes(cluster_spec: Manifest) -> Manifest:
    """A cluster's spec without the size and the bounds of its groups."""
    return cluster_spec | {"workerGroupSpecs": [without(group, _SIZES) for group in groups(cluster_spec)]}


def with_sizes(cluster_spec: Manifest, *, source: Manifest) -> Manifest:
    """A cluster's spec with the size and the bounds that another one's groups of the same names have."""
    sizes = {group["groupName"]: {f: group[f] for f in _SIZES if f in group} for group in groups(source)}
    changed = [
        without(group, _SIZES) | sizes[group["groupName"]] if group["groupName"] in sizes else group
        for group in groups(cluster_spec)
    ]
    return cluster_spec | ({"workerGroupSpecs": changed} if changed else {})


def counts_there(target: Manifest, cluster_spec: Manifest) -> Counts:
    """The pods that `target`, the spec of a cluster that runs, has with as many replicas as in the other spec: how many
    hosts a replica has is for a cluster's next start."""
    there = {pod_set_name(group): hosts(group) for group in groups(target)}
    return {
        pod_set_name(group): desired_replicas(group) * there.get(pod_set_name(group), hosts(group))
        for group in groups(cluster_spec)
    }


def replica_size(cluster_spec: Manifest, pod_set: str) -> int:
    """How many pods a replica of a pod set has."""
    return next((hosts(group) for group in groups(cluster_spec) if pod_set_name(group) == pod_set), 1)


def replica(labels: dict[str, str], owner_uid: str) -> tuple[str, str]:
    """Read KubeRay's label, as `JobKind.replica`. KubeRay up to 1.5 gives no names."""
    return owner_uid, labels.get(_REPLICA_LABEL, "")


def named_for_deletion(cluster_spec: Manifest) -> frozenset[str]:
    """The pods that `workersToDelete` names: KubeRay deletes them at every reconcile, whatever `replicas` says."""
    return frozenset(name for group in groups(cluster_spec) for name in _named(group))


def name_for_deletion(cluster_spec: Manifest, names: Mapping[str, Sequence[str]]) -> list[Manifest]:
    """The JSON patch that gives groups these pods to delete, by pod set, each guarded by the group's name at its index.

    Source: KubeRay 1.7, `reconcilePods`: it obeys the list with and without Ray's autoscaler, and never clears it.
    """
    patch: list[Manifest] = []
    for index, group in enumerate(groups(cluster_spec)):
        wanted = names.get(pod_set_name(group))
        if wanted is None or [*wanted] == _named(group):
            continue
        path = f"/spec/workerGroupSpecs/{index}"
        patch.append({"op": "test", "path": f"{path}/groupName", "value": group["groupName"]})
        patch.append({"op": "add", "path": f"{path}/scaleStrategy", "value": {"workersToDelete": [*wanted]}})
    return patch


def _named(group: Manifest) -> list[str]:
    return list((group.get("scaleStrategy") or {}).get("workersToDelete") or ())


def _gated_group(group: Manifest, name: str, placements: dict[str, Placement]) -> Manifest:
    """A group, or the head, with a gated template. KubeRay gives its pods the group's `labels` too."""
    labels = {"labels": pod_labels(group["labels"])} if group.get("labels") else {}
    return group | labels | {"template": gated_template(group["template"], name, placements.get(name, Placement()))}


def _patient(options: Manifest) -> Manifest:
    """The options of an autoscaler that lets gated pods wait for quota, unless its user says how long.

    Source: Ray 2.47 and later, `python/ray/autoscaler/v2/instance_manager/config.py`.
    """
    env = options.get("env") or []
    if options.get("envFrom") or any(entry.get("name") == ALLOCATE_TIMEOUT for entry in env):
        return options
    return options | {"env": [*env, {"name": ALLOCATE_TIMEOUT, "value": str(_ALLOCATE_TIMEOUT_S)}]}


def _autoscaler(cluster_spec: Manifest) -> Manifest:
    options = cluster_spec.get("autoscalerOptions") or {}
    resources = options["resources"] if options.get("resources") is not None else {"requests": _AUTOSCALER_REQUESTS}
    image = options.get("image") or head_image(cluster_spec)
    context = {name: options[name] for name in ("securityContext",) if options.get(name)}
    return {"name": "autoscaler", "image": image, "resources": resources, **context}
