"""`slicebus simulate --at` on exported files."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from slicebus.cli.demo import objects
from slicebus.slices.api import kueue
from unit.cli.hostile import Called, call
from unit.cli.test_past import KUEUE, LIFE, nowhere

__all__ = ["nowhere"]
PLAIN = ("--queue", "batch", "-n", "team-a", "--request", "cpu=1")


def at(second: float, *arguments: str, file: str = LIFE) -> Called:
    return call("simulate", *arguments, "--at", f"2026-01-01T00:00:{second:06.3f}Z", "--from", file)


def test_a_job_that_would_have_run_then() -> None:
    done = at(8, *PLAIN, "--pods", "2")
    assert (done.status, done.err) == (0, "")
    head, *page = done.out.splitlines()
    assert head == "AT 2026-01-01 00:00:08+00:00"
    assert page[0] == "✓ Job/team-a/simulated would run with main=2 on cluster west by ClusterQueue batch"


def test_a_job_that_would_have_waited_then_says_what_would_have_helped() -> None:
    done = at(15.5, *PLAIN, "--pods", "12", "-o", "json")
    assert (done.status, done.err) == (3, "")
    told = json.loads(done.out)
    assert (told["at"], told["job"]) == ("2026-01-01T00:00:15.500000+00:00", "Job/team-a/simulated")
    assert told["verdict"]["outcome"] == "Waits"
    assert "would run with main=9 instead of 12" in at(15.5, *PLAIN, "--pods", "12").out


def test_a_job_of_then_at_another_size() -> None:
    assert "✓ Job/team-a/job-a would run with main=3" in at(8, "job-a", "--size", "main=3").out
    done = at(15.5, "job-a", "--size", "main=30")
    assert done.status == 3
    assert "would run with main=11 instead of 30" in done.out
    assert at(8, "job-b", "--size", "main=3") == (1, "", "there is no job job-b; did you mean Job/team-a/job-a?\n")
    assert at(8, "job-a", "--size", "main=3", "-n", "other").err == "there is no job job-a in namespace other\n"


def test_a_file_with_a_job_that_was_there_then(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}
    metadata = {"name": "job-a", "namespace": "team-a"}
    file.write_text(json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
    done = at(8, "-f", str(file))
    assert done.status == 1
    assert "Job/team-a/job-a exists already" in done.out


@pytest.mark.decisions_fail
@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"template": None}, "AttributeError"),
        ({"completions": [5], "template": {"spec": {"containers": []}}}, "TypeError"),
        (5, "AttributeError"),
    ],
    ids=["no template", "no number", "no spec"],
)
def test_a_file_with_a_job_that_no_api_server_stores_names_it(tmp_path: Path, spec: Any, told: str) -> None:
    file = tmp_path / "job.json"
    labels, annotations = {kueue.QUEUE_NAME_LABEL: "batch"}, {kueue.ELASTIC_ANNOTATION: "true"}
    metadata = {"name": "odd", "namespace": "team-a", "labels": labels, "annotations": annotations}
    if isinstance(spec, dict):
        spec = {"managedBy": kueue.MANAGED_BY_MULTIKUEUE, "parallelism": 2, **spec}
    file.write_text(json.dumps({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}))
    done = at(8, "-f", str(file))
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("slicebus: Job/team-a/odd has a shape that no API server stores: "), done.err
    assert f"raised {told}, " in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            (*PLAIN, "--at", "2026-01-01T00:00:08Z", "--since", "7d"),
            "--at and --since exclude each other: when a job would start is asked of the present",
        ),
        (PLAIN, "--from is for --since and --at: whether a job runs is on the cluster"),
        (
            (*PLAIN, "--at", "2025-12-31T23:00:00Z"),
            "--at 2025-12-31 23:00:00+00:00: is before the first record; the journal has records from "
            "2026-01-01 00:00:01+00:00 to 2026-01-01 00:00:33+00:00",
        ),
    ],
    ids=["since", "neither", "before"],
)
def test_what_cannot_be_asked_is_one_line(arguments: tuple[str, ...], told: str) -> None:
    done = call("simulate", *arguments, "--from", LIFE)
    assert (done.status, done.out, done.err) == (2, "", f"slicebus: {told}\n")


def test_beside_a_kueue_there_is_no_answer() -> None:
    told = "slicebus: a Kueue admitted then: only it knows what it would have decided\n"
    assert at(15, *PLAIN, file=KUEUE) == (2, "", told)


def test_jobs_whose_names_the_api_server_would_make_are_several(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(yaml.safe_dump_all([generated(), generated()]))
    done = at(8, "-f", str(file))
    assert (done.status, done.err) == (0, "")
    named = [line.split()[1] for line in done.out.splitlines() if line.startswith("✓")]
    assert named == ["Job/team-a/sweep-simulated", "Job/team-a/sweep-simulated-2"]


def test_two_jobs_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    """Only one of them can be submitted."""
    file = tmp_path / "jobs.yaml"
    job = generated()
    job["metadata"]["name"] = "sweep"
    file.write_text(yaml.safe_dump(job))
    done = at(8, "-f", str(file), "-f", str(file))
    assert (done.status, done.out) == (2, "")
    assert "there are two jobs Job/team-a/sweep" in done.err


def generated() -> dict[str, Any]:
    job = objects.job("")
    del job["metadata"]["name"]
    job["metadata"]["generateName"] = "sweep-"
    job["metadata"]["labels"][kueue.QUEUE_NAME_LABEL] = "batch"
    return job
