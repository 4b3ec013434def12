"""Reads from the settings where the broker is and how a user logs in, and refuses what cannot work. Pure."""

import ipaddress
from enum import StrEnum
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from slicebus.proto.errors import ConfigurationError

URL = "AMQP_URL"
HOSTS = "SLICEBUS_AMQP_HOSTS"
INSECURE = "SLICEBUS_AMQP_INSECURE"
CA_FILE = "SLICEBUS_AMQP_CA_FILE"
CERT_FILE = "SLICEBUS_AMQP_CERT_FILE"
KEY_FILE = "SLICEBUS_AMQP_KEY_FILE"
PASSWORD_FILE = "SLICEBUS_AMQP_PASSWORD_FILE"

PORTS = {"amqp": 5672, "amqps": 5671}
"""The port of a host that names none."""


class Insecure(StrEnum):
    """A risk that somebody has to accept by name."""

    PLAINTEXT = "plaintext"
    """amqp:// to another machine: whoever is on the way reads the password and every message, and can change them."""
    UNVERIFIED = "unverified"
    """amqps:// with no_verify_ssl: whoever answers is taken for the broker."""


class Host(msgspec.Struct, frozen=True):
    """One node of the broker."""

    name: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine is on the way there."""
        if self.name == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.name).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the settings that go with the broker's address. Files are read at each new connection."""

    hosts: str = ""
    """The broker's nodes, `HOST:PORT` with commas between, instead of the host of the address."""
    insecure: Insecure | None = None
    ca_file: str | None = None
    """The certificate authorities that the broker's certificate may come from; None trusts the machine's."""
    cert_file: str | None = None
    """The client's certificate, PEM."""
    key_file: str | None = None
    """Its private key; None where the certificate's file has it."""
    password_file: str | None = None
    """The password of the user in the address, where that has none."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's address, taken apart."""

    parts: SplitResult
    hosts: tuple[Host, ...]

    @property
    def is_encrypted(self) -> bool:
        """Whether it is amqps://."""
        return self.parts.scheme == "amqps"

    @property
    def skips_verification(self) -> bool:
        """Whether it has no_verify_ssl."""
        return self.option("no_verify_ssl") not in (None, "0")

    def option(self, name: str) -> str | None:
        """An option after the question mark; None where it is not there."""
        values = parse_qs(self.parts.query).get(name)
        return values[-1] if values else None

    def __str__(self) -> str:
        """The address without user, password and options."""
        return f"{self.parts.scheme}://{','.join(map(str, self.hosts))}{self.parts.path}"


def address_of(url: str, access: Access) -> Address:
    """Read the broker's address. Raises ConfigurationError, which names the variable, for what cannot or must not work.

    Loopback needs no encryption: whoever reads it can read this process and its password too. A proxy that listens
    there and forwards to another machine has to encrypt itself.
    """
    parts = _split(url)
    try:
        port = parts.port or PORTS[parts.scheme]
    except ValueError as error:
        # The text of urlsplit may hold a part of a password.
        text = f"{URL}: its host and port cannot be read; special characters in a password are written as %2F"
        raise ConfigurationError(text) from error
    if access.hosts:
        hosts = tuple(_host(text.strip(), port) for text in access.hosts.split(","))
    elif parts.hostname:
        hosts = (Host(parts.hostname, port),)
    else:
        raise ConfigurationError(f"{URL} names no host")
    address = Address(parts=parts, hosts=hosts)
    _check_encryption(address, access)
    _check_login(address, access)
    return address


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigurationError(f"{URL} cannot be read: {_use()}") from error
    if parts.scheme not in PORTS:
        # What stands before the first colon may be a user, and after it a password.
        scheme = f"{parts.scheme}:// is no broker's address" if "://" in url else "it has no amqps://"
        raise ConfigurationError(f"{URL}: {scheme}: {_use()}")
    return parts


def _use() -> str:
    return "use amqps://USER:PASSWORD@HOST:5671/VHOST"


def _host(text: str, port: int) -> Host:
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.netloc == text and "@" not in text:
            return Host(parts.hostname, parts.port or port)
    except ValueError:
        pass
    raise ConfigurationError(f"{HOSTS}: {text!r} is no HOST:PORT")


def _check_encryption(address: Address, access: Access) -> None:
    away = next((host for host in address.hosts if not host.is_loopback), None)
    if not address.is_encrypted:
        if away is not None and access.insecure is not Insecure.PLAINTEXT:
            problem = f"plain amqp:// to {away.name} shows the password and every message to whoever is on the way"
            raise ConfigurationError(f"{URL}: {problem}: use amqps://, or set {INSECURE}={Insecure.PLAINTEXT}")
        for name, value in ((CA_FILE, access.ca_file), (CERT_FILE, access.cert_file), (KEY_FILE, access.key_file)):
            if value:
                raise ConfigurationError(f"{name} needs amqps:// in {URL}")
    elif address.skips_verification and access.insecure is not Insecure.UNVERIFIED:
        problem = "no_verify_ssl takes whoever answers for the broker"
        raise ConfigurationError(
            f"{URL}: {problem}: remove it, and name the broker's authority in {CA_FILE}, or set "
            f"{INSECURE}={Insecure.UNVERIFIED}"
        )


def _check_login(address: Address, access: Access) -> None:
    if access.key_file and not access.cert_file:
        raise ConfigurationError(f"{KEY_FILE} needs {CERT_FILE}")
    if not access.password_file:
        return
    if not address.parts.username:
        raise ConfigurationError(f"{PASSWORD_FILE} needs a user in {URL}")
    if address.parts.password:
        raise ConfigurationError(f"{PASSWORD_FILE} and a password in {URL}: set one of them")
