"""The checks of the Pod Security Standards: the same verdicts as the admission of a real API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slicebus.kube.client import KubeClient
from slicebus.kube.resources import NAMESPACES, PODS
from slicebus.proto.errors import ForbiddenError, InvalidError
from slicebus.slices.workload.pod_security import Level, violations
from support.controlplane import ControlPlane
from unit.slices.pods import Manifest, corpus, own_users

pytestmark = pytest.mark.controlplane


@pytest.fixture
async def client(control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeClient]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(control_plane.clusters["manager"].kubeconfig.read_text())
    async with await KubeClient.from_kubeconfig(kubeconfig) as made:
        yield made


async def refusal(client: KubeClient, template: Manifest, namespace: str) -> str | None:
    """Why the server's admission refuses a pod of the template; None where it does not. Nothing is created.

    Raises InvalidError for what is no pod: that is found before the admission.
    """
    metadata = template["metadata"] | {"generateName": "p-", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    why = None
    try:
        await client._answer(client._request("POST", PODS.path(namespace), query={"dryRun": "All"}, body=pod))
    except ForbiddenError as error:
        why = str(error)
    assert why is None or "violates PodSecurity" in why
    return why


@pytest.mark.parametrize("level", Level)
async def test_every_template_gets_the_verdict_of_the_api_server(client: KubeClient, level: Level) -> None:
    namespace = f"pod-security-{level}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    await client.create(NAMESPACES, manifest)
    differences, invalid = [], []
    for name, template in corpus().items():
        try:
            refused = await refusal(client, template, namespace)
        except InvalidError:
            invalid.append(name)
            continue
        found = violations(template, level)
        if (refused is None) != (not found):
            differences.append(f"{name}: the server says {refused}, we say {found}")
    await client.delete(NAMESPACES, namespace)
    assert differences == []
    assert len(invalid) < len(corpus()) / 15, f"so many are no pods: {invalid}"


@pytest.mark.parametrize("level", [Level.BASELINE, Level.RESTRICTED])
async def test_users_of_its_own_allow_a_pod_nothing_more(client: KubeClient, level: Level) -> None:
    """Newer servers allow such a pod more. Older ones ignore the field, and start it with the node's users."""
    namespace = f"own-users-{level}"
    labels = {"pod-security.kubernetes.io/enforce": level}
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    await client.create(NAMESPACES, manifest)
    for template in own_users(level).values():
        assert violations(template, level)
        assert await refusal(client, template, namespace) is None
    await client.delete(NAMESPACES, namespace)
