"""A worker cluster with the agent's chart."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.accounts import Worker, guarded
from support.controlplane import ControlPlane


@pytest.fixture(scope="module")
def worker(helm: Path, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One for the tests of a module."""
    folder = tmp_path_factory.mktemp("accounts")
    with guarded(control_plane.clusters["east"], helm=helm, folder=folder) as made:
        yield made
