"""Every shell block of the documents is run by a test or says why not, and every call of `slicebus` can be made."""

import re
import subprocess
from pathlib import Path

import pytest

from support.documents import TOP, blocks, calls, fault, to_run

RUN_BY = {
    "docs/commands.md": "tests/e2e/test_documents.py",
    "docs/getting-started.md": "tests/e2e/test_documents.py",
    "docs/moving-from-multikueue.md": "tests/e2e/test_moving.py",
    "docs/operations.md": "tests/e2e/test_documents.py",
    "docs/ray.md": "tests/e2e/test_documents.py",
    "docs/schedulers.md": "tests/e2e/test_documents.py",
    "docs/uninstall.md": "tests/e2e/test_uninstall.py",
    "examples/README.md": "tests/e2e/test_documents.py",
}
"""The test that runs the blocks of a page that are not marked."""
NO_CALLS = {"slicebus leaves": "a condition's message"}
"""Words in prose that call nothing, and what they are."""


def documents() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=TOP, capture_output=True, text=True, check=False)
    if listed.returncode:
        return [TOP / "README.md", *sorted((TOP / "docs").rglob("*.md"))]
    return [TOP / name for name in listed.stdout.split() if (TOP / name).is_file()]


def name_of(page: Path) -> str:
    return page.relative_to(TOP).as_posix()


def test_the_documents_have_blocks_of_both_kinds() -> None:
    found = [block for page in documents() for block in blocks(page)]
    assert {block.reason is None for block in found} == {True, False}


def test_a_page_with_a_block_to_run_has_a_test_that_runs_them_all() -> None:
    assert {name_of(page) for page in documents() if to_run(page)} == {*RUN_BY}
    for page, test in RUN_BY.items():
        text = (TOP / test).read_text()
        assert "to_run(" in text, test
        assert Path(page).name in text, (page, test)


@pytest.mark.parametrize("page", documents(), ids=name_of)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    reasons = [block.reason for block in blocks(page) if block.reason is not None]
    marks = re.findall(r"^ *<!-- not run:", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(marks) == len(reasons), "a mark stands right before its block"
    for reason in reasons:
        assert reason.strip()
        assert all((TOP / path).exists() for path in re.findall(r"\btests/[\w/]+(?:\.py)?", reason)), reason


@pytest.mark.parametrize("page", documents(), ids=name_of)
def test_the_commands_of_a_page_have_these_options(page: Path) -> None:
    faults = {f"slicebus {' '.join(call)}": told for call in calls(page) if (told := fault(call))}
    assert not {call for call in faults if not call.startswith(tuple(NO_CALLS))}


def test_a_call_that_cannot_be_made_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Use `slicebus jobs --al`.\n\n1. Run\n\n"
        "   ```sh\n   kubectl get x; .venv/bin/slicebus fleet lst  # list\n   ```\n"
        "\n<!-- not run: nobody can -->\n```sh\nslicebus queues stop batch \\\n  --drain\n```\n"
    )
    assert [fault(call) for call in calls(page)] == ["no command lst", None, "no option --al"]
    assert to_run(page) == ["kubectl get x; .venv/bin/slicebus fleet lst  # list\n"]
    assert [(block.line, block.reason) for block in blocks(page)] == [(5, None), (10, "nobody can")]
