"""Whatever somebody writes, no decision raises: any manifest, any edit of a running one in any phase, any annotation of
ours, any status, any message, for both roles.

The suite plays some examples of each property. `make soak` plays them for the time in `PROPERTY_MINUTES`, an hour by
default, with other seeds each time.
"""

import itertools
import os
import time
from collections.abc import Callable, Collection
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.paths import with_value
from support.failed_decisions import failed_decisions
from unit.properties.changes import ANNOTATIONS, LABEL_VALUES, edited, texts_like
from unit.properties.world import NAMESPACE, RESOURCES, Cluster, World, started
from unit.slices.jobs import declared
from unit.slices.jobs.manifests import NAMED_OF_A_CLUSTER, a_cluster, a_group, a_job, a_rayjob, a_rayservice

Manifest = dict[str, Any]
MINUTES = float(os.environ.get("PROPERTY_MINUTES", "60"))
_EXAMPLES, _LONG = int(os.environ.get("PROPERTY_EXAMPLES", "40")), 500


def _settings(examples: int) -> settings:
    phases = [Phase.generate, Phase.shrink]
    checks = list(HealthCheck)
    return settings(max_examples=examples, database=None, suppress_health_check=checks, phases=phases)


def _running(job: Manifest) -> Manifest:
    """The job as its user starts it, with pods that name what belongs to their cluster."""
    path = KINDS[job["kind"]].suspend_path
    running: Manifest = _naming_of_a_cluster(with_value(job, path, False) if path is not None else job)
    return running | {"status": {}}


def _naming_of_a_cluster(value: Any) -> Any:
    if isinstance(value, list):
        return [_naming_of_a_cluster(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    return (
        value | NAMED_OF_A_CLUSTER if "containers" in value else {k: _naming_of_a_cluster(v) for k, v in value.items()}
    )


OWN: dict[str, Manifest] = {
    "Job": _running(a_job()),
    "RayCluster": _running(a_cluster(a_group(), a_group("large", numOfHosts=2))),
    "autoscaled": _running(a_cluster(a_group(), enableInTreeAutoscaling=True)),
    "RayJob": _running(a_rayjob()),
    "RayService": _running(a_rayservice()),
}
DECLARED = {name: _running(job) for name, (_, job) in declared.JOBS.items() if job["kind"] in KINDS}
"""Jobs of the kinds that this process has by a declaration: some cannot be suspended."""
MADE = DECLARED or OWN
jobs = st.sampled_from(sorted(MADE)).map(MADE.__getitem__)
phases = st.sampled_from([0, 1, 2, 12])
"""How many rounds a job has had: it is new, waits, was ordered, or runs."""


def test_the_world_runs_every_kind() -> None:
    for name, job in MADE.items():
        world, ref = started(job)
        world.go_on()
        world.look()
        world.beside_kueue()
        copy = world.there.get(KINDS[ref.kind].resource, "demo")
        assert copy is not None, name
        assert any(pod.get("status") for pod in world.there.objects.values() if pod["kind"] == "Pod"), name
        assert world.dead == [], name


def any_manifest(data: st.DataObject) -> World:
    world, _ = started(data.draw(edited(data.draw(jobs))))
    return world


def any_edit_of_a_running_job_in_any_phase(data: st.DataObject) -> World:
    world, _ = started(data.draw(jobs))
    world.go_on(data.draw(phases))
    for _ in range(data.draw(st.integers(1, 2))):
        part = data.draw(st.sampled_from(["spec", "spec", "status"]))
        _edit(world, data, lambda found, part=part: edited(found, under=part))
        world.go_on(data.draw(phases))
    return world


def anything_in_any_annotation_or_label_of_ours(data: st.DataObject) -> World:
    """Also of Workloads, pods, queues and clusters."""
    world, _ = started(data.draw(jobs))
    world.go_on(data.draw(phases))
    for _ in range(data.draw(st.integers(1, 3))):
        kinds, change = (
            data.draw(st.sampled_from([KINDS, RESOURCES])),
            data.draw(st.sampled_from([_annotated, _annotated, _labelled])),
        )
        _edit(world, data, change, kinds)
        world.go_on(data.draw(phases))
    return world


def anything_that_is_said(data: st.DataObject) -> World:
    """Messages with other contents: what is ill-formed is refused when it is read."""
    world, _ = started(data.draw(jobs))
    world.go_on(data.draw(st.sampled_from([2, 12])))
    said = list(world.said)
    for _ in range(data.draw(st.integers(1, 3))):
        message = data.draw(st.sampled_from(said))
        body = data.draw(edited({"body": msgspec.to_builtins(message)}, under="body"))
        world.say_otherwise(message, body.get("body"))
        world.go_on(data.draw(phases))
    return world


PROPERTIES = [
    any_manifest,
    any_edit_of_a_running_job_in_any_phase,
    anything_in_any_annotation_or_label_of_ours,
    anything_that_is_said,
]
each = pytest.mark.parametrize("happens", PROPERTIES, ids=lambda happens: happens.__name__)


def _play(happens: Callable[[st.DataObject], World], *, examples: int, seed: int) -> None:
    @hypothesis.seed(seed)
    @_settings(examples)
    @given(data=st.data())
    def play(data: st.DataObject) -> None:
        with failed_decisions() as failed:
            world = happens(data)
            world.go_on()
            world.look()
            world.beside_kueue()
        assert not failed, failed[0]

    play()


@each
def test_no_decision_raises(happens: Callable[[st.DataObject], World]) -> None:
    _play(happens, examples=_EXAMPLES, seed=0)


@pytest.mark.soak
@pytest.mark.timeout(0)
@each
def test_no_decision_raises_for_an_hour(happens: Callable[[st.DataObject], World]) -> None:
    ends_at = time.monotonic() + MINUTES * 60 / len(PROPERTIES)
    for seed in itertools.count(int(time.time())):
        _play(happens, examples=_LONG, seed=seed)
        if time.monotonic() > ends_at:
            break


def _annotated(manifest: Manifest) -> st.SearchStrategy[Manifest]:
    """Any text in an annotation of ours, or in one that is there."""
    present = manifest["metadata"].get("annotations") or {}

    def with_text(name: str) -> st.SearchStrategy[Manifest]:
        return texts_like(present.get(name)).map(lambda text: _with(manifest, "annotations", {name: text}))

    names = st.sampled_from(sorted(present)) if present else ANNOTATIONS
    return (ANNOTATIONS | names).flatmap(with_text)


def _labelled(manifest: Manifest) -> st.SearchStrategy[Manifest]:
    """Another value in a label of ours, or in one that is there; or that label taken away."""
    present = sorted(manifest["metadata"].get("labels") or {})
    names = ANNOTATIONS | st.sampled_from(present) if present else ANNOTATIONS
    return st.tuples(names, st.none() | LABEL_VALUES).map(lambda label: _with(manifest, "labels", {label[0]: label[1]}))


def _with(manifest: Manifest, part: str, changes: dict[str, str | None]) -> Manifest:
    merged = (manifest["metadata"].get(part) or {}) | changes
    kept = {name: value for name, value in merged.items() if value is not None}
    return manifest | {"metadata": manifest["metadata"] | {part: kept}}


def _edit(
    world: World,
    data: st.DataObject,
    change: Callable[[Manifest], st.SearchStrategy[Manifest]],
    kinds: Collection[str] = KINDS,
) -> None:
    """Somebody edits an object of one of the clusters, by default a job, or deletes it."""
    cluster: Cluster = data.draw(st.sampled_from([world.here, world.there]))
    found = [manifest for manifest in cluster.objects.values() if manifest["kind"] in kinds]
    if not found:
        return
    manifest = data.draw(st.sampled_from(found))
    if data.draw(st.integers(0, 9)) == 0 and manifest["metadata"].get("namespace") == NAMESPACE:
        cluster.delete(RESOURCES[manifest["kind"]], manifest)
    else:
        world.change(cluster, manifest, data.draw(change(manifest)))
