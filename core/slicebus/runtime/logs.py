"""structlog, once a process."""

import logging
import sys
from typing import Annotated, Literal

import msgspec
import structlog

LogFormat = Literal["json", "console"]
LogLevel = Annotated[str, msgspec.Meta(pattern="(?i)^(debug|info|warning|error|critical)$")]


def configure_logging(*, format: LogFormat = "json", level: LogLevel = "INFO") -> None:
    """Log events to standard error: one JSON object a line, or columns for people.

    What libraries log by the standard library's logging comes out the same way, from WARNING on.
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
