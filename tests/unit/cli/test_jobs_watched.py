"""`slicebus jobs --watch` goes on while what its filter names is deleted and comes back."""

from types import SimpleNamespace
from typing import Any

import pytest

from slicebus.cli.cluster import reading, showing
from slicebus.cli.cluster.options import OutputFormat, Scope, Watch
from slicebus.cli.jobs.command import JobFilter, _jobs
from slicebus.kube.cache import Cache
from slicebus.kube.resources import CLUSTERQUEUES
from slicebus.manager.decide.problems import Sight
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError

CLIENT = SimpleNamespace(namespace="team")
LEADERS: Any = SimpleNamespace(seen=lambda sight: sight)


def a_queue(name: str) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTERQUEUES.api_version,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1"},
        "spec": {"namespaceSelector": {}},
    }


class Watched:
    """A cluster of two queues, and what is shown of its jobs each time that something has changed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.changes = ManagerStore(), list[Any]()
        for name in ("batch", "other"):
            self.queues.put(a_queue(name))
        self.shown = 0
        monkeypatch.setattr(reading, "read", self._read)
        monkeypatch.setattr(showing, "show", self._show)

    @property
    def queues(self) -> Cache:
        return self.store.cluster_queues

    async def _read(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(store=self.store, sight=Sight())

    async def _show(self, _: Any, __: Any, rows: Any, **___: Any) -> None:
        rows()
        for change in self.changes:
            change()
            rows()
            self.shown += 1

    async def watch(self, queue: str) -> None:
        wanted = JobFilter(queue=queue)
        await _jobs(CLIENT, Scope(), wanted, OutputFormat(), Watch(watch=True), LEADERS)  # type: ignore[arg-type]


async def test_a_queue_that_is_deleted_while_somebody_watches_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch)
    watched.changes = [
        lambda: watched.queues.remove(a_queue("batch")),
        lambda: watched.queues.put(a_queue("batch")),
    ]
    await watched.watch("batch")
    assert watched.shown == 2


async def test_a_queue_that_is_not_there_at_first_is_an_error_that_names_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigurationError, match="did you mean batch"):
        await Watched(monkeypatch).watch("bacth")
