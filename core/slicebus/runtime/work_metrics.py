"""Shows what a role has not done yet: the keys of its work queue, and the messages that it has received."""

import asyncio
from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slicebus.bus.lanes import Backlog
from slicebus.kube.workqueue import WorkQueue

Key = TypeVar("Key", bound=Hashable)


class WorkMetrics(Collector):
    """The gauges of one queue of keys and one backlog of messages, at the moment of a scrape."""

    def __init__(self, queue: WorkQueue[Key], backlog: Backlog) -> None:
        self._queue = queue
        self._backlog = backlog

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: otherwise the registry would collect when this is registered."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Each of them. Ages are in seconds, 0 where nothing waits."""
        queue = self._queue
        yield GaugeMetricFamily("slicebus_work_queue_depth", "Jobs that wait for a worker of this role.", queue.depth)
        text = "The age of the oldest job that waits for a worker; 0 without one."
        yield GaugeMetricFamily("slicebus_work_queue_oldest_seconds", text, _age_s(queue.waiting_since_s))
        text = "Jobs queued again after a failure: transient (retried), refused by the API server, or set aside."
        retries = CounterMetricFamily("slicebus_work_queue_retries", text, labels=("reason",))
        for reason, count in queue.retries.items():
            retries.add_metric((reason.value,), count)
        yield retries
        text = "The age of the oldest change, of an object or by a message, that this role has not dealt with."
        oldest_s = max(_age_s(queue.due_since_s), _age_s(self._backlog.since_s))
        yield GaugeMetricFamily("slicebus_oldest_unreconciled_seconds", text, oldest_s)


def _age_s(since_s: float | None) -> float:
    return 0.0 if since_s is None else asyncio.get_running_loop().time() - since_s
