"""Webhooks of a real API server that have to agree to a write."""

from typing import Any

from slicebus.kube.resources import Resource

Manifest = dict[str, Any]
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)


def webhook(name: str, group: str, resource: str, *, url: str, **more: Any) -> Manifest:
    """A configuration with one webhook, which is asked about every write of a resource, such as `workloads/status`.
    `more` are fields of the webhook."""
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["*"], "resources": [resource]}
    one = {
        "name": f"{resource.partition('/')[0]}.example.dev",
        "rules": [rule],
        "clientConfig": {"url": url},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    head = {"apiVersion": WEBHOOKS.api_version, "kind": WEBHOOKS.kind, "metadata": {"name": name}}
    return head | {"webhooks": [one | more]}
