"""`slicebus jobs --at` and `queues --at` on exported files."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from unit.cli.hostile import Called, call

REPLAYS = Path(__file__).parents[2] / "replays"
LIFE = str(REPLAYS / "life-of-a-job.jsonl.gz")
KUEUE = str(REPLAYS / "beside-kueue.jsonl.gz")
SPAN = "the journal has records from 2026-01-01 00:00:01+00:00 to 2026-01-01 00:00:33+00:00"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine in UTC with neither a kubeconfig nor a broker."""
    for name, value in {"TZ": "UTC", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    for name in ("KUBECONFIG", "AMQP_URL", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(second: float, *command: str, file: str = LIFE) -> Called:
    return call(*command, "--at", f"2026-01-01T00:00:{second:06.3f}Z", "--from", file)


def test_a_table_says_which_moment_it_shows_and_has_the_ages_of_then() -> None:
    done = at(15.5, "jobs")
    assert (done.status, done.err) == (0, "")
    head, titles, job = (line.split() for line in done.out.splitlines())
    assert head == ["AT", "2026-01-01", "00:00:15+00:00"]
    assert titles[:4] == ["NAMESPACE", "NAME", "KIND", "STATE"]
    assert job[:9] == ["team-a", "job-a", "Job", "Resizing", "batch", "east", "20", "3", "3"]
    assert (job[9], " ".join(job[10:14])) == ("11s", "Pending: couldn't assign flavors")


@pytest.mark.parametrize(
    ("second", "expected"),
    [(1.0, []), (8.0, ["Running", "1"]), (15.5, ["Resizing", "20"]), (25.0, ["Deleting", "0"]), (33.0, [])],
)
def test_a_life(second: float, expected: list[str]) -> None:
    items = json.loads(at(second, "jobs", "-o", "json").out)["items"]
    assert [word for job in items for word in (job["state"], str(sum(job["wanted"].values())))] == expected


def test_every_format_and_filter_is_that_of_the_present() -> None:
    document = json.loads(at(8, "jobs", "-o", "json").out)
    assert list(document) == ["at", "items"]
    assert document["at"] == "2026-01-01T00:00:08+00:00"
    assert yaml.safe_load(at(8, "jobs", "-o", "yaml").out) == document
    assert at(8, "jobs", "-o", "name").out == "job.batch/job-a\n"
    assert at(8, "jobs", "--no-headers").out.split()[:2] == ["team-a", "job-a"]
    assert at(8, "jobs", "-n", "team-a", "--no-headers").out.split()[:2] == ["job-a", "Job"]
    assert "CLUSTERQUEUE" in at(8, "jobs", "-o", "wide").out
    assert at(8, "jobs", "--state", "pending") == (0, "AT 2026-01-01 00:00:08+00:00\n", "no jobs\n")
    assert "did you mean batch?" in at(8, "jobs", "--queue", "bach").err


def test_queues_of_then() -> None:
    head, titles, cpu, *_ = (line.split() for line in at(15.5, "queues").out.splitlines())
    assert (head[0], titles[0]) == ("AT", "CLUSTERQUEUE")
    assert cpu[:7] == ["batch", "team", "reserved", "cpu", "6", "3", "0"]
    assert cpu[-3:] == ["1", "1", "-"]
    [batch, *_] = json.loads(at(15.5, "queues", "-n", "team-a", "-o", "json").out)["items"]
    assert (batch["name"], batch["pending"], batch["admitted"]) == ("batch", 1, 1)
    assert at(8, "queues", "-A", "--no-headers").out.split()[:3] == ["team-a", "batch", "batch"]
    assert at(8, "queues", "-n", "team-b") == (0, "AT 2026-01-01 00:00:08+00:00\n", "no LocalQueues\n")


def test_beside_a_kueue_there_are_jobs_and_no_queues() -> None:
    [job] = json.loads(at(15, "jobs", "-o", "json", file=KUEUE).out)["items"]
    assert job["kind"] == "Job"
    done = at(15, "queues", file=KUEUE)
    told = "slicebus: a Kueue admits here: the manager's journal does not have its queues\n"
    assert (done.status, done.out, done.err) == (2, "", told)


def test_a_cluster_is_not_asked_and_its_context_names_the_namespace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    clusters = [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}]
    contexts = [{"name": name, "context": {"cluster": "a", "namespace": name}} for name in ("team-a", "team-b")]
    config.write_text(yaml.safe_dump({"clusters": clusters, "contexts": contexts, "current-context": "team-b"}))
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert at(8, "jobs").err == "no jobs in namespace team-b; -A for all\n"
    assert at(8, "jobs", "--context", "team-a", "-o", "name").out == "job.batch/job-a\n"
    assert at(8, "jobs", "-A", "-o", "name").out == "job.batch/job-a\n"
    assert "there is no 'team-c' among its contexts" in at(8, "jobs", "--context", "team-c").err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("jobs", "--at", "2025-12-31T23:00:00Z"),
            f"--at 2025-12-31 23:00:00+00:00: is before the first record; {SPAN}",
        ),
        (
            ("queues", "--at", "2026-01-01T00:01:00Z"),
            f"--at 2026-01-01 00:01:00+00:00: is after the last record; {SPAN}",
        ),
        (("jobs", "--at", "2126-01-01T00:01:00Z"), f"--at 2126-01-01 00:01:00+00:00: is after the last record; {SPAN}"),
        (("jobs", "--at", "2026-01-01T00:00:08Z", "-w"), "--at and --watch exclude each other"),
        (
            ("queues", "--at", "noon"),
            "--at noon: use 03:00, -15m, or a date with its zone such as 2026-01-31T03:00:00Z",
        ),
        (("jobs",), "--from is for --at: the present is on the cluster"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_asked_is_one_line(arguments: tuple[str, ...], told: str) -> None:
    done = call(*arguments, "--from", LIFE)
    assert (done.status, done.out, done.err) == (2, "", f"slicebus: {told}\n")


def test_options_of_queues_come_after_stop() -> None:
    assert "options come after stop" in call("queues", "--at", "03:00", "stop", "batch").err


def test_without_a_broker_or_a_file_it_says_so() -> None:
    done = call("jobs", "--at", "00:00")
    assert (done.status, done.err) == (2, "slicebus: AMQP_URL is not set: name the broker, or an exported file\n")


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def garbled(content: bytes) -> bytes:
    return content[:100] + bytes(200) + content[300:]


@pytest.mark.parametrize("harmed", [cut, garbled])
def test_a_compressed_file_that_cannot_be_unpacked_is_one_line(
    harmed: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    file = tmp_path / "harmed.jsonl.gz"
    file.write_bytes(harmed(Path(LIFE).read_bytes()))
    done = at(8, "jobs", file=str(file))
    assert done.status == 2
    assert done.err.startswith(f"slicebus: {file}: it is cut, or not as gzip wrote it: ")
    assert done.err.count("\n") == 1


def without(tmp_path: Path, *left_out: int) -> str:
    """The file without some of its lines."""
    lines = gzip.decompress(Path(LIFE).read_bytes()).splitlines(keepends=True)
    file = tmp_path / "cut.jsonl"
    file.write_bytes(b"".join(line for number, line in enumerate(lines) if number not in left_out))
    return str(file)


def is_managers(line: bytes) -> bool:
    return b'"role":"manager"' in line


def test_a_moment_whose_state_is_not_recorded(tmp_path: Path) -> None:
    lines = gzip.decompress(Path(LIFE).read_bytes()).splitlines()
    managers = [number for number, line in enumerate(lines) if is_managers(line)]
    done = at(8, "jobs", file=without(tmp_path, managers[0]))
    assert done.status == 2
    assert "the state of that moment is not recorded; the journal has records from " in done.err


@pytest.fixture
def quiet(tmp_path: Path) -> str:
    """A file whose manager records nothing after nine seconds. Somebody else does an hour later."""
    lines = [json.loads(line) for line in gzip.decompress(Path(LIFE).read_bytes()).splitlines()]
    late = next(line for line in lines if line["type"] != "decisions")
    headers = late["headers"] | {"cloudEvents_time": "2026-01-01T01:00:00Z"}
    early = [line for line in lines if line["recorded"] < "2026-01-01T00:00:09"]
    file = tmp_path / "quiet.jsonl"
    kept = [*early, late | {"recorded": "2026-01-01T01:00:00Z", "headers": headers}]
    file.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return str(file)


def test_a_manager_that_has_recorded_nothing_for_long_is_told_first(quiet: str) -> None:
    done = call("queues", "--at", "2026-01-01T00:59:00Z", "--from", quiet)
    assert done.status == 1
    assert "✗ no manager recorded anything from 2026-01-01 00:00:0" in done.err
    assert done.err.endswith(" on: this is what it knew then\n")
    assert done.out.startswith("AT 2026-01-01 00:59:00+00:00\nCLUSTERQUEUE")


def test_what_pods_did_while_no_manager_recorded_is_unknown(quiet: str) -> None:
    done = call("jobs", "-A", "--at", "2026-01-01T00:59:00Z", "--from", quiet)
    assert (done.status, " Unknown " in done.out) == (1, True)
    assert "NoManager: no manager recorded anything from 2026-01-01 00:00:0" in done.out
