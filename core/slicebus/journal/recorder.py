"""Records a role's inputs and decisions, without ever delaying or failing the role.

Resource handling: records are encoded at once and wait in a bounded buffer. One task publishes them in batches, when
the first has waited long enough or a batch is full. When the recording ends, the rest has `_FINAL_S` to be published.

Error handling: a batch that cannot be published is retried with backoff, under the same number. If the buffer fills
meanwhile, all of it is dropped and counted, and so is every record until a publish succeeds: nobody can use a record
between a gap and the next snapshot. Then a `Gap` and a snapshot are recorded.

The stream's retention cuts off the beginning of a recording, so it has to be usable from the middle on. A snapshot is
therefore taken at the start, whenever the changes since the last one are several times its size, and after some time,
sooner where the state is small. Snapshots are at most a fifth of what is recorded, or `_SNAPSHOT_BYTES_S`.
"""

import asyncio
import itertools
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.clock import now
from slicebus.bus.contract import Bus
from slicebus.journal.recording import (
    UNWRITABLE,
    Gap,
    Noted,
    Put,
    Record,
    Source,
    encode_batch,
    encode_record,
    encode_snapshot_part,
)
from slicebus.journal.redaction import Redactor
from slicebus.proto.errors import SlicebusError

_log = structlog.get_logger()
_KEY_BYTES = 32
WAIT_S = 0.25
_BETWEEN_PARTS_S = 0.05
"""A snapshot goes on after each batch."""
_BATCH_BYTES = 64 * 1024
_MOST_BYTES = 8 * 1024 * 1024
"""About as much as a busy manager records in a minute: a broker that restarts leaves no gap."""
_BACKOFF = Backoff(first_s=0.5, most_s=30.0)
_FINAL_S = 2.0
_SNAPSHOT_LEAST_BYTES = 16 * 1024 * 1024
_SNAPSHOT_RATIO = 4
_SNAPSHOT_FIRST_S = 600.0
_SNAPSHOT_MOST_S = 3600.0
_SNAPSHOT_BYTES_S = 2000.0

Content = Callable[[], Iterator[Put | Noted]]
"""The whole state at the time of the call, whatever changes while it is iterated over."""


class Recorder:
    """Publishes the records of one source to the stream."""

    def __init__(self, bus: Bus, source: Source, *, registry: CollectorRegistry, wait_s: float = WAIT_S) -> None:
        """`wait_s` is how long a record waits for others, in seconds. A crash loses those that wait."""
        self.redactor = Redactor.keyed(secrets.token_bytes(_KEY_BYTES))
        """Takes secrets out of what is recorded. The key goes with the process."""
        self._bus = bus
        self._source = source
        self._wait_s = wait_s
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._unconfirmed: list[bytes] | None = None
        self._number = 0
        self._dropped = 0
        self._has_left_out = False
        self._content: Content = lambda: iter(())
        self._snapshot: Iterator[bytes] | None = None
        self._snapshot_bytes = 0
        self._since_snapshot = 0
        self._snapshot_at = 0.0
        self._some = asyncio.Event()
        self._full = asyncio.Event()
        self._confirmed = Counter(
            "slicebus_recording_bytes", "Bytes of recorded decisions that the broker has confirmed.", registry=registry
        )
        self._lost = Counter("slicebus_recording_dropped", "Records that could not be kept.", registry=registry)

    def begin(self, first: Record, content: Content) -> None:
        """Record the beginning and the whole state. From now on `add` records."""
        self._content = content
        self.add(lambda: first)
        self._begin_snapshot()

    def add(self, make: Callable[[], Record]) -> None:
        """Record what `make` returns. Never blocks and never raises: an object that cannot be encoded, such as one
        that is nested too deep, must not end the role's work."""
        try:
            encoded = encode_record(make())
        except UNWRITABLE as error:
            self.leave_out(error)
            return
        if self._dropped:
            # Encoded all the same: `make` remembers the object, and later differences refer to it.
            self._drop(1)
            return
        self._since_snapshot += len(encoded)
        self._keep(encoded)
        if self._bytes > _MOST_BYTES:
            self._drop(len(self._waiting))
            self._waiting, self._bytes, self._snapshot = [], 0, None
            _log.warning("recording.overflow", source=str(self._source))

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Publish records while the context lasts, and then the rest."""
        task = asyncio.create_task(self._run(), name="record")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # Not `asyncio.timeout`: where a task group has ended with an error before, that of Python before 3.11.3
            # raises a cancellation in place of the error, and nobody learns that the role has ended.
            with suppress(TimeoutError, SlicebusError):
                await asyncio.wait_for(self._publish_rest(), _FINAL_S)

    async def _publish_rest(self) -> None:
        while self._waiting or self._unconfirmed:
            await self._publish()

    async def _run(self) -> None:
        while True:
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s if self._snapshot is None else _BETWEEN_PARTS_S):
                    await self._full.wait()
            self._continue_snapshot()
            await self._publish_batch()
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self.add(partial(Gap, dropped=dropped))
                self._begin_snapshot()
            elif self._snapshot is None and self._snapshot_is_due():
                self._begin_snapshot()

    async def _publish_batch(self) -> None:
        """Publish the next batch, retrying until it succeeds. The first failure is logged: the bus says the rest."""
        for failures in itertools.count(1):
            try:
                await self._publish()
            except SlicebusError as error:
                if failures == 1:
                    _log.warning("recording.unpublished", source=str(self._source), error=str(error))
                await asyncio.sleep(_BACKOFF.pause_s(failures))
            else:
                return

    async def _publish(self) -> None:
        if self._unconfirmed is None:
            self._unconfirmed = self._take()
        message = encode_batch(self._source, self._number, self._unconfirmed, user=self._bus.user, at=now())
        await self._bus.publish(self._source.exchange, message)
        self._unconfirmed = None
        self._number += 1
        self._confirmed.inc(len(message.body))

    def _keep(self, encoded: bytes) -> None:
        self._waiting.append(encoded)
        self._bytes += len(encoded)
        self._some.set()
        if self._bytes >= _BATCH_BYTES:
            self._full.set()

    def _take(self) -> list[bytes]:
        """The waiting records, up to the size of a batch."""
        size = count = 0
        for record in self._waiting:
            size += len(record)
            count += 1
            if size >= _BATCH_BYTES:
                break
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= size
        if self._bytes < _BATCH_BYTES:
            self._full.clear()
        if not self._waiting and self._snapshot is None:
            self._some.clear()
        return taken

    def _drop(self, count: int) -> None:
        self._dropped += count
        self._lost.inc(count)

    def leave_out(self, error: Exception) -> None:
        """Count a record that nobody can write. It is no gap: a snapshot would not have the object either. The first
        one is logged, as the object comes again with each of its changes and each snapshot."""
        self._lost.inc()
        if not self._has_left_out:
            _log.warning("recording.unwritable", source=str(self._source), error=str(error))
        self._has_left_out = True

    def _snapshot_is_due(self) -> bool:
        if self._since_snapshot > max(_SNAPSHOT_LEAST_BYTES, _SNAPSHOT_RATIO * self._snapshot_bytes):
            return True
        pause_s = min(max(_SNAPSHOT_FIRST_S, self._snapshot_bytes / _SNAPSHOT_BYTES_S), _SNAPSHOT_MOST_S)
        return asyncio.get_running_loop().time() > self._snapshot_at + pause_s

    def _begin_snapshot(self) -> None:
        """Record the first part at once: a snapshot shows the state at that moment."""
        self._snapshot = _parts(self._content(), self.leave_out)
        self._snapshot_bytes = self._since_snapshot = 0
        self._snapshot_at = asyncio.get_running_loop().time()
        self._record_part(self._snapshot)

    def _continue_snapshot(self) -> None:
        """Record as many parts as fit into a batch; other records go between them."""
        while self._snapshot is not None and self._bytes < _BATCH_BYTES:
            self._record_part(self._snapshot)

    def _record_part(self, parts: Iterator[bytes]) -> None:
        part = next(parts, None)
        if part is None:
            self._snapshot = None
        else:
            self._snapshot_bytes += len(part)
            self._keep(part)


def _parts(content: Iterator[Put | Noted], leave_out: Callable[[Exception], None]) -> Iterator[bytes]:
    """A snapshot as records of about half a batch. `leave_out` gets the error of an entry that cannot be written."""
    entries: list[bytes] = []
    part = size = 0
    for entry in content:
        if size > _BATCH_BYTES // 2:
            yield encode_snapshot_part(part, entries, last=False)
            part, size, entries = part + 1, 0, []
        try:
            entries.append(encode_record(entry))
            size += len(entries[-1])
        except UNWRITABLE as error:
            leave_out(error)
    yield encode_snapshot_part(part, entries, last=True)
