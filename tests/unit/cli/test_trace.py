"""`slicebus trace` on an exported file."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from slicebus.cli.main import app

LIFE = str(Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["trace", *arguments, "--from", LIFE])


@pytest.mark.parametrize("job", ["job-a", "team-a/job-a", "Job/team-a/job-a"])
def test_a_trace_has_every_change_with_its_hops(job: str) -> None:
    done = call(job)
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    [head] = [number for number, line in enumerate(lines) if line.startswith("resize main 1 -> 3  Job/team-a/job-a on")]
    assert " done after " in lines[head]
    assert lines[head + 1].split(maxsplit=3)[2:] == ["·", "east                  records the request for main=3"]
    assert any("↓ manager workload-spec job-job-a-" in line for line in lines)
    assert any("insufficient quota for cpu" in line for line in lines)
    assert not [line for line in lines if line != line.rstrip()]


def test_a_namespace_narrows_a_name_down() -> None:
    assert call("job-a", "-n", "team-a").stdout == call("team-a/job-a").stdout
    assert call("job-a", "-n", "team-a").exit_code == 0
    assert call("job-a", "-n", "elsewhere").exit_code == 1
    assert str(call("other/job-a", "-n", "team-a").exception) == "other/job-a is in namespace other, not in team-a"


def test_another_cluster_has_no_trace_of_it() -> None:
    done = call("job-a", "--cluster", "west")
    assert (done.exit_code, done.output) == (0, "nothing about job-a is recorded on west\n")


def test_an_unknown_job_is_answered_with_similar_names() -> None:
    done = call("jobb-a")
    assert done.exit_code == 1
    assert done.output == "slicebus: nothing is recorded about a job jobb-a; did you mean Job/team-a/job-a?\n"
    assert "did you mean" not in call("quite-another").output
    before = call("job-a", "--until", "2020-01-01T00:00:00Z")
    assert before.exit_code == 1


def test_the_page_is_self_contained(tmp_path: Path) -> None:
    file = tmp_path / "trace.html"
    done = call("job-a", "--html", str(file))
    assert done.exit_code == 0, done.output
    html = file.read_text(encoding="utf-8")
    assert "Trace of job-a" in html
    assert "ungates 2 pods" in html
    assert not [word for word in ("http://", "https://", "src=", "<link") if word in html]


def test_a_page_that_cannot_be_written_is_an_error() -> None:
    done = call("job-a", "--html", "/nowhere/trace.html")
    assert "No such file" in str(done.exception)
