"""Panels and dashboards as values, and Grafana's JSON of them, by its own SDK."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueColorMode, BigValueGraphMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SECONDS, BYTES, PER_SECOND, PER_MINUTE, SHARE, NUMBER = "s", "bytes", "cps", "cpm", "percentunit", "short"
_PROMETHEUS = DataSourceRef(type_val="prometheus", uid="$datasource")
_EVERY = ".*"
_HEIGHT, _SMALL = 8, 4
_GREEN, _AMBER, _RED = "green", "orange", "red"


@dataclass(frozen=True)
class Query:
    """One query of a panel; what its series are called, by their labels. In a table its values are a column."""

    expr: str
    name: str
    unit: str = ""
    """In a table, where it differs from the panel's."""


@dataclass(frozen=True)
class Panel:
    """One figure, or several with one unit."""

    title: str
    queries: tuple[Query, ...]
    text: str
    """What it shows, and what to make of it."""
    unit: str = NUMBER
    width: int = 8
    """Of 24."""
    empty: str = ""
    """What is shown where the queries have no series; empty where they have some in every fleet that works."""


@dataclass(frozen=True)
class Figure(Panel):
    """One number, green to the first of its bounds."""

    bounds: tuple[float, ...] = (1,)
    """From these on it is red; with two it is amber from the first on."""
    good_above: bool = False
    """Whether it is red below its bound instead."""


class Curves(Panel):
    """Values over time."""


class Table(Panel):
    """A row for each set of labels, a column for each query."""


@dataclass(frozen=True)
class Variable:
    """Values of a label that the user selects among."""

    name: str
    label: str
    query: str


@dataclass(frozen=True)
class Board:
    """A dashboard: its rows of panels by their titles."""

    uid: str
    title: str
    text: str
    variables: tuple[Variable, ...]
    rows: dict[str, tuple[Panel, ...]]


def figures(*panels: tuple[str, str, str, dict[str, Any]]) -> tuple[Panel, ...]:
    """Figures by title, query, text and what else they have."""
    return tuple(
        Figure(title=title, queries=(Query(expr, ""),), text=text, **({"width": 4} | more))
        for title, expr, text, more in panels
    )


def curves(
    title: str, text: str, *queries: tuple[str, str], unit: str = NUMBER, width: int = 8, empty: str = ""
) -> Panel:
    """Curves by title, text and queries."""
    return Curves(title, tuple(Query(*query) for query in queries), text, unit, width, empty)


def to_json(board: Board, others: Iterable[Board]) -> str:
    """The dashboard as Grafana imports it, with links to the others."""
    built = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.text)
        .tags(["slicebus"])
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("30s")
        .timezone("browser")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for variable in board.variables:
        built.with_variable(_variable(variable))
    for other in others:
        link = dashboard.DashboardLink(other.title).type(DashboardLinkType.LINK).url(f"/d/{other.uid}")
        built.link(link.keep_time(True).icon("dashboard"))
    numbers = count(1)
    for title, panels in board.rows.items():
        built.with_row(dashboard.Row(title).id(next(numbers)))
        for panel in panels:
            built.with_panel(_built(panel, next(numbers)))
    return json.dumps(built.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    every = VariableOption(selected=True, text="All", value="$__all")
    built = dashboard.QueryVariable(variable.name).label(variable.label).query(variable.query).datasource(_PROMETHEUS)
    return (
        built.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(_EVERY)
        .current(every)
    )


def _built(panel: Panel, number: int) -> Any:
    match panel:
        case Figure():
            built = _figure(panel)
        case Table():
            built = _table(panel)
        case _:
            built = timeseries.Panel().min(0).fill_opacity(8).height(_HEIGHT)
    queries = map(_query, panel.queries, _letters(panel.queries))
    for query in queries:
        built.with_target(_asked(query, panel))
    if panel.empty:
        built.no_value(panel.empty)
    built.id(number).title(panel.title).description(panel.text).datasource(_PROMETHEUS)
    return built.unit(panel.unit).span(panel.width)


def _figure(panel: Figure) -> stat.Panel:
    if panel.good_above:
        steps = [Threshold(None, _RED), Threshold(panel.bounds[0], _GREEN)]
    else:
        colours = (_AMBER, _RED) if len(panel.bounds) > 1 else (_RED,)
        steps = [Threshold(None, _GREEN), *map(Threshold, panel.bounds, colours)]
    bounds = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    built = stat.Panel().thresholds(bounds).color_mode(BigValueColorMode.BACKGROUND).height(_SMALL)
    return built.graph_mode(BigValueGraphMode.NONE).reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))


def _table(panel: Table) -> table.Panel:
    """The values of all queries beside each other, by the labels that they share."""
    built = table.Panel().height(_HEIGHT).with_transformation(DataTransformerConfig(id_val="merge", options={}))
    alone = len(panel.queries) == 1
    names = {
        "Value" if alone else f"Value #{letter}": query.name
        for letter, query in zip(_letters(panel.queries), panel.queries, strict=True)
    }
    hidden = {"Time": True} | {value: True for value, name in names.items() if not name}
    options = {"excludeByName": hidden, "renameByName": {value: name for value, name in names.items() if name}}
    built.with_transformation(DataTransformerConfig(id_val="organize", options=options))
    for query in panel.queries:
        if query.unit:
            built.override_by_name(query.name, [DynamicConfigValue("unit", query.unit)])
    return built


def _asked(query: prometheus.Dataquery, panel: Panel) -> prometheus.Dataquery:
    """A figure is that of now: over a time it would be the last one that was known."""
    match panel:
        case Table():
            return query.instant().format(PromQueryFormat.TABLE)
        case Figure():
            return query.instant()
        case _:
            return query.range()


def _query(query: Query, letter: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query.expr).legend_format(query.name).ref_id(letter).datasource(_PROMETHEUS)


def _letters(queries: Sequence[Query]) -> str:
    return "ABCDEFGHIJ"[: len(queries)]
