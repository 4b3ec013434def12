"""The objects of files that a user names: what no API server takes is one line, before anybody is asked."""

from pathlib import Path
from typing import Any

import pytest

from slicebus.cli.documents import documents
from slicebus.proto.errors import ConfigurationError


def read(folder: Path, metadata: str) -> list[Any]:
    file = folder / "job.yaml"
    file.write_text(f"apiVersion: batch/v1\nkind: Job\nmetadata: {metadata}\n")
    return list(documents(str(file)))


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ("{name: a, labels: {1: x}}", "has the key 1, which"),
        ("{name: a, labels: {x: 99999999999999999999}}", "has a number of more than 64 bits, which"),
        ("{name: a, labels: {x: !!binary aGk=}}", "has a bytes, which"),
        ("{name: a, labels: {x: !!set {y}}}", "has a set, which"),
        ('{name: "\\ud800"}', "has half of a character, which"),
        ("{name: a, labels: [x]}", "has something that is no Kubernetes object"),
        ("{name: a, annotations: 5}", "has something that is no Kubernetes object"),
        ("{name: 5}", "Job 5: metadata.name is 5, which is no text: quote it$"),
        ("{name: a, namespace: {}}", "Job a: metadata.namespace is no text$"),
        (
            "{name: a, annotations: {slicebus.dev/max-size: 4}}",
            "dev/max-size is 4, which is no text: quote it$",
        ),
        ("{name: a, annotations: {slicebus.dev/min-size: [w=1]}}", "annotations.slicebus.dev/min-size is no text$"),
        ("{name: a, labels: {kueue.x-k8s.io/queue-name: true}}", "queue-name is true, which is no text: quote it$"),
        ("{name: a, labels: {x: !!timestamp 2026-01-31}}", "has a date, which"),
    ],
)
def test_what_no_object_has(tmp_path: Path, metadata: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read(tmp_path, metadata)


def test_what_refers_to_itself_ends(tmp_path: Path) -> None:
    twice = "[" + ", ".join(["*{}"] * 9) + "]"
    levels = [f"l{number}: &l{number} {twice.format(*[f'l{number - 1}'] * 9)}" for number in range(1, 12)]
    assert read(tmp_path, f"{{name: a, l0: &l0 x, {', '.join(levels)}}}")


@pytest.mark.parametrize("metadata", ["{name: a, labels: null}", "{name: a, annotations: {x: null}}", "{name: null}"])
def test_an_object_without_something(tmp_path: Path, metadata: str) -> None:
    assert read(tmp_path, metadata)


def test_a_day_is_its_text(tmp_path: Path) -> None:
    """PyYAML makes a date of it, which JSON has not: kubectl sends the text."""
    [found] = read(tmp_path, "{name: a, labels: {day: 2026-01-31}, creationTimestamp: 2026-01-31T12:00:00Z}")
    assert found["metadata"]["labels"] == {"day": "2026-01-31"}
    assert found["metadata"]["creationTimestamp"] == "2026-01-31T12:00:00Z"
