"""Says until when the certificates in the files of the broker's login are valid."""

import ssl
from pathlib import Path

from slicebus.bus.access.address import Access


def expiries(access: Access) -> dict[str, float]:
    """When the first certificate of each file ends, in seconds since 1970, by what it is: `authority`, `client`. Files
    that are not set, or cannot be read now, are left out: the next connection says what is wrong with them."""
    read = {"authority": (access.ca_file, _authorities_end), "client": (access.cert_file, _client_ends)}
    found = {}
    for name, (path, end_of) in read.items():
        try:
            if path:
                found[name] = end_of(path)
        except (OSError, ValueError):  # ssl.SSLError is an OSError.
            continue
    return found


def _authorities_end(path: str) -> float:
    """The earliest: an authority that has been replaced belongs no longer into the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=path)
    return float(min(ssl.cert_time_to_seconds(str(found["notAfter"])) for found in context.get_ca_certs()))


def _client_ends(path: str) -> float:
    # Only a client with a certificate needs it, and it takes some megabytes.
    from cryptography import x509

    return min(
        found.not_valid_after_utc.timestamp() for found in x509.load_pem_x509_certificates(Path(path).read_bytes())
    )
