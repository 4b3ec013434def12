"""A receiver of OpenTelemetry's traces over HTTP, which keeps what it decodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class OtlpStandIn:
    """What came, and how it answers."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        """The path, the headers and the decoded body of each."""
        self.status = 200
        self.answer = ExportTraceServiceResponse().SerializeToString()

    def spans(self) -> list[tuple[dict[str, Any], Any]]:
        """Every span, with the attributes of its resource."""
        return [
            (attributes(resource.resource.attributes), span)
            for _, _, body in self.requests
            for resource in body.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


def attributes(pairs: Any) -> dict[str, Any]:
    """Attributes by their names."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def otlp_stand_in() -> Iterator[OtlpStandIn]:
    """A receiver on loopback."""
    kept = OtlpStandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if kept.status == 200:
                kept.requests.append((self.path, dict(self.headers), ExportTraceServiceRequest.FromString(body)))
            self.send_response(kept.status)
            self.send_header("Content-Length", str(len(kept.answer)))
            self.end_headers()
            self.wfile.write(kept.answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield kept
        finally:
            server.shutdown()
            thread.join()
