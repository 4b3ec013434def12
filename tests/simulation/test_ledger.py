"""The ledger's pod-seconds equal those that were counted at the manager's API server, through crashes of every role."""

import structlog

from simulation import run as one_run
from simulation.fleet import MANAGER, Fleet
from simulation.granted_pods import GrantedPods
from simulation.loop import run
from simulation.schedule import Crash
from simulation.seeds import schedule_of
from slicebus.bus.contract import Record
from slicebus.journal.entry import Entry
from slicebus.ledger.bookkeeper import Bookkeeper, LedgerState
from slicebus.ledger.facts import GrantFact, SliceFact, UnknownSpan

SEEDS = (6, 12, 19, 34, 36, 49)
MOST_SHARE = 0.001


def counted(journal: list[Record]) -> tuple[dict[str, float], float, float]:
    """Pod-seconds by job, up to when they are known, and the pod-seconds that are said not to be."""
    keeper, grants, jobs, unknown_ms = Bookkeeper(LedgerState()), dict[object, GrantFact](), dict[str, str](), 0
    for record in journal:
        for fact in keeper.feed(Entry.from_record(record)):
            match fact:
                case GrantFact():
                    grants[fact.slice_uid, fact.pod_set, fact.since_ms] = fact
                case SliceFact():
                    jobs[fact.uid] = fact.job_uid
                case UnknownSpan():
                    unknown_ms += fact.pod_ms
    assert keeper.known_ms is not None
    found = dict.fromkeys(jobs.values(), 0.0)
    for grant in grants.values():
        until_ms = min(grant.until_ms or keeper.known_ms, keeper.known_ms)
        found[jobs[grant.slice_uid]] += grant.pods * max(0, until_ms - grant.since_ms) / 1000
    return found, keeper.known_ms / 1000, unknown_ms / 1000


def test_the_ledger_comes_to_what_the_api_server_had() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    right = wrong = unknown_s = 0.0
    crashes = 0
    for seed in SEEDS:
        fleet = Fleet(schedule_of(seed), skew_s=0.0)
        granted = GrantedPods(fleet)
        run(fleet.run(one_run.play))
        told, known_s, not_known_s = counted(list(fleet.memory.journal))
        true = granted.until(known_s)
        right += sum(true.values())
        wrong += sum(abs(true.get(job, 0.0) - told.get(job, 0.0)) for job in {*true, *told})
        unknown_s += not_known_s
        crashes += sum(isinstance(item, Crash) and item.role == MANAGER for item in fleet.schedule.items)
    assert crashes > 0, "no manager has crashed"
    assert right > 10_000
    assert unknown_s <= MOST_SHARE * right
    assert wrong <= MOST_SHARE * right
