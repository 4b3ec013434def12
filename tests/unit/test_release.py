"""What publishes a release: the workflow passes its linters, and the scripts that it runs do what they say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).parents[2]
WORKFLOWS = TOP / ".github" / "workflows"
BIN = Path(sys.executable).parent
VERSION = re.search(r'^version = "(.+)"$', (TOP / "pyproject.toml").read_text(), re.MULTILINE)[1]  # type: ignore[index]
USES = re.compile(r"^\S+@[0-9a-f]{40}$")
SECRETS = re.compile(r"\$\{\{[^}]*\bsecrets\.(\w+)")


def workflows() -> list[Path]:
    return sorted(WORKFLOWS.glob("*.yml"))


def test_a_workflow_is_one() -> None:
    """By GitHub's schema, of which check-jsonschema has a copy."""
    command = [BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_workflow_has_no_known_weakness() -> None:
    """Rights that are too wide, actions by tags, texts of others in scripts: what zizmor finds without a network."""
    command = [BIN / "zizmor", "--offline", "--no-progress", "--persona=pedantic", "--color=never", *workflows()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", workflows(), ids=lambda path: path.name)
def test_a_workflow_takes_actions_by_hash_and_gives_each_job_its_rights(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {}
    assert set(SECRETS.findall(path.read_text())) <= {"GITHUB_TOKEN"}
    for name, job in workflow["jobs"].items():
        assert job["permissions"], name
        assert job["timeout-minutes"], name
        assert all(USES.match(step["uses"]) for step in job["steps"] if "uses" in step), name


def checkout(tmp_path: Path) -> Path:
    """The files that have the version, and the script."""
    names = ("pyproject.toml", "CHANGELOG.md", ".ci/version", "charts/slicebus-manager/Chart.yaml")
    for name in (*names, "charts/slicebus-agent/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / name, tmp_path / name)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(changelog.read_text() + f"\n## [{VERSION}] - 2026-12-01\n")
    return tmp_path


def version_of(tag: str, top: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([top / ".ci" / "version", tag], capture_output=True, text=True, timeout=60, check=False)


def test_a_tag_has_the_version_of_the_files(tmp_path: Path) -> None:
    done = version_of(f"v{VERSION}", checkout(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


@pytest.mark.parametrize(
    ("file", "old", "told"),
    [
        ("pyproject.toml", f'version = "{VERSION}"', "pyproject.toml has another version than"),
        ("charts/slicebus-agent/Chart.yaml", f"appVersion: {VERSION}", "Chart.yaml has another appVersion than"),
        ("CHANGELOG.md", f"## [{VERSION}]", "CHANGELOG.md has no section"),
    ],
)
def test_a_file_with_another_version_is_named(file: str, old: str, told: str, tmp_path: Path) -> None:
    spoiled = checkout(tmp_path) / file
    spoiled.write_text(spoiled.read_text().replace(old, old.replace(VERSION, "9.9.9")))
    done = version_of(f"v{VERSION}", tmp_path)
    assert done.returncode == 1
    assert told in done.stderr
