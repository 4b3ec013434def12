"""Sends traces to OpenTelemetry: those of one job, or of a journal that is followed."""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from datetime import datetime

from slicebus.ambient.backoff import Backoff
from slicebus.ambient.cancellation import TaskGroup
from slicebus.ambient.clock import now
from slicebus.cli import screen
from slicebus.cli.journal.source import STREAM, Span, entries
from slicebus.cli.names import is_asked_for
from slicebus.cli.trace.otlp import OtlpReceiver, otlp_receiver
from slicebus.journal.entry import matching
from slicebus.journal.redaction import Redactor
from slicebus.journal.spans import TraceSpan, is_over, spans
from slicebus.journal.trace_follower import TraceFollower
from slicebus.journal.traces import Trace
from slicebus.proto.errors import SlicebusError, UnavailableError

_LOOK_S = 1.0
_MOST_WAITING = 20_000
"""Spans that wait for a receiver that does not answer: some 20 MB."""
_BACKOFF = Backoff(first_s=1.0, most_s=30.0)


async def send(changes: Iterable[Trace], endpoint: str) -> None:
    """Send the changes that are over, and say how many. Raises UnavailableError and a PermanentError where the receiver
    does not take them."""
    changes = list(changes)
    over = [change for change in changes if is_over(change)]
    redactor = Redactor()
    async with otlp_receiver(endpoint) as receiver:
        await receiver.send([span for change in over for span in spans(change, redactor)])
    left = len(changes) - len(over)
    screen.warn(
        f"{receiver.address}: sent {_changes(len(over))}" + (f"; {_changes(left)} not over yet" if left else "")
    )


async def follow_journal(job: str, since: datetime, endpoint: str, *, amqp_url: str | None) -> None:
    """Send each change that begins from `since` on once it is over, until cancelled. An empty `job` is every job.

    A receiver that does not answer is tried again for ever. Raises a PermanentError where it refuses spans: then
    something is set up wrong.
    """
    follower = TraceFollower(lambda key: not job or is_asked_for(key, job), since=since)

    async def read() -> None:
        wanted = matching(decisions=True)
        journal = entries(STREAM, Span(since), wanted, amqp_url=amqp_url, follow=True, decisions=True)
        async with aclosing(journal) as found:
            async for entry in found:
                follower.feed(entry, now=now())

    async with otlp_receiver(endpoint) as receiver:
        screen.warn(f"following the journal for {receiver.address}")
        try:
            async with TaskGroup() as group:
                group.create_task(read(), name="journal")
                group.create_task(_pass_on(follower, receiver), name="otlp")
        except ExceptionGroup as failed:
            if (error := _only_one(failed)) is not None:
                raise error from failed
            raise


def _changes(number: int) -> str:
    return f"{number} change" if number == 1 else f"{number} changes"


async def _pass_on(follower: TraceFollower, receiver: OtlpReceiver) -> None:
    waiting: deque[TraceSpan] = deque()
    failures = lost = 0
    while True:
        await asyncio.sleep(_BACKOFF.pause_s(failures) if failures else _LOOK_S)
        waiting += follower.due(now())
        lost += max(len(waiting) - _MOST_WAITING, 0)
        while len(waiting) > _MOST_WAITING:
            waiting.popleft()
        if not waiting:
            continue
        sent = list(waiting)
        try:
            await receiver.send(sent)
        except UnavailableError as error:
            failures += 1
            if failures == 1:
                screen.warn(f"{error}; spans wait for it")
            continue
        if failures:
            screen.warn(f"{receiver.address} takes spans again; {lost} were lost")
        failures = lost = 0
        waiting.clear()


def _only_one(group: ExceptionGroup[Exception]) -> SlicebusError | None:
    """The error that one line can say; None for an error of the program, or several."""
    match group.exceptions:
        case (SlicebusError() as error,):
            return error
        case _:
            return None
