"""Why a connection failed, in words that people know."""

import errno
import socket
import ssl

import pytest
from aio_pika import exceptions
from aiormq.exceptions import ConnectionClosed

from slicebus.ambient.connection_failures import reason_of

VERIFY = ssl.SSLCertVerificationError(1, "certificate verify failed (_ssl.c:992)")
VERIFY.verify_message = "certificate has expired"
PLAIN, ALERT = ssl.SSLError(1, "x"), ssl.SSLError(1, "x")
PLAIN.reason, ALERT.reason = "WRONG_VERSION_NUMBER", "TLSV1_ALERT_PROTOCOL_VERSION"
SEVERAL = OSError(
    "Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), "
    "[Errno 111] Connect call failed ('127.0.0.1', 1)"
)

REASONS: dict[str, tuple[BaseException, str]] = {
    "asyncio's": (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('::1', 1)"), "Connection refused"),
    "several addresses": (SEVERAL, "Connection refused"),
    "no such host": (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
    "silence": (TimeoutError(), "no answer in time"),
    "a certificate": (VERIFY, "its certificate is refused: certificate has expired"),
    "no TLS": (PLAIN, "it answers without TLS"),
    "an alert": (ALERT, "TLS failed: TLSV1_ALERT_PROTOCOL_VERSION"),
    "aiormq's": (exceptions.AMQPConnectionError(errno.EHOSTUNREACH, "x"), "No route to host"),
    "the broker's code": (
        ConnectionClosed(320, "CONNECTION_FORCED - node is down"),
        "CONNECTION_FORCED - node is down",
    ),
    "without a text": (ConnectionResetError(), "ConnectionResetError"),
    "any other": (ValueError("odd"), "odd"),
}


@pytest.mark.parametrize(("error", "reason"), REASONS.values(), ids=REASONS.keys())
def test_the_reason(error: BaseException, reason: str) -> None:
    assert reason_of(error) == reason
