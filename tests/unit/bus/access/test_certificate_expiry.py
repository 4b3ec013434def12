"""Until when the certificates of the broker's login are valid."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from slicebus.bus.access.address import Access
from slicebus.bus.access.certificate_expiry import expiries

FIRST, LAST = (datetime(year, 1, 1, tzinfo=UTC) for year in (2030, 2031))


def files(folder: Path) -> Access:
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca")
    other.cert_pem.write_to_path(folder / "ca", append=True)
    for number, ends in enumerate((LAST, FIRST)):
        issued = authority.issue_cert("client.example", not_after=ends)
        issued.cert_chain_pems[0].write_to_path(folder / "cert", append=bool(number))
    return Access(ca_file=str(folder / "ca"), cert_file=str(folder / "cert"))


def test_the_first_that_ends_counts(tmp_path: Path) -> None:
    found = expiries(files(tmp_path))
    assert found == {"client": FIRST.timestamp(), "authority": pytest.approx(found["authority"])}
    assert found["authority"] > FIRST.timestamp()


def test_without_files_there_is_nothing_to_end() -> None:
    assert expiries(Access()) == {}


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\nno\n"])
def test_files_that_cannot_be_read_are_left_out(tmp_path: Path, content: bytes | None) -> None:
    access = files(tmp_path)
    for name in ("ca", "cert"):
        (tmp_path / name).unlink()
        if content is not None:
            (tmp_path / name).write_bytes(content)
    assert expiries(access) == {}
