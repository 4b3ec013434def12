"""What the embedded API server refuses, though the real one does not."""

import orjson

from slicebus.kube.transport import Request
from slicebus.sandbox.apiserver.api import Api


def test_a_server_side_apply_is_refused() -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    request = Request(
        method="PATCH",
        path="/api/v1/namespaces/default/configmaps/a",
        query={"fieldManager": "someone"},
        body=orjson.dumps(manifest),
        content_type="application/apply-patch+yaml",
    )
    refused = Api().answer(request)
    assert refused.status == 415
    assert "application/apply-patch+yaml" in orjson.loads(refused.body)["message"]
