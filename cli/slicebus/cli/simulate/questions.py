"""The jobs that a user asks about: of files, or of a few options."""

from collections.abc import Iterable, Iterator
from typing import Any

from slicebus.cli.documents import documents
from slicebus.kube.resources import JOB_RESOURCES
from slicebus.proto.errors import ConfigurationError
from slicebus.slices.api import kueue

Manifest = dict[str, Any]
_IMAGE = "none"
_NAME = "simulated"


def jobs_of(files: Iterable[str], *, namespace: str) -> list[Manifest]:
    """The jobs of YAML or JSON files, `-` for standard input; those without a namespace get this one. Raises
    ConfigurationError for a file without one, for any other object, and for two jobs of one name."""
    jobs = dict[tuple[str, str, str], Manifest]()
    for file in files:
        before = len(jobs)
        for number, document in enumerate(documents(file), start=before + 1):
            job = _job(document, file, namespace, number)
            key = job["kind"], str(job["metadata"]["namespace"]), str(job["metadata"]["name"])
            if key in jobs:
                raise ConfigurationError(f"{file}: there are two jobs {'/'.join(key)}")
            jobs[key] = job
        if len(jobs) == before:
            raise ConfigurationError(f"{file} has no job")
    return list(jobs.values())


def a_job(*, queue: str, pods: int, requests: Iterable[str], priority: str | None, namespace: str) -> Manifest:
    """A Job of so many pods. `requests`: `cpu=4,memory=1Gi`, any number of times. Raises ConfigurationError."""
    labels = {kueue.QUEUE_NAME_LABEL: queue}
    if priority is not None:
        labels[kueue.PRIORITY_CLASS_LABEL] = priority
    resources = {"requests": dict(_pairs(requests)), "limits": _limits(requests)}
    container = {"name": _NAME, "image": _IMAGE, "resources": {name: some for name, some in resources.items() if some}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": _NAME,
            "namespace": namespace,
            "labels": labels,
            "annotations": {kueue.ELASTIC_ANNOTATION: "true"},
        },
        "spec": {
            "parallelism": pods,
            "suspend": False,
            "managedBy": kueue.MANAGED_BY_MULTIKUEUE,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }


def sizes_of(sizes: Iterable[str]) -> dict[str, int]:
    """Pods by pod set, of `workers=64,head=1` any number of times. Raises ConfigurationError."""
    counts = {}
    for name, count in _pairs(sizes):
        if not (count.isascii() and count.isdigit()):
            raise ConfigurationError(f"--size {name}={count}: {count} is no number of pods")
        counts[name] = int(count)
    return counts


def _job(document: Manifest, file: str, namespace: str, number: int) -> Manifest:
    """The job of a document. Where the API server would make its name, its number makes it another one's."""
    kind, version, metadata = document.get("kind"), document.get("apiVersion"), document["metadata"]
    resource = JOB_RESOURCES.get(kind) if isinstance(kind, str) else None
    if resource is None or resource.api_version != version:
        raise ConfigurationError(f"{file}: {version} {kind} is no kind that slicebus runs")
    name = metadata.get("name") or f"{metadata.get('generateName', '')}{_NAME}{f'-{number}' if number > 1 else ''}"
    return {**document, "metadata": {**metadata, "name": name, "namespace": metadata.get("namespace") or namespace}}


def _pairs(texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        for pair in filter(None, text.split(",")):
            name, is_pair, value = pair.partition("=")
            if not (name and is_pair and value):
                raise ConfigurationError(f"{pair} is not NAME=VALUE")
            yield name, value


def _limits(requests: Iterable[str]) -> dict[str, str]:
    """The requests of extended resources: a pod has to have them as limits too."""
    return {name: value for name, value in _pairs(requests) if "/" in name}
