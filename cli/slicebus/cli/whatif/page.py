"""An answer for the terminal: what was, what the unchanged policy gives, and what each change would have given."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from slicebus.cli.cluster.listing import aligned
from slicebus.cli.durations import age_text
from slicebus.cli.screen import styled
from slicebus.manager.decide.whatif.answer import CLOSE_S, JobChange, Reproduction, Summary, WhatIf


def page(answer: WhatIf) -> RenderableType:
    """The page of an answer."""
    return Group(*_lines(answer))


def rows_of(summaries: Sequence[Summary]) -> list[list[str]]:
    """A row for each figure, and a column for each summary. The first row has their names."""
    rows = [["", *(each.name for each in summaries)]]
    queues = sorted({waits.queue for each in summaries for waits in each.waits})
    for queue in queues:
        found = [{waits.queue: waits for waits in each.waits}.get(queue) for each in summaries]
        rows.append([f"{queue or 'no queue'}: started", *(f"{w.started} of {w.jobs}" if w else "-" for w in found)])
        for name in ("p50", "p90", "p99"):
            waits = (_span(getattr(each, f"{name}_s")) if each else "-" for each in found)
            rows.append([f"{queue or 'no queue'}: wait {name}", *waits])
    rows.append(["preemptions", *(str(each.preemptions) for each in summaries)])
    rows.append(["pods killed", *(str(each.pods_killed) for each in summaries)])
    keys = sorted({(use.flavor, use.resource) for each in summaries for use in each.flavors})
    for flavor, resource in keys:
        uses = [{(use.flavor, use.resource): use for use in each.flavors}.get((flavor, resource)) for each in summaries]
        if any(use is not None and use.used_hours for use in uses):
            rows.append([f"{flavor}: {resource} used", *(f"{use.share:.0%}" if use else "-" for use in uses)])
    if any(use.is_gpu for each in summaries for use in each.flavors):
        rows.append(["GPU-hours idle", *(f"{each.gpu_hours_idle:g}" for each in summaries)])
    return rows


def _lines(answer: WhatIf) -> Iterator[Text]:
    yield styled(f"{answer.jobs} jobs from {answer.since} to {answer.until}")
    yield from _trust(answer.reproduction)
    yield Text()
    lines, _ = aligned(rows_of([answer.was, answer.unchanged, *(play.summary for play in answer.plays)]))
    for number, line in enumerate(lines):
        yield styled(line, style="" if number else "bold")
    for play in answer.plays:
        yield Text()
        yield styled(
            f"change most with {play.summary.name}" if play.changed else f"no job changes with {play.summary.name}"
        )
        told, _ = aligned([told_change(each) for each in play.changed])
        yield from (styled(f"   {line}") for line in told)
    yield Text()
    for index, text in enumerate(answer.left_out):
        yield styled(("left out: " if not index else "          ") + text, style="dim")


def trust_text(found: Reproduction) -> str:
    """How well the past is reproduced, in one line."""
    told = (
        f"the unchanged policy, played, gives {found.share:.0%} of {max(found.admissions, found.played)} admissions "
        f"within {CLOSE_S:g} s, and {found.order_share:.0%} in their order"
    )
    return told if found.is_enough else f"{told}: what follows may be as wrong"


def _trust(found: Reproduction) -> Iterator[Text]:
    if found.is_enough:
        yield styled(("✓ ", "green"), trust_text(found))
        return
    yield styled(("✗ ", "red"), trust_text(found))
    yield from (styled(f"   {difference}", style="dim") for difference in found.differences)


def told_change(change: JobChange) -> list[str]:
    """What changes for a job, as cells of a table."""
    before = _span(change.before_s) + ("" if change.started_before else " and on")
    after = _span(change.after_s) + ("" if change.started_after else " and on")
    preempted = ""
    if change.preemptions_before != change.preemptions_after:
        preempted = f"preempted {change.preemptions_after} times, not {change.preemptions_before}"
    return [change.job, change.queue, f"waits {after}, not {before}", preempted]


def _span(seconds: float) -> str:
    return age_text(timedelta(seconds=seconds))
