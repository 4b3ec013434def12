"""A store by which a command decides as the manager does."""

from collections.abc import Iterator
from contextlib import contextmanager

from slicebus.cli import screen
from slicebus.cli.cluster.reading import Reading
from slicebus.cli.leaders import Leaders
from slicebus.manager.state.settings import ManagerDecisionSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.errors import ConfigurationError, DecisionError, SlicebusError
from slicebus.slices.api import api_names


@contextmanager
def asked(question: str, of: str = "an object") -> Iterator[None]:
    """End a command with one line where an object has a shape that no API server stores; `of` says which one. Raises
    ConfigurationError."""
    try:
        yield
    except SlicebusError:
        raise
    except Exception as error:
        failed = DecisionError.of(question, error)
        raise ConfigurationError(f"{of} has a shape that no API server stores: {failed}") from error


def decisive(reading: Reading, leaders: Leaders) -> ManagerStore:
    """The store of a reading, set as the manager is. Raises ConfigurationError where it lacks what decides."""
    store = reading.store
    if store.beside_kueue:
        raise ConfigurationError("a Kueue admits here: only it knows what it would decide")
    if not reading.sight.quota:
        raise ConfigurationError(
            f"{reading.unseen}: nobody can tell what a cycle decides without them. The manager tells it on a job that "
            f'has the annotation {api_names.DRY_RUN_ANNOTATION}: "true"'
        )
    take_settings(store, leaders.settings, "the manager does not say how its decisions are set")
    return store


def take_settings(store: ManagerStore, settings: ManagerDecisionSettings | None, unsaid: str) -> None:
    """Set a store as a manager is; where that is unknown, say so, and leave it the defaults."""
    if settings is None:
        screen.warn(f"{unsaid}: this goes by the defaults")
    else:
        store.configure(settings.leading())
