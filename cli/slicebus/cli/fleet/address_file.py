"""The files with an address and its password: only their owner can read them, and nothing else is overwritten."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slicebus.proto.errors import ConfigurationError

_BEGIN = "url="
"""How the one line of an agent's file begins: the key of the Secret that is made of it."""
_OTHERWISE = "or name another file with --out"


def check_writable(file: Path, user: str, *, force: bool) -> None:
    """Raise ConfigurationError where the file is there, unless it has an older address of the user and `force` says
    that it may go."""
    try:
        text = file.read_text()
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError):
        text = ""
    if not _is_address_of(user, text):
        raise ConfigurationError(
            f"{file} is there, and is no address of the broker user {user}: move it away, {_OTHERWISE}"
        )
    if not force:
        raise ConfigurationError(
            f"{file} is there, with an address of the broker user {user}: --force overwrites it, {_OTHERWISE}"
        )


def write(file: Path, text: str) -> None:
    """Write the file, whole or not at all, over whatever is there. Raises ConfigurationError."""
    new = file.with_name(f".{file.name}.new")
    try:
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
        new.replace(file)
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}; name another with --out") from error


def write_new(file: Path, text: str) -> None:
    """Write a file that is not there yet. Raises ConfigurationError where there is one."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(text)
    except OSError as error:
        raise ConfigurationError(f"{file}: {error.strerror}; move it away, or name another with --out") from error


def _is_address_of(user: str, text: str) -> bool:
    lines = text.splitlines()
    if len(lines) != 1 or not lines[0].startswith(_BEGIN):
        return False
    try:
        parts = urlsplit(lines[0].removeprefix(_BEGIN))
    except ValueError:
        return False
    return parts.scheme in ("amqp", "amqps") and unquote(parts.username or "") == user
