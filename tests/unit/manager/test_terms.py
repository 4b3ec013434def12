"""The terms for agents, and when they are published."""

from typing import Any

import msgspec
import pytest

from slicebus.decisions.commands import Publish
from slicebus.manager.decide.cluster.terms import answer, terms_of
from slicebus.proto.messages import Flavor, Heard, Heartbeat, Hello, Terms
from unit.manager.objects import EAST, an_envelope

Manifest = dict[str, Any]
HELLO = Hello(agent_version="0.1.0", kubernetes_version="v1.34.0", schema_version="1.0")
TAINT = {"key": "gpu", "effect": "NoSchedule"}


def a_flavor(name: str, **spec: Any) -> Manifest:
    return {"metadata": {"name": name}, "spec": spec}


FLAVORS = [a_flavor("gpu", nodeLabels={"pool": "gpu"}, nodeTaints=[TAINT], tolerations=[TAINT]), a_flavor("default")]
TERMS = terms_of(FLAVORS)


def test_the_terms_have_each_namespace_once() -> None:
    terms = terms_of(FLAVORS, namespaces=["team-b", "team-a", "team-b"])
    assert terms.namespaces == ["team-a", "team-b"]
    assert TERMS.namespaces is msgspec.UNSET
    assert len({terms.version, TERMS.version, terms_of(FLAVORS, namespaces=[]).version}) == 3


def test_the_terms_are_the_flavors() -> None:
    assert TERMS.flavors == [
        Flavor(name="default"),
        Flavor(name="gpu", node_labels={"pool": "gpu"}, taints=[TAINT], tolerations=[TAINT]),
    ]
    assert terms_of(reversed(FLAVORS)) == TERMS
    assert terms_of(FLAVORS[:1]).version != TERMS.version


@pytest.mark.parametrize(
    ("message", "is_sent"),
    [
        (HELLO, True),
        (Heartbeat(), True),
        (Heartbeat(terms="others"), True),
        (Heartbeat(terms=TERMS.version), False),
    ],
)
def test_terms_are_sent_until_the_agent_goes_by_them(message: Hello | Heartbeat, is_sent: bool) -> None:
    expected: list[tuple[str, Terms]] = [(EAST, TERMS)] if is_sent else []
    commands = answer(message, an_envelope(), FLAVORS)
    assert [(each.cluster, each.message) for each in commands if isinstance(each, Publish)] == expected


FENCED = terms_of(FLAVORS, fence_s=75.0)


@pytest.mark.parametrize(
    ("message", "is_back", "heard"),
    [
        (Heartbeat(terms=FENCED.version, said_s=4.5), True, Heard(epoch=1, said_s=4.5)),
        (Heartbeat(terms=FENCED.version, said_s=4.5), False, None),
        (HELLO, True, None),
    ],
    ids=["a heartbeat", "of a cluster that is not back", "a hello"],
)
def test_with_a_fence_every_heartbeat_is_answered(
    message: Hello | Heartbeat, is_back: bool, heard: Heard | None
) -> None:
    [publish] = answer(message, an_envelope(), FLAVORS, fence_s=75.0, is_back=is_back)
    assert isinstance(publish, Publish)
    assert publish.message == (FENCED if heard is None else msgspec.structs.replace(FENCED, heard=heard))


def test_another_fence_is_other_terms() -> None:
    assert len({terms_of(FLAVORS, fence_s=fence_s).version for fence_s in (None, 75.0, 76.0)}) == 3
