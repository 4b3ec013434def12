"""Reads the user, password and TLS context of one connection, from the address and from files as they are now."""

import hashlib
import ssl
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec

from slicebus.bus.access.address import CA_FILE, CERT_FILE, KEY_FILE, PASSWORD_FILE, Access, Address
from slicebus.proto.errors import ConfigurationError


class Login(msgspec.Struct, frozen=True):
    """How to log in, as the files said at one moment."""

    user: str
    """The name that the broker verifies."""
    password: str | None
    """None: the broker takes the user from the client's certificate (SASL EXTERNAL)."""
    context: ssl.SSLContext | None
    """None: without TLS."""
    digest: str
    """Of the content of the files. Another digest means that a new connection is due."""


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the paths of the login's files."""

    ca: str | None
    cert: str | None
    key: str | None
    password: str | None

    @classmethod
    def of(cls, address: Address, access: Access) -> "Files":
        """The paths from the settings, or else from options of the address."""
        return cls(
            ca=access.ca_file or address.option("cafile"),
            cert=access.cert_file or address.option("certfile"),
            key=access.key_file or address.option("keyfile"),
            password=access.password_file,
        )

    def __bool__(self) -> bool:
        return bool(self.ca or self.cert or self.key or self.password)

    def read(self) -> Mapping[str, bytes]:
        """Read the content of each file, by its variable. Raises ConfigurationError, which names the variable."""
        paths = {CA_FILE: self.ca, CERT_FILE: self.cert, KEY_FILE: self.key, PASSWORD_FILE: self.password}
        return {variable: _content(variable, path) for variable, path in paths.items() if path}


def digest_of(contents: Mapping[str, bytes]) -> str:
    """One hash of the content of all files."""
    digest = hashlib.sha256()
    for variable, content in contents.items():
        digest.update(f"{variable} {len(content)} ".encode() + content)
    return digest.hexdigest()


def read_login(address: Address, access: Access) -> Login:
    """Read the login from the files as they are now. It blocks. Raises ConfigurationError, which names the variable."""
    files = Files.of(address, access)
    contents = files.read()
    # First: where a file changes after this, the next check finds the change.
    digest = digest_of(contents)
    context = _context(address, files) if address.is_encrypted else None
    password = _password(address, contents)
    if context is not None and files.cert and password is None:
        return Login(user=common_name(contents[CERT_FILE]), password=None, context=context, digest=digest)
    user = unquote(address.parts.username or "guest")
    return Login(user=user, password="guest" if password is None else password, context=context, digest=digest)


def common_name(certificate: bytes) -> str:
    """The common name of the first certificate of a PEM file, as RabbitMQ reads it with
    `ssl_cert_login_from = common_name`: several are joined by commas. Raises ConfigurationError."""
    # Only a client with a certificate needs it, and it takes some megabytes.
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        subject = x509.load_pem_x509_certificate(certificate).subject
    except ValueError as error:
        raise ConfigurationError(f"{CERT_FILE} has no certificate in PEM") from error
    names = [str(attribute.value) for attribute in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not names:
        raise ConfigurationError(f"{CERT_FILE}: the certificate has no common name, which is the broker's user")
    return ",".join(names)


def _password(address: Address, contents: Mapping[str, bytes]) -> str | None:
    if PASSWORD_FILE in contents:
        try:
            return contents[PASSWORD_FILE].decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{PASSWORD_FILE} is not UTF-8") from error
    return None if address.parts.password is None else unquote(address.parts.password)


def _context(address: Address, files: Files) -> ssl.SSLContext:
    data = address.option("cadata")
    try:
        context = ssl.create_default_context(
            cafile=files.ca, capath=address.option("capath"), cadata=b64decode(data) if data else None
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{CA_FILE}: no certificate of an authority can be read: {error}") from error
    if files.cert:
        try:
            # An encrypted key would make OpenSSL ask on the terminal.
            context.load_cert_chain(files.cert, files.key, password="")
        except OSError as error:
            text = f"{CERT_FILE} and {KEY_FILE}: no certificate and unencrypted key that belong together: {error}"
            raise ConfigurationError(text) from error
    if address.skips_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content(variable: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{variable}: {path}: {error.strerror}") from error
