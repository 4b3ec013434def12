"""An explanation as a page for the terminal."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slicebus.cli.screen import styled
from slicebus.manager.decide.admission.budgets_left import BudgetLeft
from slicebus.manager.decide.explain import Amount, Explanation, SliceHistoryEntry, WaitingSlice
from slicebus.proto.messages import counts_text


def page(explanation: Explanation) -> RenderableType:
    """The page about one job."""
    parts: list[RenderableType] = [_head(explanation)]
    parts += [styled(f"✗ {problem}", style="red") for problem in explanation.problems]
    for waiting in explanation.waiting:
        parts += [Text(), _waiting(waiting, explanation)]
    parts += [styled(("displaced ", "dim"), each) for each in explanation.displaced]
    if explanation.quota:
        parts += [Text(), _quota(explanation.quota)]
    if explanation.budgets:
        parts += [Text(), _budgets(explanation.budgets)]
    if explanation.history:
        parts += [Text(), _history(explanation.history)]
    return Group(*parts, Text())


def _head(explanation: Explanation) -> Text:
    where = f"on cluster {explanation.cluster}" if explanation.cluster else "on no cluster yet"
    queue = explanation.local_queue or "no queue"
    if explanation.cluster_queue:
        queue += f", of ClusterQueue {explanation.cluster_queue}"
    if explanation.cohort:
        queue += f" in cohort {explanation.cohort}"
    if explanation.fair_sharing != "off":
        queue += f", shared fairly by {explanation.fair_sharing.replace(',', ', then ')}"
    priority = f", priority {explanation.priority}" if explanation.priority is not None else ""
    head = styled((explanation.job, "bold"), f" is {explanation.state}, {where}, queue {queue}{priority}")
    size = styled(
        ("wants ", "dim"),
        counts_text(explanation.wanted),
        (f" ({explanation.wanted_by})", "dim"),
        ("  may run ", "dim"),
        counts_text(explanation.granted),
    )
    return Text("\n").join((head, size))


def _waiting(waiting: WaitingSlice, explanation: Explanation) -> RenderableType:
    lines = [
        styled(
            ("⏳ ", "yellow"),
            (waiting.slice, "bold"),
            f" for {counts_text(waiting.size)} waits since {waiting.since}",
        ),
        styled(f"   {waiting.message}"),
    ]
    if waiting.would_admit:
        lines.append(styled(("   it goes on with ", "dim"), waiting.would_admit))
    if waiting.victims:
        lines.append(styled(("   preempts ", "dim"), ", ".join(waiting.victims)))
    if waiting.position:
        place = f"   {waiting.position} of {waiting.of} that wait in ClusterQueue {explanation.cluster_queue}"
        more = "…" if waiting.position - 1 > len(waiting.ahead) else ""
        ahead = f", after {', '.join(waiting.ahead)}{more}" if waiting.ahead else ""
        lines.append(styled(place + ahead, style="dim"))
    return Group(*lines)


def _quota(quota: tuple[Amount, ...]) -> RenderableType:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("flavor", "resource", "quota", "used", "by this job", "available"):
        table.add_column(column, justify="left" if column in ("flavor", "resource") else "right")
    for amount in quota:
        cells = (amount.flavor, amount.resource, amount.nominal, amount.used, amount.by_this_job, amount.available)
        table.add_row(*map(styled, cells))
    return table


def _budgets(budgets: tuple[BudgetLeft, ...]) -> RenderableType:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("budget of", "resource", "budget", "mode", "spent", "left", "comes back from"):
        table.add_column(column, justify="right" if column in ("spent", "left") else "left")
    for each in budgets:
        spent = f"{each.spent} ({each.share:.0%})"
        cells = (each.of, each.resource, each.budget, each.mode, spent, each.left, each.back_at)
        table.add_row(*map(styled, cells))
    return table


def _history(history: tuple[SliceHistoryEntry, ...]) -> RenderableType:
    parts: list[RenderableType] = []
    for entry in history:
        after = f" replaces {entry.replaces}" if entry.replaces else ""
        parts.append(styled((entry.slice, "bold"), f" {counts_text(entry.size)}", (after, "dim")))
        table = Table(box=None, show_header=False, pad_edge=False)
        for at, text in entry.steps:
            table.add_row(styled(at, style="dim"), styled(text))
        parts.append(Padding(table, (0, 0, 0, 2)))
    return Group(*parts)
