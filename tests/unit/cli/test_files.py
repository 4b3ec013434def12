"""Files of commands: their owner alone may read them."""

import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from slicebus.cli.documents import documents
from slicebus.cli.files import private_file
from slicebus.cli.journal.source import Span
from slicebus.proto.errors import ConfigurationError
from slicebus.proto.topology import manager_topology
from slicebus.sandbox.bus import MemoryBroker
from unit.cli.hostile import call


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("there", [False, True], ids=["new", "there already"])
def test_a_file_is_private(tmp_path: Path, there: bool) -> None:
    path = tmp_path / "export.jsonl"
    if there:
        path.write_text("longer than what follows")
        path.chmod(0o666)
    with private_file(str(path)) as file:
        assert mode(path) == 0o600
        file.write(b"x")
    assert (mode(path), path.read_bytes()) == (0o600, b"x")


def test_a_file_with_its_suffix_is_compressed(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl.gz"
    with private_file(str(path)) as file:
        file.write(b"x")
    assert (mode(path), gzip.decompress(path.read_bytes())) == (0o600, b"x")


def test_a_file_that_cannot_be_written_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"), private_file(str(tmp_path / "nowhere" / "file")):
        pass


def test_what_is_no_file_keeps_its_mode() -> None:
    before = mode(Path(os.devnull))
    with private_file(os.devnull) as file:
        file.write(b"x")
    assert mode(Path(os.devnull)) == before


def test_an_export_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MemoryBroker.named("private").declare(manager_topology())
    monkeypatch.setenv("AMQP_URL", "memory://manager@private")
    path = tmp_path / "export.jsonl"
    assert call("journal", "export", str(path)).status == 0
    assert mode(path) == 0o600
    MemoryBroker.forget("private")


@pytest.mark.parametrize("text", ["a: !!int x", "a: !!timestamp x", "[" * 2000], ids=["a number", "a time", "deep"])
def test_a_file_that_yaml_cannot_read_is_an_error_of_the_user(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="is no YAML"):
        list(documents(str(file)))


def test_a_list_without_a_list_is_an_error_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("kind: List\nitems: 5\n")
    with pytest.raises(ConfigurationError, match="no Kubernetes object"):
        list(documents(str(file)))


def test_a_span_before_all_years_is_an_error_of_the_user() -> None:
    with pytest.raises(ConfigurationError, match="--since 999999d: use 10m"):
        Span.of("999999d")
