"""Completion, as shells and kubectl ask for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.missing import skip_or_fail
from support.processes import COMMAND_S

PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
CASES = {
    "commands": (["jo"], ["jobs", "journal"]),
    "a command of a group": (["fleet", "r"], ["release", "repin", "revoke"]),
    "an option": (["jobs", "--stat"], ["--state"]),
    "values of an option": (["jobs", "-A", "--state", "Res"], ["Resizing"]),
    "several": (["wait", "sweep", "--for", "r"], ["running", "resized"]),
    "formats": (["queues", "-o", "ya"], ["yaml"]),
    "types of messages": (["journal", "tail", "--type", "workload"], ["workload-spec"]),
    "what nobody knows": (["jobs", "--queue", "x"], []),
}

cases = pytest.mark.parametrize(("words", "expected"), CASES.values(), ids=CASES.keys())


def run(*command: str, **variables: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "PATH": PATH, **variables},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cases
def test_kubectl_completes_it_as_its_own(words: list[str], expected: list[str]) -> None:
    if shutil.which("kubectl") is None:
        skip_or_fail("no kubectl: Debian's package kubernetes-client is not installed")
    *printed, directive = run("kubectl", "__complete", "slicebus", *words).splitlines()
    assert sorted(line.split("\t")[0] for line in printed) == sorted(expected)
    assert directive == ":0", "files, where nothing else fits"


@cases
def test_fish_completes_it_with_the_help_on_the_same_line(words: list[str], expected: list[str]) -> None:
    asked = {
        "_SLICEBUS_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": " ".join(["slicebus", *words]),
    }
    lines = filter(None, run("slicebus", **asked).splitlines())
    assert sorted(line.split("\t")[0] for line in lines) == sorted(expected)


@cases
def test_bash_completes_it(words: list[str], expected: list[str]) -> None:
    if shutil.which("bash") is None:
        skip_or_fail("no bash")
    script = """
        eval "$(slicebus --show-completion)"
        COMP_WORDS=(slicebus "$@"); COMP_CWORD=$#
        _slicebus_completion slicebus
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    completed = run("bash", "--norc", "-c", script, "bash", *words)
    assert sorted(filter(None, completed.splitlines())) == sorted(expected)
