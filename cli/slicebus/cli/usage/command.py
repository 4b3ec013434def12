"""The command line of `slicebus usage`."""

from datetime import datetime, timedelta
from typing import Annotated

import typer

from slicebus.ambient.clock import now
from slicebus.cli import screen
from slicebus.cli.cluster.filters import one_of_names, option_of
from slicebus.cli.journal.source import Since, Span, Until
from slicebus.cli.ledger.options import DEFAULT_DATABASE, Database, ledger_extra
from slicebus.cli.usage.rows import GROUPS, UsageFormat, UsageReport, as_csv, as_json, as_table, time_text
from slicebus.proto.errors import ConfigurationError

_LATE_MS = 120_000
"""A ledger that follows is seconds behind."""


def usage(
    database: Database = DEFAULT_DATABASE,
    since: Since = "30d",
    until: Until = None,
    by: Annotated[
        str, typer.Option(metavar="FIELDS", help=f"What to sum by, with commas: {', '.join(GROUPS)}.")
    ] = "queue",
    output: Annotated[
        UsageFormat,
        option_of(UsageFormat, "output format", "--output", "-o", help=f"How to print it: {', '.join(UsageFormat)}."),
    ] = UsageFormat.TABLE,
) -> None:
    """Say who used what, from the database of `slicebus ledger`.

    Pods with quota, ready and idle; what they were admitted with, in hours of each resource; how many waits there were
    and how long; and the pods that were killed. What the ledger does not know is said on standard error, and in JSON.
    No cluster and no broker is asked.
    """
    with ledger_extra():
        from slicebus.cli.ledger.database import check, open_engine
        from slicebus.cli.usage.summing import sum_up
    groups, span = _groups(by), Span.of(since, until)
    since_ms, until_ms = _ms(span.since or now()), _ms(span.until or now())
    if since_ms >= until_ms:
        raise ConfigurationError("--since is not before --until")
    engine = open_engine(database)
    check(engine)
    report = sum_up(engine, since_ms, until_ms, groups)
    _warn(report, since_ms, until_ms)
    from slicebus.cli.cluster.listing import aligned

    match output:
        case UsageFormat.JSON:
            screen.say_json(as_json(report, groups))
        case UsageFormat.CSV:
            screen.say_lines(as_csv(report, groups).rstrip("\n"))
        case UsageFormat.TABLE if report.rows:
            for line in aligned(as_table(report, groups))[0]:
                screen.say(line)
        case UsageFormat.TABLE:
            screen.warn("nothing was used")


def _groups(text: str) -> list[str]:
    """The fields to sum by. An unknown one is an error that names the nearest."""
    parse = one_of_names(GROUPS, "field to sum by")
    return list(dict.fromkeys(parse(name.strip()) for name in text.split(",")))


def _ms(moment: datetime) -> int:
    return (moment - datetime.fromtimestamp(0, moment.tzinfo)) // timedelta(milliseconds=1)


def _warn(report: UsageReport, since_ms: int, until_ms: int) -> None:
    """Say what is not counted."""
    if report.began_ms is None:
        screen.warn("the ledger is empty")
        return
    if since_ms < report.began_ms:
        screen.warn(f"the ledger begins at {time_text(report.began_ms)}")
    if report.since_ms < since_ms and since_ms >= report.began_ms:
        screen.warn(f"whole days are counted, from {time_text(report.since_ms)} on")
    if report.until_ms < until_ms - _LATE_MS:
        screen.warn(f"the ledger knows nothing after {time_text(report.until_ms)}: is `slicebus ledger` running?")
    for span in report.not_known:
        most = f": at most {span.pod_seconds:.0f} pod-seconds are missing" if span.pod_seconds else ""
        screen.warn(f"not known from {time_text(span.since_ms)} to {time_text(span.until_ms)}, {span.reason}{most}")
