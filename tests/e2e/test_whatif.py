"""`slicebus whatif` as an operator calls it, on an exported journal: no server is asked."""

import json
from pathlib import Path

import pytest
import yaml

from slicebus.kube.resources import CLUSTERQUEUES
from support.installation import run_cli

REPLAYS = Path(__file__).parents[1] / "replays"
JOURNAL = str(REPLAYS / "eviction.jsonl.gz")
"""A job is preempted by one of a higher priority, and comes back when that one is deleted."""
MORE = "batch.cpu@reserved=+4"


def whatif(*arguments: str, journal: str = JOURNAL) -> tuple[int, str, str]:
    done = run_cli("whatif", "--from", journal, *arguments, env={"KUBECONFIG": "/nowhere"})
    return done.returncode, done.stdout, done.stderr


def test_more_quota_spares_the_job() -> None:
    status, said, _ = whatif("--quota", MORE)
    assert status == 0, said
    assert "✓ the unchanged policy, played, gives 100% of 4 admissions within 5 s, and 100% in their order" in said
    rows = {line.split("   ")[0]: line.split()[-3:] for line in said.splitlines() if "   " in line}
    assert rows["preemptions"] == ["1", "1", "0"]
    assert rows["pods killed"] == ["4", "4", "0"]
    assert "left out: a run takes the time that it took" in said


def test_several_changes_make_a_table() -> None:
    status, said, _ = whatif(
        "--quota", MORE, "--preemption", "batch.withinClusterQueue=Never", "--clusters", "east=-100%", "-o", "json"
    )
    answer = json.loads(said)
    plays = {play["summary"]["name"]: play["summary"] for play in answer["plays"]}
    assert status == 0
    assert [*plays] == [MORE, "east=-100%", "batch.withinClusterQueue=Never", "together"]
    assert [plays[name]["preemptions"] for name in (MORE, "batch.withinClusterQueue=Never")] == [0, 0]
    assert answer["was"]["preemptions"] == answer["unchanged"]["preemptions"] == 1
    assert answer["reproduction"]["close"] == answer["reproduction"]["admissions"] == 4


def test_a_page_with_curves_loads_nothing(tmp_path: Path) -> None:
    file = tmp_path / "whatif.html"
    status, said, errors = whatif("--quota", MORE, "--html", str(file))
    page = file.read_text()
    assert status == 0, errors
    assert "change most" in said
    assert page.count("<polyline") == 3 * page.count("<svg")
    assert "jobs that wait" in page
    assert not any(word in page for word in ("http:", "https:", "<script", "src=", "@import"))


def test_a_page_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    status, _, errors = whatif("--quota", MORE, "--html", str(tmp_path / "none" / "whatif.html"))
    assert (status, errors.count("\n")) == (2, 1)


def test_files_are_played_from_the_start(tmp_path: Path) -> None:
    resources = [{"name": "cpu", "nominalQuota": "20"}, {"name": "memory", "nominalQuota": "64Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "reserved", "resources": resources}]}
    head = {"apiVersion": CLUSTERQUEUES.api_version, "kind": "ClusterQueue", "metadata": {"name": "batch"}}
    file = tmp_path / "queues.yaml"
    file.write_text(yaml.safe_dump({**head, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}}))
    status, said, errors = whatif("--policy", str(file), "-o", "json")
    assert status == 0, errors
    assert json.loads(said)["plays"][0]["summary"]["preemptions"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "say what to change: --quota, --clusters, --preemption or --policy"),
        (("--quota", "batch.cpu=more"), "--quota batch.cpu=more: more is no amount"),
        (("--quota", "other.cpu=8"), "--quota other.cpu=8: the recording has"),
        (("--clusters", "north=-50%"), "--clusters north=-50%: the recording has east, west"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], says: str) -> None:
    status, said, errors = whatif(*arguments)
    assert (status, said) == (2, "")
    assert errors.startswith(f"slicebus: {says}")
    assert errors.count("\n") == 1


def test_beside_a_kueue_there_is_no_answer() -> None:
    status, _, errors = whatif("--quota", MORE, journal=str(REPLAYS / "beside-kueue.jsonl.gz"))
    assert (status, errors.count("\n")) == (2, 1)
    assert "only it knows" in errors
