"""The recipe "add an admission rule", carried out on a copy of the checkout: a rule that reads a setting and the clock.

A new job settles before it gets quota: it waits until it is `settling_s` old. The copy then decides recorded days as
before, and a fleet of it keeps the rule.
"""

from pathlib import Path

import pytest

from support.recipe import TOP, Checkout, Edit, recipe, unnamed

SLICES = "core/slicebus/slices/admission"
MANAGER = "manager/slicebus/manager"
NEW_TEST = "tests/e2e/test_settling.py"

RULE = [
    Edit(
        f"{SLICES}/nominating.py",
        '''

def unsettled(slice: Slice, *, made_before: str | None) -> Misfit | None:
    """Why a first slice waits that was not made before this time; None where it need not."""
    if made_before is None or slice.replaces is not None or slice.created < made_before:
        return None
    return Misfit("the job was made a moment ago, and settles")
''',
    ),
    Edit(f"{SLICES}/cycle.py", ", unsettled", after="nominating import Nominator"),
    Edit(
        f"{SLICES}/snapshot.py",
        '''
    made_before: str | None = None
    """See `unsettled`."""''',
        after='    preemption_cycles_since: str | None = None\n    """See `PreemptionCycles`."""',
    ),
    Edit(
        f"{SLICES}/cycle.py",
        """        if young := unsettled(slice, made_before=self.snapshot.made_before):
            return young
""",
        after='        """What a slice could be assigned now, or why it need not be assessed."""\n',
    ),
]
SNAPSHOT = [
    Edit(
        f"{MANAGER}/state/quota_trees.py",
        "        made_before: str | None = None,\n",
        after="        preemption_cycles_since: str | None = None,\n",
    ),
    Edit(
        f"{MANAGER}/state/quota_trees.py",
        "            made_before=made_before,\n",
        after="            preemption_cycles_since=preemption_cycles_since,\n",
    ),
    Edit(
        f"{MANAGER}/decide/catalog.py",
        ", made_before: str | None = None",
        after="preemption_cycles_since: str",
    ),
    Edit(
        f"{MANAGER}/decide/catalog.py",
        ", made_before=made_before",
        after="Since(preemption_cycles=preemption_cycles_since",
    ),
    Edit(
        f"{MANAGER}/decide/admission/snapshots.py",
        '    made_before: str | None = None\n    """As in `unsettled`."""\n',
        after='    """As in `IdleGrowth`; empty for a cycle in which no job grows into idle quota."""\n',
    ),
    Edit(
        f"{MANAGER}/decide/admission/snapshots.py",
        "        made_before=since.made_before,\n",
        after="        preemption_cycles_since=since.preemption_cycles,\n",
    ),
]
ADMITTER = [
    Edit(
        f"{MANAGER}/act/admitter.py",
        """            "made_before": time_text(now() - timedelta(seconds=settling_s)) if settling_s else None,
""",
        after="""            "preemption_cycles_since": time_text(now() - RING),
""",
    ),
    Edit(
        f"{MANAGER}/act/admitter.py",
        """        settling_s = self._store.settings.settling_s
""",
        after="""        aside: they are decided again with their next change, and after a while.\"\"\"
""",
    ),
    Edit(
        f"{MANAGER}/act/admitter.py",
        """
        settling_s = self._store.settings.settling_s
        if settling_s and decided:
            asyncio.get_running_loop().call_later(settling_s + 1.0, self._dirty.add, trees)""",
        after="for one in self._decide_trees(trees)]",
    ),
    Edit(
        f"{MANAGER}/state/settings.py",
        '    settling_s: Seconds | None = None\n    """How old a job is before it gets quota; None at once."""\n',
        after='    """Whether the queues of a cohort borrow, and are preempted, by their shares of the cohort."""\n',
    ),
]
EDITS = [*RULE, *SNAPSHOT, *ADMITTER]
TEST = Edit(
    NEW_TEST,
    """import pytest

from slicebus.cli.demo.world import World, fleet
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.slices.api.kueue import Condition
from support.scenario import Scenario, set_quota
from support.waiting import eventually


@pytest.fixture
async def scenario(bare_east: World) -> Scenario:
    await set_quota(bare_east, 4)
    return Scenario(bare_east, "Job", "settles")


async def test_a_job_that_is_not_old_enough_waits(scenario: Scenario, urls: dict[str, str]) -> None:
    async with fleet(scenario.world, urls, decisions=ManagerDecisionSettings(settling_s=3600.0)):
        await scenario.submit()

        async def waits() -> bool:
            waiting = [slice.conditions.get(Condition.QUOTA_RESERVED, {}) for slice in await scenario.chain()]
            return ["settles" in condition.get("message", "") for condition in waiting] == [True]

        await eventually(waits, "the job settles")


async def test_a_job_that_has_settled_runs(scenario: Scenario, urls: dict[str, str]) -> None:
    async with fleet(scenario.world, urls, decisions=ManagerDecisionSettings(settling_s=1.0)):
        await scenario.submit()
        await scenario.expect_pods(running=1)
""",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_rule_is_added_by_the_recipe(checkout: Checkout) -> None:
    checkout.edit([*EDITS, TEST])
    checkout.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/replays", NEW_TEST)


def test_the_recipe_names_everything_that_is_touched() -> None:
    assert unnamed(EDITS, recipe("Add an admission rule")) == []


@pytest.mark.parametrize("room", ["admission", "placement"])
def test_the_recipe_names_every_module_that_has_rules(room: str) -> None:
    text = recipe("Add an admission rule")
    modules = {path.name for path in (TOP / "core/slicebus/slices" / room).glob("*.py")} - {"__init__.py"}
    assert not sorted(name for name in modules if f"{name}`" not in text)
