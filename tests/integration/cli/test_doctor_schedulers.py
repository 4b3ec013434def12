"""What `slicebus doctor` says of the scheduler backends of an agent's cluster, with their definitions and without."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from slicebus.kube.client import KubeClient
from slicebus.sandbox.apiserver import EmbeddedApiServer
from support.installation import run_cli
from support.kubeconfig import write_kubeconfig
from support.schedulers import BACKENDS, GROVE, KAI, VOLCANO, install, profiles, remove


@pytest.fixture(params=["embedded", pytest.param("real", marks=[pytest.mark.controlplane])])
async def kubeconfig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """Of a cluster without the definitions."""
    if request.param == "real":
        yield request.getfixturevalue("control_plane").clusters["east"].kubeconfig
        return
    async with EmbeddedApiServer() as server:
        yield write_kubeconfig(tmp_path / "kubeconfig", server.url)


async def schedulers_by(kubeconfig: Path, setting: str) -> list[str]:
    """The lines on schedulers, each with its advice."""
    env = {"KUBECONFIG": str(kubeconfig), "SLICEBUS_CLUSTER": "east", "SLICEBUS_SCHEDULERS": setting, "COLUMNS": "400"}
    nowhere = {"AMQP_URL": "", "SLICEBUS_MANAGER_USER": "manager"}
    done = await asyncio.to_thread(run_cli, "doctor", env=env | nowhere)
    lines = [line.strip() for line in done.stdout.splitlines()]
    found = [number for number, line in enumerate(lines) if line[2:].startswith("schedulers ")]
    return [" ".join(" ".join(lines[n : n + 2 if lines[n].startswith("✗") else n + 1]).split()) for n in found]


async def test_the_doctor_says_which_definitions_a_backend_lacks(kubeconfig: Path) -> None:
    setting = profiles(KAI, VOLCANO, GROVE)
    enabled = "✓ schedulers enabled: default, kai, volcano, grove"
    advice = "→ install that scheduler, or take its profile out of the chart's schedulers: jobs that choose it wait"
    assert await schedulers_by(kubeconfig, setting) == [
        enabled,
        "✓ schedulers default can be used",
        f"✗ schedulers kai lacks podgroups.scheduling.run.ai/v2alpha2, queues.scheduling.run.ai/v2 {advice}",
        "✗ schedulers volcano lacks podgroups.scheduling.volcano.sh/v1beta1, queues.scheduling.volcano.sh/v1beta1 "
        f"{advice}",
        f"✗ schedulers grove lacks podgangs.scheduler.grove.io/v1alpha1 {advice}",
    ]
    async with await KubeClient.from_kubeconfig(kubeconfig) as client:
        await install(client, *BACKENDS)
        try:
            assert await schedulers_by(kubeconfig, setting) == [
                enabled,
                *(f"✓ schedulers {name} can be used" for name in ("default", "kai", "volcano", "grove")),
            ]
        finally:
            await remove(client, *BACKENDS)
