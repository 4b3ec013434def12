"""The dashboards are as they are made, and ask for metrics that exist."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.dashboards.files import FOLDER, written
from unit.test_metrics_page import NAMED, PARTS_OF_HISTOGRAMS, families

BOARDS = {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
each_board = pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Those of its panels that show something."""
    return (panel for panel in board["panels"] if panel["type"] != "row")


def test_the_dashboards_are_up_to_date() -> None:
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == written(), "make dashboards"


@each_board
def test_every_metric_of_a_dashboard_exists(board: dict[str, Any]) -> None:
    asked = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    asked += [variable["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    named = {PARTS_OF_HISTOGRAMS.sub("", name) for text in asked for name in NAMED.findall(text)}
    assert named
    assert named <= set(families())


@each_board
def test_every_panel_says_what_it_shows_and_none_lies_on_another(board: dict[str, Any]) -> None:
    taken = set[tuple[int, int]]()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith(".")
        at = panel["gridPos"]
        area = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert at["x"] + at["w"] <= 24
        assert not area & taken, panel["title"]
        taken |= area


def test_the_dashboards_lead_to_each_other_and_have_names_of_their_own() -> None:
    paths = {f"/d/{board['uid']}" for board in BOARDS.values()}
    assert len(paths) == len(BOARDS) == 2
    for board in BOARDS.values():
        assert {link["url"] for link in board["links"]} == paths - {f"/d/{board['uid']}"}


@pytest.mark.parametrize("family", ["slicebus_leader", "slicebus_oldest_unreconciled_seconds", "slicebus_dead_letters"])
def test_what_tells_first_of_trouble_is_in_the_first_row(family: str) -> None:
    first = itertools.takewhile(lambda panel: panel["type"] != "row", BOARDS["fleet.json"]["panels"][1:])
    assert any(family in target["expr"] for panel in first for target in panel["targets"])
