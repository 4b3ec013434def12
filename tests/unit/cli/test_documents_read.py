"""The objects of files that a user names: what no API server takes is one line, before anybody is asked."""

from pathlib import Path

import pytest

from slicebus.cli.documents import documents
from slicebus.proto.errors import ConfigurationError


def read(folder: Path, metadata: str) -> object:
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
    ],
)
def test_what_no_object_has(tmp_path: Path, metadata: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read(tmp_path, metadata)


def test_what_refers_to_itself_ends(tmp_path: Path) -> None:
    twice = "[" + ", ".join(["*{}"] * 9) + "]"
    levels = [f"l{number}: &l{number} {twice.format(*[f'l{number - 1}'] * 9)}" for number in range(1, 12)]
    assert read(tmp_path, f"{{name: a, l0: &l0 x, {', '.join(levels)}}}")


def test_an_object_without_labels(tmp_path: Path) -> None:
    assert read(tmp_path, "{name: a, labels: null}")
