"""examples/ has an index, and every file says what it shows and how to try it."""

import re
from pathlib import Path

import pytest
import yaml

from support.documents import fault
from support.examples import EXAMPLES, commands
from unit.slices.jobs.declared import KINDS_FILE


def test_the_index_names_every_example_once() -> None:
    linked = re.findall(r"\]\((\S+\.yaml)\)", (EXAMPLES / "README.md").read_text())
    assert sorted(linked) == sorted(path.name for path in EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_says_how_to_try_it(path: Path) -> None:
    assert any(f"-f examples/{path.name}" in command for command in commands(path.name))


def test_the_workflow_calls_commands_that_there_are() -> None:
    [job] = yaml.safe_load((EXAMPLES / "workflows" / "queues-diff.yml").read_text())["jobs"].values()
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    calls = [call.split() for line in lines for call in re.findall(r"\bslicebus (diff [^>|]*)", line)]
    assert [fault([word for word in call if not word.startswith("$")]) for call in calls] == [None]


def test_the_declared_kind_is_the_one_that_the_tests_run() -> None:
    [declared] = yaml.safe_load((EXAMPLES / "jobset-kind.yaml").read_text())["declaredJobKinds"]
    assert declared in yaml.safe_load(KINDS_FILE.read_text())
