"""Every benchmark runs. Its figures are not looked at: they need a quiet machine, and many more jobs."""

import re
from pathlib import Path

import msgspec
import pytest
from all import NEEDS, QUICK, SHARED, Result, benchmarks, renewed, with_what_they_need

from support.bench import WITHOUT_SERVERS, figures_of, run
from support.processes import COMMAND_S


def test_small_sizes_are_those_of_benchmarks() -> None:
    assert QUICK.keys() <= set(benchmarks())
    assert set(WITHOUT_SERVERS) <= QUICK.keys()
    assert not SHARED & set(benchmarks())
    assert NEEDS.keys() <= set(benchmarks())


def test_one_without_its_peer_is_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("KUEUE_BINARY", raising=False)
    monkeypatch.setenv("KUEUE_CRDS", "/definitions")
    assert with_what_they_need(["beside_kueue.py", "bus.py"]) == ["bus.py"]
    assert capsys.readouterr().err == "beside_kueue.py is left out: KUEUE_BINARY not set\n"
    monkeypatch.setenv("KUEUE_BINARY", "/kueue")
    assert with_what_they_need(["beside_kueue.py", "bus.py"]) == ["beside_kueue.py", "bus.py"]


@pytest.mark.soak
@pytest.mark.parametrize("name", WITHOUT_SERVERS)
def test_it_measures(name: str, tmp_path: Path) -> None:
    """tests/e2e/test_bench.py runs the others."""
    path = tmp_path / "figures.json"
    shown = run(name, *QUICK[name], "--json", str(path), within_s=COMMAND_S)
    found = figures_of(path)
    assert found
    assert all(figure.name in shown for figure in found)


def test_figures_are_put_together(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    shown = run("all.py", "--quick", "--only", "resync.py", "--json", str(path), within_s=COMMAND_S)
    found = msgspec.json.decode(path.read_bytes(), type=list[Result])
    assert "resync: inventory on the wire of 20 jobs" in shown
    assert {result.name.partition(":")[0] for result in found} == {"resync"}
    assert re.fullmatch(r"\S.*, \d+ cores, [0-9.]+ GB, Python 3\.\S+, (no RabbitMQ|RabbitMQ [0-9.]+)", found[0].machine)
    assert found[0].met is True


def test_benchmarks_that_run_again_renew_their_figures() -> None:
    def result(name: str, value: float) -> Result:
        return Result(name=name, value=value, unit="s", machine="one")

    latest = [result("bus: a", 1), result("fleet: a", 2), result("fleet: b", 3), result("restart: a", 4)]
    again = [result("fleet: a", 20), result("fleet: c", 30)]
    assert renewed(latest, again) == [latest[0], *again, latest[3]]
