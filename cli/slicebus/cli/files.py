"""Writes files for commands. Only the user who runs the command may read them, and nobody else on the machine."""

import gzip
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from slicebus.cli import screen
from slicebus.proto.errors import ConfigurationError

_PRIVATE = 0o600
STANDARD_OUTPUT = "-"


@contextmanager
def private_file(name: str) -> Iterator[BinaryIO]:
    """A file to write to, which only its owner may read; `-` for standard output. With the suffix .gz it is compressed.

    An existing file is overwritten, and becomes private before the first byte. Raises ConfigurationError.
    """
    if name == STANDARD_OUTPUT:
        yield screen.binary_output()
        return
    try:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _PRIVATE)
        with open(descriptor, "wb") as file:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.fchmod(descriptor, _PRIVATE)
            if Path(name).suffix == ".gz":
                with gzip.GzipFile(fileobj=file, mode="wb") as compressed:
                    yield compressed  # type: ignore[misc]
            else:
                yield file
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror or error}") from error
