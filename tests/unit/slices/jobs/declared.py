"""The declared kinds of the tests, and manifests of them as a user writes them for the manager."""

from pathlib import Path
from typing import Any

import yaml

from slicebus.slices.jobs.declaration import Declaration
from slicebus.slices.jobs.declared import DeclaredKind
from unit.slices.jobs.manifests import GATE, a_template, metadata

Manifest = dict[str, Any]

KINDS_FILE = Path(__file__).parents[3] / "support" / "declared" / "kinds.yaml"
ENTRIES: dict[str, Manifest] = {entry["kind"]: entry for entry in yaml.safe_load(KINDS_FILE.read_text())}
ENTRIES["TrainJob"] = {
    "apiVersion": "example.dev/v1",
    "kind": "TrainJob",
    "plural": "trainjobs",
    "podSets": [
        {"name": "driver", "templatePath": "spec.driver.template"},
        {"name": "trainers", "templatePath": "spec.template", "countPath": "spec.scaling.replicas"},
    ],
    "suspendPath": "spec.runPolicy.suspend",
    "managedBy": {"path": "spec.runPolicy.managedBy", "value": "kueue.x-k8s.io/multikueue"},
    "succeeded": {"path": "status.phase", "value": "Succeeded"},
    "failed": {"path": "status.phase", "value": "Failed"},
    "mirroredStatus": ["phase", "active"],
    "droppedPaths": ["spec.runPolicy.ttlSecondsAfterFinished", "spec.nowhere.at.all"],
}
DECLARED = {name: DeclaredKind(Declaration.read(entry)) for name, entry in ENTRIES.items()}
JOBSET, GROUPS, DEPLOYMENT, TRAIN = (DECLARED[name] for name in ("JobSet", "LeaderWorkerSet", "Deployment", "TrainJob"))


def _manifest(kind: str, spec: Manifest) -> Manifest:
    named = {"apiVersion": ENTRIES[kind]["apiVersion"], "kind": kind}
    return named | {"metadata": metadata(), "spec": spec, "status": {}}


def a_replicated_job(
    name: str = "workers", *, replicas: int = 2, parallelism: int = 3, completions: int | None = None
) -> Manifest:
    job = {"parallelism": parallelism, "completions": completions or parallelism, "template": a_template()}
    return {"name": name, "replicas": replicas, "template": {"spec": job}}


def a_jobset(*replicated: Manifest, **spec: Any) -> Manifest:
    jobs = [*(replicated or (a_replicated_job(),))]
    own = {"suspend": True, "managedBy": "kueue.x-k8s.io/multikueue", "replicatedJobs": jobs}
    return _manifest("JobSet", own | spec)


def a_group_set(*, replicas: int = 2, size: int = 4, leader: Manifest | None = None) -> Manifest:
    groups: Manifest = {"size": size, "workerTemplate": a_template(schedulingGates=[GATE])}
    return _manifest(
        "LeaderWorkerSet",
        {"replicas": replicas, "leaderWorkerTemplate": groups | ({"leaderTemplate": leader} if leader else {})},
    )


def a_deployment(**spec: Any) -> Manifest:
    labels = {"app": "demo"}
    template = a_template() | {"metadata": {"labels": labels}}
    own = {"replicas": 3, "paused": True, "selector": {"matchLabels": labels}, "template": template}
    return _manifest("Deployment", own | spec)


def a_train_job(**spec: Any) -> Manifest:
    own: Manifest = {
        "driver": {"template": a_template("2")},
        "template": a_template(),
        "scaling": {"replicas": 3},
        "runPolicy": {
            "suspend": True,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "retries": 1,
            "ttlSecondsAfterFinished": 9,
        },
    }
    return _manifest("TrainJob", own | spec)


LEADER = a_template("2", schedulingGates=[GATE])
JOBS: dict[str, tuple[DeclaredKind, Manifest]] = {
    "JobSet": (JOBSET, a_jobset()),
    "JobSet of two": (JOBSET, a_jobset(a_replicated_job("driver", replicas=1, parallelism=1), a_replicated_job())),
    "groups": (GROUPS, a_group_set()),
    "groups with a leader": (GROUPS, a_group_set(leader=LEADER)),
    "Deployment": (DEPLOYMENT, a_deployment()),
    "TrainJob": (TRAIN, a_train_job()),
}
