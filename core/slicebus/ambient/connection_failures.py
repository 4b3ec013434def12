"""Says in plain words why a connection failed, for people."""

import os
import re
import ssl
from errno import errorcode

_NUMBER = re.compile(r"\[Errno (\d+)\]")
"""asyncio sums up the failures of several addresses of a host in one text."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_MESSAGE")
"""The reasons of OpenSSL for a first answer that is none of TLS."""


def reason_of(error: BaseException) -> str:
    """The reason: `Connection refused`, `no answer in time`. Never empty, and one line where the system's words are."""
    match error:
        case ssl.SSLCertVerificationError():
            return f"its certificate is refused: {error.verify_message}"
        case ssl.SSLError():
            return "it answers without TLS" if error.reason in _NO_TLS else f"TLS failed: {error.reason or error}"
        case TimeoutError():
            return "no answer in time"
        case OSError(errno=int(number)) if number in errorcode:  # aiormq's have the broker's codes there.
            return os.strerror(number)
        case OSError(errno=None):
            reasons = dict.fromkeys(os.strerror(int(number)) for number in _NUMBER.findall(str(error)))
            return ", ".join(reasons) or str(error) or type(error).__name__
        case OSError(strerror=str(text)) if text:
            return text
        case _:
            return str(error) or type(error).__name__
