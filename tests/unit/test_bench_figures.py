"""The figures of the benchmarks: ratios, targets, the table, the file and the status."""

import platform
import sys
from collections import Counter
from pathlib import Path

import all as of_all
import pytest
from all import SHARED, Result, benchmarks, machine_of, results, run
from api_requests import Asked
from api_requests import figures_of as figures_of_rounds
from figures import Figure, Target, report, table
from msgspec import json, to_builtins

from support.bench import figures_of

AT_MOST, AT_LEAST = Target(10), Target(10, is_least=True)
OF_RATIO = Target(0.5, is_least=True, of_ratio=True)


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (AT_MOST, 10, True),
        (AT_MOST, 10.1, False),
        (AT_LEAST, 10, True),
        (AT_LEAST, 9.9, False),
        (OF_RATIO, 20, True),
        (OF_RATIO, 19, False),
        (None, 1, None),
    ],
    ids=str,
)
def test_a_target_is_met_or_not(target: Target | None, value: float, met: bool | None) -> None:
    figure = Figure.of("rate", value, "/s", beside="peer", beside_value=40, target=target)
    assert figure.met is met
    assert figure.ratio == value / 40


def test_a_target_of_a_ratio_needs_something_beside() -> None:
    assert Figure.of("rate", 20, "/s", target=OF_RATIO).met is None


@pytest.mark.parametrize(
    ("target", "words"),
    [(AT_MOST, "at most 10"), (AT_LEAST, "at least 10"), (OF_RATIO, "ratio at least 0.5")],
    ids=str,
)
def test_a_target_is_told_in_words(target: Target, words: str) -> None:
    assert str(target) == words


def test_the_table_has_a_line_for_each_figure() -> None:
    found = [
        Figure.of("dispatch", 12_345, "/s", beside="bare client", beside_value=20_000, target=OF_RATIO),
        Figure.of("memory", 61.23, "MB", target=AT_MOST),
        Figure.of("large", 7, "s"),
    ]
    assert table(found) == [
        "figure    value      beside              ratio  target",
        "dispatch  12,345 /s  20,000 bare client  0.62   ratio at least 0.5  met",
        "memory    61.2 MB                               at most 10          missed",
        "large     7 s",
    ]


def test_the_status_says_whether_a_target_is_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "figures.json"
    met, missed = Figure.of("rate", 11, "/s", target=AT_LEAST), Figure.of("memory", 11, "MB", target=AT_MOST)
    assert report([met], json=None) == 0
    assert report([met, missed], json=path) == 1
    assert figures_of(path) == [met, missed]
    assert capsys.readouterr().err == "missed: memory\n"


def test_the_figures_of_all_have_names_of_their_own_and_the_machine() -> None:
    figure = Figure.of("rate", 11, "/s", target=AT_LEAST)
    [result] = results("dispatch.py", [figure], "a processor")
    assert (result.name, result.value, result.target, result.met) == ("dispatch: rate", 11, "at least 10", True)
    assert result.machine == "a processor"
    assert list(to_builtins(result)) == [
        "name",
        "value",
        "unit",
        "beside",
        "beside_value",
        "ratio",
        "target",
        "met",
        "machine",
    ]


def test_a_machine_is_told_in_words() -> None:
    cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.20GHz\nprocessor\t: 1\nmodel name\t: Some CPU @ 2.20GHz\n"
    told = machine_of(cpuinfo, cores=2, memory_bytes=8_340_000_000)
    assert told == f"Some CPU @ 2.20GHz, 2 cores, 8.3 GB, Python {platform.python_version()}"
    of_architecture = machine_of("processor\t: 0\n", cores=1, memory_bytes=10**9)
    assert of_architecture.startswith(f"{platform.machine()}, 1 cores")


def test_every_script_is_a_benchmark_but_for_shared_modules(tmp_path: Path) -> None:
    for name in (*SHARED, "restart.py", "bus.py", "README.md"):
        (tmp_path / name).touch()
    assert benchmarks(tmp_path) == ["bus.py", "restart.py"]


WRITES = "import pathlib, sys\npathlib.Path(sys.argv[-1]).write_text({!r})\n"
FIGURES = '[{"name": "rate", "value": 1, "unit": "/s"}]'


@pytest.mark.parametrize(
    ("script", "count", "told"),
    [
        (WRITES.format(FIGURES), 1, ""),
        (WRITES.format(FIGURES) + "sys.exit(1)", 1, ""),
        (WRITES.format(FIGURES) + "sys.exit(2)", 0, "bus.py has no figures, status 2: "),
        (WRITES.format("[]"), 0, "bus.py has no figures, status 0: "),
        ("import sys\nsys.exit('no server')", 0, "bus.py has no figures, status 1: no server\n"),
    ],
    ids=["measures", "misses a target", "another status", "empty", "no file"],
)
def test_a_benchmark_that_cannot_run_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: str, count: int, told: str
) -> None:
    path = tmp_path / "bus.py"
    path.write_text(script)
    assert len(run(path)) == count
    assert capsys.readouterr().err.strip() == told.strip()


@pytest.mark.parametrize(
    ("options", "is_written"),
    [((), True), (("--quick",), False), (("--only", "bus.py", "dispatch.py"), False)],
    ids=str,
)
def test_the_others_go_on_where_one_cannot_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    is_written: bool,
) -> None:
    path, page = tmp_path / "results" / "latest.json", tmp_path / "benchmarks.md"
    for name, script in {"bus.py": "raise OSError", "dispatch.py": WRITES, "fleet.py": WRITES}.items():
        (tmp_path / name).write_text(script.format(FIGURES))
    monkeypatch.setattr(of_all, "benchmarks", lambda: benchmarks(tmp_path))
    for name, place in {"BENCH": tmp_path, "RESULTS": path, "PAGE": page}.items():
        monkeypatch.setattr(of_all, name, place)
    monkeypatch.setattr(sys, "argv", ["all.py", *options])
    assert of_all.main() == 1
    said = capsys.readouterr()
    assert "dispatch: rate" in said.out
    assert "OSError" in said.err
    assert (path.exists(), page.exists()) == (is_written, is_written)
    if is_written:
        assert [found.name for found in json.decode(path.read_bytes(), type=list[Result])] == [
            "dispatch: rate",
            "fleet: rate",
        ]


EVENT, SLICE = ("create", "events", "", "201"), ("patch", "workloads", "status", "200")
QUEUE, CONFLICT = ("patch", "localqueues", "status", "200"), ("patch", "clusterqueues", "status", "409")


def test_requests_for_the_statuses_of_queues_are_in_no_target() -> None:
    manager, agent = Counter({EVENT: 3, SLICE: 6, QUEUE: 2, CONFLICT: 1}), Counter({SLICE: 1})
    calm = {"dispatch": Asked({"manager": manager - Counter({CONFLICT: 1}), "east": agent}, others=5)}
    first, *rest = figures_of_rounds([calm, {"dispatch": Asked({"manager": manager, "east": agent}, others=5)}, calm])
    assert (first.name, first.value, first.beside_value, first.met) == ("dispatch: requests", 10, 5, True)
    assert {figure.name.partition(": ")[2]: figure.value for figure in rest} == {
        "requests of the manager": 9,
        "requests of the agent": 1,
        "Events of both": 3,
        "requests for the statuses of queues": 2,
        "conflicts of both": 1,
    }
    assert rest[-1].met is False, "the conflict of one round counts"
