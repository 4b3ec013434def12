"""What would become of jobs that nobody has submitted, and of sizes that nobody has asked for."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from slicebus.manager.decide.admission.budgets_left import BudgetLeft, budgets_left
from slicebus.manager.decide.admission.snapshots import Since, snapshot_of
from slicebus.manager.decide.forecast.hypothesis import Hypothesis
from slicebus.manager.decide.forecast.start_time import Estimate, StartTime
from slicebus.manager.decide.forecast.suggestions import Suggestion, Surroundings, suggestions
from slicebus.manager.decide.forecast.verdict import Loss, Prospect, Verdict, verdicts, with_slices
from slicebus.manager.decide.forecast.worker_policy import with_refusal
from slicebus.manager.state.owners import job_of
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Counts
from slicebus.slices.admission.snapshot import Snapshot
from slicebus.slices.workload.workload import Slice


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of one job."""

    job: str
    """`Kind/namespace/name`."""
    size: Counts
    """Its pods by pod set; empty where it is refused."""
    local_queue: str
    verdict: Verdict
    suggestions: tuple[Suggestion, ...] = ()
    """What would let it run, where it waits."""
    start: StartTime | None = None
    """When it would start, where it waits and enough is known."""
    budgets: tuple[BudgetLeft, ...] = ()
    """Those that it spends of."""


def forecast(
    store: ManagerStore,
    hypotheses: Sequence[Hypothesis],
    *,
    moment: datetime,
    suggests: bool = True,
    estimate: Estimate | None = None,
) -> list[Forecast]:
    """What the next cycle decides about jobs that come together, in their order. `suggests`: look for what would let
    those run that wait, which takes a cycle for each try. `estimate`: say when those start."""
    asked = [hypothesis for hypothesis in hypotheses if hypothesis.slice is not None]
    slices = [hypothesis.slice for hypothesis in asked if hypothesis.slice is not None]
    instead_of = [hypothesis.replaces for hypothesis in asked if hypothesis.replaces is not None]
    since = Since.at(moment, growth_window_s=store.settings.growth_window_s)
    trees = sorted({store.quotas.tree_of(slice.local_queue) for slice in slices})
    snapshots = dict[tuple[str, ...], Snapshot]()

    def world_of(slice: Slice) -> Snapshot:
        """The trees of all these slices, and that of a queue that one of them is tried in."""
        wanted = tuple(sorted({store.quotas.tree_of(slice.local_queue), *trees}))
        if wanted not in snapshots:
            snapshots[wanted] = snapshot_of(store, wanted, since)
        return snapshots[wanted]

    decided = verdicts(world_of(slices[0]), slices, instead_of=instead_of) if slices else {}

    def forecast_of(hypothesis: Hypothesis) -> Forecast:
        slice = hypothesis.slice
        if slice is None:
            outcome = Prospect.ADMITTED if hypothesis.is_at_once else Prospect.REFUSED
            reason = hypothesis.problems[0].reason if hypothesis.problems else ""
            message = "; ".join(problem.message for problem in hypothesis.problems)
            verdict = Verdict(outcome=outcome, reason=reason, message=message)
            return Forecast(job=hypothesis.key, size=hypothesis.counts, local_queue=hypothesis.queue, verdict=verdict)
        verdict, found, start = decided[slice.key], list[Suggestion](), None
        if hypothesis.manifest is not None:
            verdict = with_refusal(store, hypothesis.manifest, verdict)
        if suggests and verdict.outcome is Prospect.WAITS:
            surroundings = Surroundings(
                snapshot_of=world_of,
                others=tuple(other for other in slices if other is not slice),
                instead_of=tuple(instead_of),
                priority_classes={each["metadata"]["name"]: each["value"] for each in store.priority_classes.all()},
            )
            found = [*suggestions(surroundings, slice)]
        if estimate is not None and verdict.outcome is Prospect.WAITS:
            together = with_slices(world_of(slice), slices, {each.key for each in instead_of})
            start = estimate.of(together, slice, moment=moment)
        return Forecast(
            job=hypothesis.key,
            size=slice.counts,
            local_queue=slice.queue,
            verdict=msgspec.structs.replace(verdict, losses=tuple(_with_jobs(store, verdict.losses))),
            suggestions=tuple(
                msgspec.structs.replace(each, losses=tuple(_with_jobs(store, each.losses))) for each in found
            ),
            start=start,
            budgets=budgets_left(store.quotas, slice.local_queue, moment),
        )

    return list(map(forecast_of, hypotheses))


def _with_jobs(store: ManagerStore, losses: Sequence[Loss]) -> Iterator[Loss]:
    for loss in losses:
        ref = job_of(store, loss.slice)
        yield msgspec.structs.replace(loss, job=ref.key if ref is not None else "")
