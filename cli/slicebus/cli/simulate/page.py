"""A forecast as a page for the terminal."""

from collections.abc import Iterable, Iterator
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.text import Text

from slicebus.cli.durations import age_text
from slicebus.cli.screen import styled
from slicebus.manager.decide.admission.budgets_left import BudgetLeft
from slicebus.manager.decide.forecast.forecast import Forecast
from slicebus.manager.decide.forecast.start_time import StartTime
from slicebus.manager.decide.forecast.verdict import Loss, PodSetPlace, Prospect, Verdict, lost
from slicebus.proto.messages import counts_text

_AHEAD_SHOWN = 3
_HEADS = {
    Prospect.ADMITTED: ("✓ ", "green", "would run"),
    Prospect.PREEMPTS: ("✓ ", "green", "would run when others have made room"),
    Prospect.WAITS: ("⏳ ", "yellow", "would wait"),
    Prospect.REFUSED: ("✗ ", "red", "would be refused"),
}


def page(forecast: Forecast) -> RenderableType:
    """The page about one job."""
    return Group(*_lines(forecast), Text())


def _lines(forecast: Forecast) -> Iterator[Text]:
    verdict = forecast.verdict
    mark, style, says = _HEADS[verdict.outcome]
    size = f" with {counts_text(forecast.size)}" if forecast.size else ""
    yield styled((mark, style), (forecast.job, "bold"), f" {says}{size}{_where(forecast)}")
    for place in verdict.pod_sets:
        if place.flavors:
            yield styled(("   gets ", "dim"), _place(place))
    if verdict.outcome is not Prospect.PREEMPTS and verdict.message:
        yield styled(f"   {verdict.message}")
    if verdict.would_admit and verdict.outcome is Prospect.WAITS:
        yield styled(("   it goes on with ", "dim"), verdict.would_admit)
    yield from (styled(("   takes ", "dim"), _loss(loss)) for loss in verdict.losses)
    if verdict.cluster_queue and verdict.outcome is Prospect.WAITS:
        yield styled(_position(verdict), style="dim")
    for budget in forecast.budgets:
        yield styled(("   spends of ", "dim"), _budget(budget))
    if forecast.start is not None:
        yield styled(("   would start ", "dim"), _start(forecast.start))
    for suggestion in forecast.suggestions:
        cost = f", which takes {', '.join(map(_loss, suggestion.losses))}" if suggestion.losses else ""
        yield styled(("   would run ", "green"), f"{suggestion.text}{cost}")


def _start(start: StartTime) -> str:
    within = [age_text(timedelta(seconds=each)) if each is not None else "" for each in (start.p50_s, start.p90_s)]
    known = f"by {start.run_times} run times of its ClusterQueue"
    if not within[0]:
        return f"later than anybody can tell, {known}"
    late = f"within {within[1]}" if within[1] else "later than anybody can tell"
    return f"within {within[0]} half of the time, and nine times of ten {late}, {known}"


def _budget(budget: BudgetLeft) -> str:
    back = f", something comes back from {budget.back_at} on" if budget.back_at else ""
    return (
        f"the {budget.resource} budget of {budget.of}, {budget.budget} ({budget.mode}): {budget.spent} is spent, "
        f"{budget.left} is left{back}"
    )


def _where(forecast: Forecast) -> str:
    verdict = forecast.verdict
    cluster = f" on cluster {verdict.cluster}" if verdict.cluster else ""
    queue = f" by ClusterQueue {verdict.cluster_queue}" if verdict.cluster_queue else ""
    return f"{cluster}{queue}"


def _place(place: PodSetPlace) -> str:
    by_flavor = dict[str, list[str]]()
    for resource, flavor in place.flavors.items():
        by_flavor.setdefault(flavor, []).append(resource)
    flavors = "; ".join(f"{', '.join(resources)} of flavor {flavor}" for flavor, resources in by_flavor.items())
    return f"{place.name}={place.count}: {flavors}"


def _loss(loss: Loss) -> str:
    who = loss.job or f"Workload {loss.slice}"
    if not loss.left:
        return f"all of {who} ({counts_text(loss.pods)})"
    return f"{counts_text(lost(loss.pods, loss.left))} of {who}"


def _position(verdict: Verdict) -> str:
    before = _some(verdict.ahead)
    return f"   {verdict.position} of {verdict.of} that wait in ClusterQueue {verdict.cluster_queue}{before}"


def _some(ahead: Iterable[str]) -> str:
    names = list(ahead)
    shown, more = names[:_AHEAD_SHOWN], "…" if len(names) > _AHEAD_SHOWN else ""
    return f", after {', '.join(shown)}{more}" if names else ""
