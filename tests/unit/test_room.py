"""Agent and manager together never place more than there is, in whatever order pods appear and heartbeats arrive."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from slicebus.agent.decide.cluster.capacity import Granted, room
from slicebus.manager.state.worker_clusters import WorkerCluster
from slicebus.proto.messages import Flavor, Heartbeat
from slicebus.slices.placement.fleet import Fleet, Strategy
from slicebus.slices.workload.workload import FlavorName

Manifest = dict[str, Any]
KEY = FlavorName("default"), "cpu"
NODE = {
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "10"}, "conditions": [{"type": "Ready", "status": "True"}]},
}


class Worker:
    """One cluster with one node of ten cores, of which others use some."""

    def __init__(self, others: int) -> None:
        self.others = others
        self.granted: list[int] = []
        """Cores of each chain."""
        self.bound: set[int] = set()
        self.under_way: list[Heartbeat] = []
        self.reported = Heartbeat(ours={})

    @property
    def fleet(self) -> Fleet:
        """As the manager sees it."""
        status = msgspec.to_builtins(self.reported) | {"conditions": [{"type": "Connected", "status": "True"}]}
        manifest = {"metadata": {"name": "east"}, "spec": {"accepted": True}, "status": status}
        return Fleet([WorkerCluster.from_manifest(manifest).place], {}, {"east": {KEY: sum(self.granted) * 1000}})

    def place(self, cores: int) -> bool:
        """Grant a chain so much, when there is room."""
        cluster = self.fleet.place(Strategy.SPREAD, {KEY: cores * 1000})
        if cluster is not None:
            self.granted.append(cores)
        return cluster is not None

    def say(self) -> None:
        """A heartbeat sets out."""
        pods = [Granted(a_pod(self.granted[number]), {"cpu": KEY[0]}) for number in sorted(self.bound)]
        cores = self.others + sum(self.granted[number] for number in self.bound)
        found = room([Flavor(name="default")], nodes=[NODE], use={"n": {"cpu": cores * 1000}}, granted=pods)
        self.under_way.append(Heartbeat(capacity=found.capacity, used=found.used, ours=found.ours))


def a_pod(cores: int) -> Manifest:
    container = {"resources": {"requests": {"cpu": str(cores)}}}
    return {"spec": {"nodeName": "n", "containers": [container]}, "status": {"phase": "Running"}}


STEPS = st.one_of(
    st.tuples(st.just("place"), st.integers(1, 6)),
    st.tuples(st.just("bind"), st.integers(0, 9)),
    st.tuples(st.just("end"), st.integers(0, 9)),
    st.tuples(st.just("say"), st.just(0)),
    st.tuples(st.just("hear"), st.integers(0, 9)),
)


@given(others=st.integers(0, 10), steps=st.lists(STEPS, max_size=30))
def test_grants_and_others_are_never_more_than_there_is(others: int, steps: list[tuple[str, int]]) -> None:
    worker = Worker(others)
    for step, number in steps:
        match step:
            case "place":
                worker.place(number)
            case "bind" if worker.granted:
                worker.bound.add(number % len(worker.granted))
            case "end" if worker.granted:
                # Its quota comes back when its pods are gone.
                ended = number % len(worker.granted)
                worker.bound.discard(ended)
                worker.granted[ended] = 0
            case "say":
                worker.say()
            case "hear" if worker.under_way:
                worker.reported = worker.under_way.pop(number % len(worker.under_way))
        assert sum(worker.granted) + others <= 10 or not any(worker.granted)
    worker.say()
    worker.reported = worker.under_way[-1]
    free = 10 - others - sum(worker.granted)
    assert not worker.place(free + 1), "more was placed than there is"
    assert free == 0 or worker.place(free), "something was counted twice"
