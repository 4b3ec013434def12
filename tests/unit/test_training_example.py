"""examples/training.yaml: the loop saves its steps when its notice comes, and goes on from there."""

import subprocess
import sys
import time
from pathlib import Path

import yaml

from support.examples import EXAMPLES
from support.processes import COMMAND_S

MANIFEST = yaml.safe_load((EXAMPLES / "training.yaml").read_text())
POD = MANIFEST["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
NOTICE = '{"id":"5f","from":{"main":5},"to":{"main":3},"deadline":"2026-01-31T12:02:01Z"}'


def started(folder: Path, *, steps: int) -> subprocess.Popen[str]:
    """The program of a worker, whose files are in this folder."""
    _, *arguments = CONTAINER["command"]
    own = {"NOTICE": str(folder / "reclaim"), "CHECKPOINT": str(folder / "steps")}
    environment = {entry["name"]: entry["value"] for entry in CONTAINER["env"]} | own
    return subprocess.Popen(
        [sys.executable, *arguments],
        env=environment | {"STEPS": str(steps), "STEP_SECONDS": "0.01"},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_it_saves_its_steps_when_the_notice_comes_and_goes_on_from_there(tmp_path: Path) -> None:
    notice = tmp_path / "reclaim"
    notice.write_text("")  # As the kubelet has it while there is no such annotation.
    worker = started(tmp_path, steps=1_000_000)
    time.sleep(0.2)
    assert worker.poll() is None
    notice.write_text(NOTICE)
    said, _ = worker.communicate(timeout=COMMAND_S)
    saved = int((tmp_path / "steps").read_text())
    assert said.startswith(f"saves {saved} steps, as it goes: {NOTICE}")
    notice.write_text("")
    worker = started(tmp_path, steps=saved)
    assert worker.communicate(timeout=COMMAND_S) == ("", None)
    assert worker.returncode == 0, "all of its steps were saved"


def test_its_end_by_a_notice_is_no_failure_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "reclaim").write_text(NOTICE)
    worker = started(tmp_path, steps=1_000_000)
    worker.communicate(timeout=COMMAND_S)
    [rule] = MANIFEST["spec"]["podFailurePolicy"]["rules"]
    assert rule == {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [worker.returncode]}}


def test_the_notice_comes_by_the_downward_api() -> None:
    [item] = next(volume["downwardAPI"]["items"] for volume in POD["volumes"] if "downwardAPI" in volume)
    mount = next(mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "podinfo")
    assert item["fieldRef"] == {"fieldPath": "metadata.annotations['slicebus.dev/reclaim']"}
    assert f"{mount}/{item['path']}" == next(entry["value"] for entry in CONTAINER["env"] if entry["name"] == "NOTICE")
