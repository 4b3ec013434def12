"""A replay knows every decision that a role makes."""

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

import slicebus.agent.act
import slicebus.manager.act
from slicebus.agent.decide import catalog as agent_catalog
from slicebus.manager.decide import catalog as manager_catalog


@pytest.mark.parametrize(
    ("catalog", "act"),
    [(agent_catalog, slicebus.agent.act), (manager_catalog, slicebus.manager.act)],
    ids=["agent", "manager"],
)
def test_every_decision_that_a_role_makes_can_be_made_again(catalog: ModuleType, act: ModuleType) -> None:
    [folder] = map(Path, act.__path__)
    code = "\n".join(path.read_text() for path in folder.glob("*.py"))
    used = set(re.findall(r"\bcatalog\.(\w+)", code))
    decisions = {name for name in used if inspect.isfunction(getattr(catalog, name))}
    assert decisions
    assert decisions <= set(catalog.MODEL.decisions)
