"""Fixtures for every test."""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings
from pytest_asyncio import is_async_test
from structlog.dev import ConsoleRenderer, plain_traceback

from slicebus.sandbox.bus import MemoryBroker
from support.failed_decisions import failed_decisions

pytest_plugins = ["support.servers", "support.testers"]
_RENDERER = ConsoleRenderer(exception_formatter=plain_traceback)


def pytest_configure() -> None:
    """End on SIGINT, and let children do so. A shell starts what runs in its background with SIGINT ignored. No example
    of a property is late: on a busy machine any of them may be. Nothing is garbage while tests are collected."""
    gc.disable()
    _log_plainly()
    suppressed = {*settings.default.suppress_health_check, HealthCheck.too_slow}
    settings.register_profile("patient", parent=settings.default, deadline=None, suppress_health_check=suppressed)
    settings.load_profile("patient")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Spare the garbage collections the tests themselves, which stay: to visit 13,000 of them takes half a second."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which parts the fleets of tests/e2e run on."""
    parser.addoption(
        "--real", action="store_true", help="run the fleets of tests/e2e on real servers, and nothing else"
    )


@pytest.fixture(autouse=True)
def no_leaked_tasks(request: pytest.FixtureRequest) -> None:
    """Fail a test that leaves tasks behind. One without tasks is spared the loop."""
    if is_async_test(request.node):
        request.getfixturevalue("tasks_counted")


@pytest.fixture
async def tasks_counted() -> AsyncIterator[None]:
    """Fail when there are more tasks at the end."""
    before = asyncio.all_tasks()
    yield
    leaked = {task for task in asyncio.all_tasks() - before if not task.done()} - {asyncio.current_task()}
    assert not leaked, f"leaked tasks: {sorted(task.get_name() for task in leaked)}"


@pytest.fixture(autouse=True)
def logging_put_back() -> Iterator[None]:
    """Undo what a test configures: logging is the process' own, and a level that stays hides the next test's logs."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    _log_plainly()


def _log_plainly() -> None:
    """Log as structlog does, but for the variables in tracebacks: one takes a second, and the loop waits for it."""
    structlog.reset_defaults()
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], _RENDERER])


@pytest.fixture(autouse=True)
def no_failed_decisions(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which a decision raised: the roles set its object aside, and go on."""
    with failed_decisions() as failed:
        yield
    assert not failed or request.node.get_closest_marker("decisions_fail"), failed


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Real CRDs that lie beside the checkout on some machines."""
    path = Path(__file__).parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("no ../shared with the real CRDs beside the checkout")
    return path


@pytest.fixture
def broker_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """An in-process broker of the test's own."""
    name = f"test-{abs(hash(request.node.nodeid)):x}"
    yield name
    MemoryBroker.forget(name)
