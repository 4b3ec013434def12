"""Reads the manager's objects of a moment of the past from the journal, as a command reads those of the present; and
from a ledger what that knows, where the journal does not have the moment."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime, timedelta

import msgspec

from slicebus.ambient.clock import ambient, now, randomness
from slicebus.bus.contract import Record
from slicebus.cli import screen
from slicebus.cli.cluster.reading import configure
from slicebus.cli.durations import local_time
from slicebus.cli.journal.source import STANDARD_INPUT, STREAM, records_of_manager
from slicebus.cli.journal.turns import in_turns
from slicebus.cli.leaders import Leaders
from slicebus.cli.ledger.options import ledger_extra
from slicebus.cli.past.ledger_rows import LedgerReading
from slicebus.cli.past.moments import OPTION, later_second, moment_of, span_text
from slicebus.cli.past.options import PastMoment
from slicebus.decisions.past import Past, PastState
from slicebus.journal.beginnings import BEFORE
from slicebus.journal.entry import Entry
from slicebus.journal.recording_reader import malformed_refused
from slicebus.journal.redaction import Redactor
from slicebus.manager.decide.catalog import MODEL
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings, Shard
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError

_QUIET = timedelta(minutes=2)
"""With a worker cluster, which it hears or misses, a manager records something every few seconds. Where one has not for
so long, none has worked."""


class NotRecordedError(ConfigurationError):
    """The journal does not have the moment, and may have had it once."""


class PastReading(msgspec.Struct, frozen=True):
    """The manager's objects at a moment, as it knew them."""

    store: ManagerStore
    at: datetime
    seen: datetime
    """The time of the manager's last record by then."""
    settings: LeaderSettings
    """By which it decided."""

    def decisive(self) -> ManagerStore:
        """The store, set as the manager was, so that it decides as that did. Raises ConfigurationError beside a
        Kueue."""
        if self.settings.admission is AdmissionModeName.KUEUE:
            raise ConfigurationError("a Kueue admitted then: only it knows what it would have decided")
        self.store.configure(msgspec.structs.replace(self.settings, shard=Shard()))
        return self.store

    @property
    def leaders(self) -> Leaders:
        """Whether a manager worked then. Who it was is not in the journal."""
        if self.at - self.seen <= _QUIET or not len(self.store.clusters):
            return Leaders()
        return Leaders((f"no manager recorded anything from {local_time(self.seen)} on",), fleet_is_known=False)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let the moment be the present while something is shown, after saying what is wrong with it. Exit status 1
        afterwards where no manager worked: what was shown is then as old as its last record."""
        for problem in self.leaders.problems:
            screen.fail(f"✗ {problem}: this is what it knew then")
        with at_moment(self.at):
            yield
        self.leaders.exit()


@contextmanager
def at_moment(at: datetime) -> Iterator[None]:
    """Let a moment be the present while what was recorded is shown. Raises InvalidError where there are objects that no
    manager records."""
    with ambient(clock=lambda: at, random=randomness()), malformed_refused("the journal has objects", role="manager"):
        yield


def read_past(options: PastMoment, at: str, namespace: str | None) -> PastReading | LedgerReading:
    """Read the objects of a namespace, or of all for None, and those that have none.

    A ledger is read where there is one and no journal, or the journal does not have the moment: it knows less. Raises
    ConfigurationError, with the span that is known, for a moment that neither knows.
    """
    moment = moment_of(at, now())
    if options.ledger and not options.has_journal:
        return read_ledger(options.ledger, moment)
    try:
        return read_journal(options, moment, namespace)
    except NotRecordedError as error:
        if not options.ledger:
            raise
        screen.warn(str(error))
        return read_ledger(options.ledger, moment)


def read_journal(options: PastMoment, moment: datetime, namespace: str | None = None) -> PastReading:
    """Read the objects of a namespace, or of all for None, as the manager knew them. Raises ConfigurationError, with
    the span of the journal, for a moment that it does not have."""
    return past_reading(asyncio.run(find_past(options, moment)), moment, namespace)


def read_ledger(address: str, moment: datetime, *, option: str = OPTION) -> LedgerReading:
    """What a ledger knows of a moment. Raises ConfigurationError, which names the option, for one that it does not
    know."""
    with ledger_extra():
        from slicebus.cli.ledger.moments import read_moment
    found = read_moment(address, round(moment.timestamp() * 1000), option=option)
    return LedgerReading(found, moment)


def past_reading(found: PastState, at: datetime, namespace: str | None = None) -> PastReading:
    """What a command would have read of the API server then, in a namespace or in all. Of a large fleet it takes
    seconds. Raises InvalidError."""
    assert isinstance(found.state, ManagerStore)
    with malformed_refused("the journal has objects", role="manager"):
        return PastReading(_as_read(found.state, namespace), at, found.seen, found.state.settings)


def require_queues(store: ManagerStore) -> None:
    """Raises ConfigurationError beside a Kueue: the manager does not watch its queues there."""
    if store.beside_kueue:
        raise ConfigurationError("a Kueue admits here: the manager's journal does not have its queues")


async def find_past(options: PastMoment, at: datetime, *, option: str = OPTION) -> PastState:
    """The manager's state at a moment. Others get their turn meanwhile. Raises ConfigurationError, which names the
    option, with the span of the journal for a moment at which it does not know the state."""
    past, span = Past(at, "manager", MODEL), _Span()
    if options.source == STREAM and at > now():
        raise await _refused(options, at, "is in the future", span, option, ConfigurationError)
    reading = records_of_manager(options.source, at - BEFORE, amqp_url=options.amqp_url)
    async with aclosing(in_turns(reading)) as records:
        async for record in records:
            span.see(record)
            past.feed(record)
            if past.is_complete:
                break
    found = past.state
    if span.first is not None and at < span.first:
        raise await _refused(options, at, "is before the first record", span, option)
    if options.source != STREAM and span.last is not None and at > span.last:
        raise await _refused(options, at, "is after the last record", span, option)
    if found is None:
        from_when = (
            f"is not recorded, that from {later_second(past.known_from)} on is"
            if past.known_from
            else "is not recorded"
        )
        raise await _refused(options, at, f"the state of that moment {from_when}", span, option)
    return found


class _Span:
    """The times of the first and the last record that was read."""

    def __init__(self) -> None:
        self.first: datetime | None = None
        self.last: datetime | None = None

    def see(self, record: Record) -> None:
        published = Entry.from_record(record).published
        self.first, self.last = self.first or published, published or self.last


async def _refused(
    options: PastMoment,
    at: datetime,
    why: str,
    span: _Span,
    option: str,
    kind: type[ConfigurationError] = NotRecordedError,
) -> ConfigurationError:
    """What to say of a moment that is not in the journal. `span` is what was read of it, which may be a part."""
    is_stream = options.source == STREAM
    if options.source != STANDARD_INPUT:
        span = _Span()
        async with aclosing(records_of_manager(options.source, "first", amqp_url=options.amqp_url)) as records:
            async for record in records:
                span.see(record)
                if is_stream:
                    break
    return kind(f"{option} {local_time(at)}: {why}; {span_text(span.first, None if is_stream else span.last)}")


def _as_read(state: ManagerStore, namespace: str | None) -> ManagerStore:
    """What a command would have read of the API server: the objects, without secrets, and none of the manager's tables.
    Both show the same then."""
    store, redactor = ManagerStore(), Redactor()
    caches = dict(store.decides_by())
    for resource, cache in state.decides_by():
        for manifest in cache.all():
            if namespace is None or not resource.namespaced or manifest["metadata"]["namespace"] == namespace:
                caches[resource].put(redactor.value({name: manifest[name] for name in manifest}))
    configure(store)
    return store
