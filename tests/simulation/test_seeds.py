"""A set of seeds in which no rule is broken, the same seed going the same way twice, and safeguards that are missed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from simulation.mutations import MUTATIONS
from simulation.noticed import as_text
from simulation.tally import Forecasts

FIXED = range(151)
FRESH_A_DAY = 50
LONGEST_S = 3600
"""Of one test: a machine that is busy with the rest of the suite, and more, takes half an hour for the fixed seeds."""
LEAST_SNAPSHOTS = 3000
"""On so many the fixed seeds compare what `slicebus simulate` says with what the next cycle decides."""
DAYS = 3
"""So many days until each effect has had its crash, and each seed that failed long ago its turn."""
LATEST = 40
"""So many of those that failed last are played every day."""
ONCE_FAILED: tuple[int, ...] = (
    100231,  # a manager that was stopped before its request created a second pending slice
    100446,  # jobs of two queues preempted each other for ever: one lost its own quota for what another was given
    100756,  # the simulation took a RayJob that had ended, and whose pods were going, for one without its cluster
    100841,  # one job preempted another for room that a waiting job took as soon as it was free, again and again
    102013,  # a size that the manager had overruled was never asked for again
    102499,  # as 100756
    102744,  # a Workload that had gone came back into the manager's cache, and held its quota for ever
    102793,  # jobs took turns by fair sharing, which nobody saw between two of them
    700151,  # the simulation took the start of a job, for which another one's end had made room, for disagreement
    800074,  # an agent ungated a pod that an order without an answer had taken the grant from
    800741,  # quota of a grant was given away while the order with it was on its way
    900656,  # the embedded API server never deleted what a waiting owner came to own
    901115,  # an object of a definition that replaced another one was not taken into the cache again
    900210,  # three jobs of two queues preempted each other for ever: each step was what a policy says
    902999,  # a job got the quota of one that waited for room, and was preempted for it, again and again
    903878,  # the simulation took a job that a user had started anew for one that runs again by itself
    904006,  # as 901693, with a manager that was away: somebody has to remove a finalizer
    904741,  # a job chose other flavors when its victim was gone, borrowed for them, and was preempted by that victim
    904685,  # an order that came again, after its job had asked for less and gone, started pods without quota
    901693,  # a definition that goes, a job that a user deleted, and its Workload waited for each other
    904213,  # the simulation expected the end of a job that had gone with its definition before its copy was made
    904596,  # as 903878, with a job that had been preempted before its end was unknown
    910211,  # the simulation knew nothing of a copy that an agent made after it was suspended, and that goes again
    920666,  # a job took what had been freed for another of its queue, because it waited for victims of its own
    921515,  # a job left behind on a lost cluster was to be suspended there: its fence opened before it was recalled
    921270,  # a job that was made again took its predecessor's place in the cache before that one was seen to go
    921427,  # an agent reported a job that had ended as suspended before it reported the end, and the job ran again
    921855,  # the simulation took a delete, recorded when its job had ended, for one because the definition went then
    933286,  # a job that was made again with its definition started a gated pod that the earlier one had left
    950965,  # the request of a lost copy came after the inventory that showed the loss, and nobody took it back
    951898,  # the same, of a copy whose definition went
    951973,  # a size that the manager gave was changed back before the agent looked, and the manager never heard of it
    960336,  # a request came after the report that a job was suspended, and an earlier one had been forgotten already
    970077,  # a replay did not take back a job that had gone with its definition and came again in the same state
    980743,  # a copy was made anew with an old grant, while requests of the one before were on their way
    980928,  # a job preempted another for flavors that no cluster had room for once that one was gone, again and again
    991326,  # the simulation looked between the end of a job's time to live and the garbage collector
    992285,  # three jobs preempted each other in turn, each as its policies say
    1016412,  # two jobs were preempted in turn for a third, which chose flavors again each time and never ran
    1022420,  # a stale order made a copy anew, and its manager kept the request of the copy before
    1023340,  # a stopped agent's create came after its successor had deleted the job (the rule)
    1002666,  # a manager that had lost its Lease never ended: a reflector forgot that it was cancelled
    990607,  # a job of a definition that had replaced another counted as absent before anybody had listed it
    1031184,  # an agent ended before its request was confirmed, and the next one's inventory took the request back
    1038653,  # a job waited for evictions in another tree of quota, and nobody looked at it when they were over
    1066017,  # a delete that was ordered once more after its job had given its Workloads up was never taken as reported
    1070221,  # an admission without an answer was sent again after its quota had been edited
    1090381,  # the simulation's autoscaler took a later cluster of the name for its own
    1090410,  # the simulation did not know of a suspension before its agent had acknowledged it
    1111803,  # the simulation took what a job had before it shrank for room that it lacked
    1080868,  # a conflict with the manager's own write left a lost copy to the next inventory
    1070534,  # an older reason to wait was shown after a newer one: it was delivered again
    1050662,  # a user deleted what was left of a job's ended copy, and the job went with its definition (the rule)
    1113282,  # a size that an order overruled was not asked for again: its number was that of the new generation
    1113485,  # a Job had quota for more pods than completions, was never ready, and was evicted again and again
    1114011,  # a scale-up was not taken back to the very size that its job had grown from
    1114575,  # as 1113485
    1115005,  # a notice was taken off while its size was not wanted for a moment, and the manager says nothing twice
    1120936,  # a user deleted a job that had moved to its next slice before the copy of that came: nobody noticed
    1121428,  # the simulation lost the timers of an agent that it stopped twice at once
    1200110,  # the stand-in for RayServices did not try again to make a cluster while its definition was missing
    1220571,  # a copy was made anew with the size of its spec, and the manager kept that of the autoscaler before it
    1220588,  # as 1213245, with a write of another order between those of the end
    1230815,  # the simulation took a delete for a job's next place for one because the definition went
    1231439,  # edited bounds were noted before an agent knew of the cluster that KubeRay had made of the spec before
    1213245,  # the end of a job came after its copy was ordered anew: its quota was free before that copy had gone
    1240305,  # an admission and the order for the slice before it got the same version
    1252476,  # a scale-up was taken back while an upgrade of its RayService waited, which was never asked for again
    1251962,  # a job whose copy went with its namespace ran again before anybody heard of that, ended, and was deleted
    1260906,  # a waiting job reserved other flavors with each small job that was preempted for another one
    1276157,  # a manager that was stopped right before an admission wrote it when another had the Lease (the rule)
    1277415,  # as 1276157
    1279771,  # as 1276157
    631173,  # the report that a copy was gone came when the next copy had ended, whose end was lost with its job
    3500033,  # a meddler of the simulation took a manifest that another had broken for sound, and brought it back
    3500112,  # a gang that somebody suspended on its worker was never resumed: nobody removed its PodGroup
    3500209,  # the same, of a RayCluster
    3500231,  # a job grew past its cluster's room by what its pods requested beyond its admission: no report had that
    3500378,  # an edit made an evicted job impossible for a while: then it counted as suspended by its user, for ever
    3500683,  # what the manager's API server refused to show once was not shown again for ten minutes
    3501044,  # the reason to wait that a tenant's suspension had displaced on the worker's job did not come back
    3501053,  # an edit to the size that an Indexed Job had asked for the quota of indexes that had succeeded
    36997489,  # whoever resumed a suspended job with an unknown end had it run again
    247,  # as 280, of a job whose eviction had a notice for which nobody waited any more
    280,  # a job that was told to shrink, and whose cluster was lost then, came back at the smaller size
    3501345,  # an Indexed Job that ended smaller kept its former completions: its Workload was let go first
    3501816,  # the simulation took a word that was said twice for pods that were taken twice (the rule)
    484,  # somebody deleted a job's copy, and its Workload before it had gone: nobody told the manager
    3501935,  # a job was admitted although a budget was spent, since its pods request nothing but what a cluster adds
    3501859,  # a size in idle quota that was given up was taken for one that somebody asks for, and preempted
    3501885,  # pods taken back while a job's manifest was impossible were not taken back when it was mended
    3377,  # a job waited for nobody: there were pods that nobody asked for, and it fitted in another flavor
    3500656,  # a cluster made the copy of a job whose pod sets had other names for a while, and it kept those
    3501959,  # an eviction was withdrawn when its job was suspended: the size of its next cluster was never asked for
    3502240,  # a spec that was refused for a while was outrun by its relabel, and the manager's size never came
    36997498,  # what a slice in a line lacked of one flavor depended on its age, by another of its pod sets
    36997525,  # the simulation took what an ended job had left on a lost cluster, evicted before, for too much
    3502354,  # a RayService in an upgrade never said that the pods were gone which it was to lose
    3502285,  # a withdrawn word took the pods that nobody had asked for all the same, before its notice was over
    3502194,  # an Indexed Job that opted out kept other completions than it had ended with, once it was let go
    36997453,  # the simulation compared a forecast with a slice of pods that were edited since (the rule)
    3503207,  # a version was used twice, as a user had deleted the Workload of the last one
    3502819,  # the simulation found room for a job whose LocalQueue had gone with its namespace (the rule)
    36997515,  # an admission was answered after the use of its queue was counted, and never counted
    36997590,  # the simulation took two publishes of an order that takes pods back for two orders
    36997593,  # a spec that had waited came after a delete whose tombstone was refused, and made the job again
    370,  # a shrink was not withdrawn, which few seeds show
    3503565,  # pods were taken back from a job that had ended, whose worker makes it smaller no more
    361,  # the simulation did not see whom a job waits for, as the API server refused what it says of that (the rule)
    3504125,  # an upgrade of a RayService waited for ever, as the manager's size of one cluster overruled its request
    3503779,  # the simulation counted pods that are larger than their template with the template alone (the rule)
    3504022,  # the simulation let a job change its flavor whose pods alone request something (the rule)
    3504092,  # the simulation wanted an eviction of a slice whose admission had no answer (the rule)
    3504499,  # the simulation wanted the end of a job that somebody had restarted by then (the rule)
    3504629,  # the simulation wanted an end that had gone with its definition (the rule)
)
"""Seeds past the set that have shown a defect, the latest ones last; a line says what the seed showed."""
ONE_WRITER = range(20)
SHARDED = range(20)
SOAKED = range(20, 120)
"""With one writer, and with two shards, where there is time."""
BUDGETED = (73, 128, 131, 578)
"""Seeds with budgets, that are played in these ways too. With two shards 73 showed that a slice which is made again is
charged for what its worker has told meanwhile, and with one writer 578 that a new one is active (the rule)."""
SHOWN_BY = {
    "versions": 3,
    "epoch fence": 89,
    "tombstones": 20,
    "confirms": 100_021,
    "delta charging": 27,
    "identity": 16,
    "fence": 14,
    "unanswered requests": 100_193,
    "claims": 100_002,
    "last pod": 2,
    "room": 0,
    "stale decisions": 92,
    "lifetimes": 6,
    "ends": 100_034,
    "orphans": 139,
    "definitions": 1,
    "release": 24,
    "ungate cap": 1,
    "shards": 0,
    "gangs": 42,
    "tenants": 0,
    "observed pods": 2,
    "completions": 18,
    "least sizes": 3,
    "gang minimums": 159,
    "trimming": 51,
    "lines": 4,
    "sparing": 36_997_498,
    "pods that go": 3,
    "shares": 26,
    "notices": 24,
    "copied versions": 14,
    "earlier words": 5,
    "withdrawals": 44,
    "shrink withdrawals": 344,
    "spared pods": 74,
    "edits": 53,
    "forecasts": 0,
    "rank": 21,
    "rings": 3,
    "opportunistic pods": 184,
    "growth last": 5,
    "growth time": 8,
    "headroom": 8,
    "budgets": 37,
    "drained budgets": 17,
    "spending": 4,
    "time before an eviction": 1,
    "time before a resize": 48,
    "past use": 32,
}
"""A seed that has broken a rule without the safeguard. The search begins there: a change of the product may make
another one the first, also one past the fixed set. `make sim SIM=--mutations` looks from 0 on. Confirms, unanswered
requests, claims and ends are shown by runs with every kind of fault and user, which the seeds from 100,000 on are."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "simulation", *arguments],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def expect_fine(*arguments: str) -> str:
    """No run breaks a rule. The output names the seed of one that does, and the command that repeats it. Returns the
    line that says what was checked."""
    done = simulate(*arguments)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    last = done.stdout.splitlines()[-1]
    assert " seeds, 0 failed" in last
    return last


def some(seeds: range) -> tuple[str, ...]:
    return ("--first", str(seeds.start), "--count", str(len(seeds)))


def besides(seeds: Iterable[int]) -> tuple[str, ...]:
    return ("--seeds", ",".join(map(str, seeds)))


def fresh(day: date) -> range:
    """Seeds that nobody has played before that day."""
    first = day.toordinal() * FRESH_A_DAY
    return range(first, first + FRESH_A_DAY)


def once_failed(day: date) -> set[int]:
    """The seeds that once failed and are played that day: the latest ones, and a third of all."""
    return {*ONCE_FAILED[-LATEST:], *ONCE_FAILED[day.toordinal() % DAYS :: DAYS]}


def today() -> date:
    """The day by UTC, or the one that FRESH_DAY names."""
    return date.fromisoformat(os.environ.get("FRESH_DAY") or datetime.now(UTC).date().isoformat())


@pytest.mark.timeout(LONGEST_S)
def test_no_seed_breaks_a_rule() -> None:
    others = {*once_failed(today()), *SHOWN_BY.values()}.difference(FIXED)
    told = expect_fine(*some(FIXED), *besides(sorted(others)))
    assert (Forecasts.of(told) or Forecasts()).snapshots > LEAST_SNAPSHOTS


@pytest.mark.soak
@pytest.mark.timeout(LONGEST_S)
def test_nothing_that_once_failed_breaks_a_rule() -> None:
    expect_fine("--count", "0", *besides(ONCE_FAILED))


def test_each_seed_that_once_failed_has_its_day() -> None:
    days = [once_failed(date(2026, 11, day)) for day in (27, 28, 29)]
    assert set.union(*days) == {*ONCE_FAILED}
    assert all({*ONCE_FAILED[-LATEST:]} < day for day in days)


@pytest.mark.timeout(LONGEST_S)
def test_no_seed_of_the_day_breaks_a_rule() -> None:
    """Nobody can make the product fit these. One that fails goes to those that once failed, when it is mended."""
    expect_fine(*some(fresh(today())))


def test_each_day_has_seeds_of_its_own() -> None:
    one, next_one = fresh(date(2026, 11, 27)), fresh(date(2026, 11, 28))
    assert (one.start, one.stop) == (36_997_350, next_one.start)
    assert one.start > max(FIXED)


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("seeds", [ONE_WRITER, pytest.param(SOAKED, marks=pytest.mark.soak)], ids=str)
def test_no_seed_breaks_a_rule_with_one_writer(seeds: range) -> None:
    """Whatever the seeds draw: every decision but the first of a cycle waits while the fleet goes on."""
    expect_fine(*some(seeds), *besides(BUDGETED), "--writers", "1")


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("seeds", [SHARDED, pytest.param(SOAKED, marks=pytest.mark.soak)], ids=str)
def test_no_seed_breaks_a_rule_with_two_shards(seeds: range) -> None:
    """Trees of quota go from one to the other, and there are other numbers of shards for a while."""
    expect_fine(*some(seeds), *besides(BUDGETED), "--shards", "2")


@pytest.mark.timeout(LONGEST_S)
def test_a_missing_safeguard_is_noticed() -> None:
    """With it the same seeds break no rule: they are of the set above."""
    rows = simulate("--mutations", as_text(SHOWN_BY)).stdout
    missed = [name for name in MUTATIONS if not re.search(rf"^\| {name} \| \d+ \|", rows, re.MULTILINE)]
    assert not missed, rows


@pytest.mark.timeout(LONGEST_S)
def test_a_crash_before_an_effect_of_the_days_third_changes_nothing_in_the_end() -> None:
    """A third takes over a minute of processor time. Each effect is played on one of three days, and in a soak."""
    expect_fine("--crashes", "--no-shrink", "--every", str(DAYS), "--first", str(today().toordinal() % DAYS))


@pytest.mark.soak
@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), id="alone"),
        pytest.param(("--beside-kueue",), id="beside a Kueue"),
        pytest.param(("--shards", "2"), id="while a tree goes from one shard to another"),
    ],
)
def test_a_crash_before_any_effect_changes_nothing_in_the_end(options: tuple[str, ...]) -> None:
    expect_fine("--crashes", "--no-shrink", *options)


def test_a_seed_goes_the_same_way_every_time() -> None:
    """Also after others in another order: nothing is left of a run, and no order is that of addresses in memory."""
    first, second = (
        sorted(line for line in simulate("--seeds", seeds, "--digests").stdout.splitlines() if line.startswith("seed "))
        for seeds in ("9,16,33,67,100231", "100231,67,33,16,9")
    )
    assert first == second
    assert len(first) == 5
