"""Configures structlog, once a process."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Annotated, Any, Literal

import msgspec
import structlog

from slicebus.journal.printable import printable, printable_lines

_TOLD_TWICE = "aiormq.connection"
"""The library's logger of failures that it raises too, which whoever retries logs."""
LogFormat = Literal["json", "console"]
LogLevel = Annotated[str, msgspec.Meta(pattern="(?i)^(debug|info|warning|error|critical)$")]


def configure_logging(*, format: LogFormat = "json", level: LogLevel = "INFO") -> None:
    """Log events to standard error: one JSON object a line, or columns for people.

    Libraries' records of the standard library's logging come out the same way, from WARNING on. No text of others
    controls the terminal: JSON escapes all but ASCII.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer() if format == "json" else structlog.dev.ConsoleRenderer()
    )
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        *([] if format == "json" else [_made_printable]),
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=max(threshold, logging.WARNING), force=True)
    logging.getLogger(_TOLD_TWICE).setLevel(logging.CRITICAL)


def _made_printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The event, its texts without characters that a terminal acts on. A traceback keeps its lines."""
    return {
        name: (printable_lines if name == "exception" else printable)(value) if isinstance(value, str) else value
        for name, value in event.items()
    }
