"""The figures of the benchmarks: ratios, targets, the table, the file and the status."""

from collections import Counter
from pathlib import Path

import pytest
from all import Machine, results
from api_requests import Asked
from api_requests import figures_of as figures_of_rounds
from figures import Figure, Target, report, table

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
    figure, machine = Figure.of("rate", 11, "/s", target=AT_LEAST), Machine("a processor", 2, 8.0, "3.11.2")
    [result] = results("dispatch.py", [figure], machine)
    assert (result.name, result.value, result.target, result.met) == ("dispatch: rate", 11, "at least 10", True)
    assert result.machine == machine


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
