"""Keeps the TLS context of one API server up to date with the files of its certificates.

Authorities rotate, and so do clients' certificates: the kubelet writes the files of a pod anew. Files that cannot be
used change nothing, because somebody may be in the middle of writing them.
"""

import hashlib
import ssl
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from slicebus.kube.server import ApiServer
from slicebus.proto.errors import ConfigurationError

_log = structlog.get_logger()
_READ_AGAIN_S = 60.0


class Certificates:
    """The context for the next connection, from the files of at most a minute ago."""

    def __init__(self, server: ApiServer) -> None:
        """Raises ConfigurationError for certificates that cannot be used."""
        self._server = server
        self._files = [pem for pem in (server.authority, server.certificate, server.key) if isinstance(pem, Path)]
        self._read_at = time.monotonic()
        # First: where a file changes after this, the next look finds the change.
        self._digest = self._digest_of_files()
        self._context = _context(server)

    def context(self) -> ssl.SSLContext:
        """The context for a request."""
        if self._files and time.monotonic() - self._read_at > _READ_AGAIN_S:
            self.renew()
        return self._context

    def renew(self) -> bool:
        """Read the files now, and say whether there is another context."""
        self._read_at = time.monotonic()
        digest = self._digest_of_files()
        if digest == self._digest:
            return False
        try:
            context = _context(self._server)
        except ConfigurationError as error:
            _log.warning("certificates.unusable", error=str(error), kept="those before")
            return False
        self._digest, self._context = digest, context
        _log.info("certificates.renewed", server=self._server.host)
        return True

    def _digest_of_files(self) -> bytes:
        digest = hashlib.sha256()
        for path in self._files:
            try:
                content = path.read_bytes()
            except OSError:
                content = b""
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()


def _context(server: ApiServer) -> ssl.SSLContext:
    if server.verify and server.authority is None and server.certificate is None:
        return _context_of_the_system()
    try:
        with TemporaryDirectory() as folder:
            authority, certificate, key = (
                _file(Path(folder, name), pem)
                for name, pem in (("ca", server.authority), ("certificate", server.certificate), ("key", server.key))
            )
            context = ssl.create_default_context(cafile=authority)
            if certificate:
                context.load_cert_chain(certificate, keyfile=key)
    except OSError as error:
        raise ConfigurationError(f"certificates of {server.host}: {error}") from error
    if not server.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@cache
def _context_of_the_system() -> ssl.SSLContext:
    """The context that trusts whom the system trusts, for all clients: to read its authorities takes 40 ms."""
    return ssl.create_default_context()


def _file(path: Path, pem: Path | bytes | None) -> Path | None:
    """The file of a certificate: its own, or that of the path. `ssl` reads only files."""
    if not isinstance(pem, bytes):
        return pem
    path.touch(mode=0o600)
    path.write_bytes(pem)
    return path
