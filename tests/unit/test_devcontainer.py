""".devcontainer: it is well-formed, runs targets of the Makefile, and has the Python and the Go that these need."""

import json
import re
import tomllib
from pathlib import Path

TOP = Path(__file__).parents[2]
FOLDER = TOP / ".devcontainer"
CONFIG = json.loads((FOLDER / "devcontainer.json").read_text())
DOCKERFILE = (FOLDER / CONFIG["build"]["dockerfile"]).read_text()


def version_of(image: str) -> tuple[int, ...]:
    """The version of a base image."""
    [version] = re.findall(rf"^FROM {image}:([\d.]+)", DOCKERFILE, re.MULTILINE)
    return numbers(version)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def test_it_runs_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
    commands = [value.split() for key, value in CONFIG.items() if key.endswith("Command")]
    assert commands
    for program, *names in commands:
        assert program == "make"
        assert names
        assert {*names} <= {*targets}


def test_its_python_is_the_oldest_that_is_supported() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    assert version_of("python") == numbers(project["requires-python"].removeprefix(">="))


def test_its_go_builds_the_servers() -> None:
    modules = sorted((TOP / "tests" / "tools").glob("*/go.mod"))
    needed = [numbers(re.findall(r"^go ([\d.]+)$", path.read_text(), re.MULTILINE)[0]) for path in modules]
    assert version_of("golang") >= max(needed)
