"""The releases of RabbitMQ that are on this machine: Debian's package, and the newer one that tests/tools unpacks."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.tools import cache

_INSTALLED = Path("/usr/lib/rabbitmq")


class Release(msgspec.Struct, frozen=True):
    """One of them. A folder with data of one does not open in another."""

    version: str
    home: Path
    """Its folder with `bin` and `lib`."""
    erlang: Path | None = None
    """Where its own Erlang's programs are; None for the machine's."""

    @property
    def server(self) -> Path:
        """The program that is a node."""
        return self.home / "bin" / "rabbitmq-server"

    @property
    def ctl(self) -> Path:
        """The program `rabbitmqctl`."""
        return self.home / "bin" / "rabbitmqctl"

    @property
    def path(self) -> str:
        """Where a shell looks for its programs."""
        own = [self.home / "bin", *([self.erlang] if self.erlang else [])]
        return ":".join([*map(str, own), "/usr/sbin:/usr/bin:/sbin:/bin"])


def releases() -> list[Release]:
    """The newest one first; empty where there is none."""
    return sorted(_found(), key=lambda release: [int(part) for part in release.version.split(".")], reverse=True)


def _found() -> Iterator[Release]:
    unpacked = cache() / "rabbitmq4"
    places = [(_INSTALLED, None)]
    if (unpacked / ".ready").exists():
        places.append((unpacked / "usr/lib/rabbitmq", unpacked / "usr/lib/erlang/bin"))
    for home, erlang in places:
        for path in home.glob("lib/rabbitmq_server-*"):
            yield Release(path.name.rpartition("-")[2], home, erlang)


def told() -> str:
    """A line about what the tests run on."""
    newest, *older = [release.version for release in releases()] or ["none"]
    beside = f", and {' and '.join(older)} where a test is about the broker" if older else ""
    return f"RabbitMQ: {newest}{beside}"


EACH = [
    pytest.param(release, id=f"rabbitmq-{release.version}" if release else "rabbitmq", marks=pytest.mark.rabbitmq)
    for release in releases() or [None]
]
"""Parameters of a test or a fixture that has to do with each of them; one that is None where there is none."""
every_rabbitmq = pytest.mark.parametrize("rabbitmq_release", EACH, indirect=True)
"""Marks tests that run on each of them. Every other test runs on the newest."""
