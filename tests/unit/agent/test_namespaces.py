"""Which namespaces take no jobs on the agent's cluster."""

import asyncio
from typing import Any

import pytest

from slicebus.agent.act.namespaces import _ROUND_S, _ROUNDS_BETWEEN, Namespaces
from slicebus.agent.decide.order.policy import why_lacking
from slicebus.agent.state.policy import Policy
from slicebus.agent.state.store import POLICY, AgentStore
from slicebus.kube.resources import Resource
from slicebus.proto.errors import ForbiddenError, NotFoundError, NotServedError, SlicebusError
from slicebus.proto.messages import Terms
from slicebus.slices.api.selectors import LabelSelector
from unit.kube.loop_time import LoopTime, settle

Manifest = dict[str, Any]


def a_namespace(name: str = "team", *, phase: str = "Active", **labels: str) -> Manifest:
    return {"metadata": {"name": name, "labels": labels}, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("policy", "name", "found", "expected"),
    [
        (Policy(), "team", a_namespace(), None),
        (Policy(), "team", None, "NotFound"),
        (Policy(), "team", a_namespace(phase="Terminating"), "Terminating"),
        (Policy(), "kube-system", a_namespace(), "NamespaceNotAllowed"),
        (Policy(own_namespace="team"), "team", a_namespace(), "NamespaceNotAllowed"),
        (Policy(namespace_selector=LabelSelector(match_labels={"jobs": "yes"})), "team", a_namespace(jobs="yes"), None),
        (
            Policy(namespace_selector=LabelSelector(match_labels={"jobs": "yes"})),
            "team",
            a_namespace(),
            "NamespaceNotAllowed",
        ),
    ],
    ids=["there", "missing", "going", "the cluster's", "the agent's", "selected", "not selected"],
)
def test_why_a_namespace_takes_no_jobs(policy: Policy, name: str, found: Manifest | None, expected: str | None) -> None:
    assert why_lacking(policy, name, found) == expected


class Cluster:
    """Namespaces by name, in place of an API server's; an error for one that cannot be read."""

    def __init__(self, **found: Manifest | SlicebusError) -> None:
        self.found = found
        self.reads: list[str] = []

    async def get(self, resource: Resource, name: str) -> Manifest:
        self.reads.append(name)
        found = self.found.get(name, NotFoundError(name))
        if isinstance(found, SlicebusError):
            raise found
        return found


class Looking:
    """An agent that looks, and what it said."""

    def __init__(self, cluster: Cluster, *, watched: tuple[str, ...] = ()) -> None:
        store = AgentStore()
        store.policy[POLICY] = Policy()
        self.said: list[dict[str, str] | None] = []
        self.namespaces = Namespaces(
            store,
            cluster,  # type: ignore[arg-type]
            watched=watched,
            changed=lambda: self.said.append(self.namespaces.lacking()),
        )
        self._running = asyncio.ensure_future(self.namespaces.run())

    async def ask(self, *names: str) -> None:
        self.namespaces.accept(Terms(version="1", namespaces=list(names)))
        await settle()

    def stop(self) -> None:
        self._running.cancel()


async def test_nothing_is_said_before_anybody_asks(loop_time: LoopTime) -> None:
    looking = Looking(Cluster())
    looking.namespaces.accept(Terms(version="1"))
    await settle()
    assert (looking.namespaces.lacking(), looking.said) == (None, [])
    looking.stop()


async def test_what_is_made_here_takes_jobs_within_a_round(loop_time: LoopTime) -> None:
    cluster = Cluster(a=a_namespace("a"))
    looking = Looking(cluster)
    await looking.ask("a", "b")
    assert looking.said == [{"b": "NotFound"}]
    cluster.found["b"] = a_namespace("b")
    cluster.reads.clear()
    await loop_time.advance(_ROUND_S)
    assert looking.said == [{"b": "NotFound"}, {}]
    assert cluster.reads == ["b"], "those that take jobs are read less often"
    looking.stop()


async def test_what_goes_is_seen_after_some_rounds(loop_time: LoopTime) -> None:
    cluster = Cluster(a=a_namespace("a"))
    looking = Looking(cluster)
    await looking.ask("a")
    cluster.found["a"] = a_namespace("a", phase="Terminating")
    for _ in range(_ROUNDS_BETWEEN):
        assert looking.said == [{}]
        await loop_time.advance(_ROUND_S)
    assert looking.said == [{}, {"a": "Terminating"}]
    looking.stop()


async def test_one_that_cannot_be_read_counts_as_before(loop_time: LoopTime) -> None:
    cluster = Cluster(a=ForbiddenError("get"))
    looking = Looking(cluster)
    await looking.ask("a", "b")
    assert looking.said == [{"b": "NotFound"}]
    cluster.found["b"] = ForbiddenError("get")
    await loop_time.advance(_ROUND_S)
    assert looking.said == [{"b": "NotFound"}]
    looking.stop()


async def test_a_path_that_is_not_served_says_nothing_of_a_namespace(loop_time: LoopTime) -> None:
    cluster = Cluster(a=a_namespace("a"))
    looking = Looking(cluster)
    await looking.ask("a")
    cluster.found["a"] = NotServedError("404 page not found")
    for _ in range(_ROUNDS_BETWEEN):
        await loop_time.advance(_ROUND_S)
    assert looking.said == [{}]
    looking.stop()


async def test_an_agent_of_some_namespaces_reads_only_these(loop_time: LoopTime) -> None:
    cluster = Cluster(a=a_namespace("a"), b=a_namespace("b"))
    looking = Looking(cluster, watched=("a",))
    await looking.ask("a", "b")
    assert looking.said == [{"b": "NamespaceNotAllowed"}]
    assert cluster.reads == ["a"]
    looking.stop()
