"""What a login is made of: files as they are now, and errors that name their variable."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from slicebus.bus.access.address import Access, address_of
from slicebus.bus.access.login import Login, common_name, read_login
from slicebus.proto.errors import ConfigurationError

URL = "amqps://east@broker/v"
NOBODY = "amqps://broker/v"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Files:
    """A certificate authority, a certificate of `east` with its key, and a password."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.ca, self.cert, self.key, self.password = (folder / name for name in ("ca", "cert", "key", "password"))
        self._authority.cert_pem.write_to_path(self.ca)
        self.issue("east")
        self.password.write_text("secret\n")

    def issue(self, name: str) -> None:
        issued = self._authority.issue_cert("client.example", common_name=name)
        issued.cert_chain_pems[0].write_to_path(self.cert)
        issued.private_key_pem.write_to_path(self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def login(url: str, **access: Path | None) -> Login:
    given = Access(**{f"{name}_file": str(path) for name, path in access.items() if path})
    return read_login(address_of(url, given), given)


def test_the_authority_is_the_only_one(files: Files) -> None:
    context = login("amqps://east:pw@broker/v", ca=files.ca).context
    assert context is not None
    assert len(context.get_ca_certs()) == 1
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_plain_amqp_has_no_context() -> None:
    assert login("amqp://east:pw@localhost/v").context is None


def test_a_certificate_without_a_password_is_the_user(files: Files) -> None:
    found = login(NOBODY, ca=files.ca, cert=files.cert, key=files.key)
    assert (found.user, found.password) == ("east", None)
    assert login(URL, ca=files.ca, cert=files.cert, key=files.key).password is None


@pytest.mark.parametrize("by_file", [True, False])
def test_a_certificate_beside_a_password_only_proves_the_machine(files: Files, by_file: bool) -> None:
    password = files.password if by_file else None
    url = "amqps://west@broker/v" if by_file else "amqps://west:secret@broker/v"
    found = login(url, ca=files.ca, cert=files.cert, key=files.key, password=password)
    assert (found.user, found.password) == ("west", "secret")


def test_the_options_of_the_address_name_files_too(files: Files) -> None:
    found = login(f"{NOBODY}?cafile={files.ca}&certfile={files.cert}&keyfile={files.key}")
    assert (found.user, found.password) == ("east", None)


def signed(*names: str) -> bytes:
    """A certificate with these common names, signed by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(("names", "user"), [(("östlich",), "östlich"), (("east", "west"), "east,west")])
def test_the_common_name_is_read_as_rabbitmq_reads_it(names: tuple[str, ...], user: str) -> None:
    assert common_name(signed(*names)) == user


def test_a_certificate_without_a_common_name_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="has no common name"):
        common_name(signed())


def test_any_file_that_changes_changes_the_digest(files: Files) -> None:
    def digest() -> str:
        return login(URL, ca=files.ca, cert=files.cert, key=files.key, password=files.password).digest

    seen = {digest(), digest()}
    assert len(seen) == 1
    files.issue("east")
    seen.add(digest())
    files.password.write_text("other")
    seen.add(digest())
    files.ca.write_bytes(files.ca.read_bytes() + b"\n")
    seen.add(digest())
    assert len(seen) == 4


WRONG: dict[str, tuple[str, str]] = {
    "no authority": ("ca", "SLICEBUS_AMQP_CA_FILE: "),
    "no certificate": ("cert", "SLICEBUS_AMQP_CERT_FILE and SLICEBUS_AMQP_KEY_FILE: "),
    "no key": ("key", "SLICEBUS_AMQP_CERT_FILE and SLICEBUS_AMQP_KEY_FILE: "),
    "no text": ("password", "SLICEBUS_AMQP_PASSWORD_FILE is not UTF-8"),
}


@pytest.mark.parametrize(("name", "told"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_read_is_named(files: Files, name: str, told: str) -> None:
    path: Path = getattr(files, name)
    path.write_bytes(b"\xff no such thing")
    with pytest.raises(ConfigurationError) as raised:
        login(URL, ca=files.ca, cert=files.cert, key=files.key, password=files.password)
    assert str(raised.value).startswith(told)
    path.unlink()
    with pytest.raises(ConfigurationError, match=f"^SLICEBUS_AMQP_{name.upper()}_FILE: {path}: No such file"):
        login(URL, ca=files.ca, cert=files.cert, key=files.key, password=files.password)


def test_a_key_of_another_certificate_is_refused(files: Files) -> None:
    key = files.key.read_bytes()
    files.issue("east")
    files.key.write_bytes(key)
    with pytest.raises(ConfigurationError, match="belong together"):
        login(NOBODY, ca=files.ca, cert=files.cert, key=files.key)


def test_an_encrypted_key_is_refused_and_asks_for_nothing(files: Files) -> None:
    key = load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")))
    with pytest.raises(ConfigurationError, match="unencrypted key"):
        login(NOBODY, ca=files.ca, cert=files.cert, key=files.key)
