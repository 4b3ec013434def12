"""The scripts that get the servers: two at once do not disturb each other, and apt is waited for."""

import os
import subprocess
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
GO = """#!/bin/sh
while [ "$1" != -o ]; do shift; done
for turn in 1 2 3; do echo "$2" >>"$2"; sleep 0.01; done
chmod +x "$2"
"""
"""Stands in for a compiler: what it makes has three lines, unless another one writes into the same file."""
APT_GET = """#!/bin/sh
echo "$*" >>"$CALLS"
if [ "$1" = update ] && [ "$(grep -c update "$CALLS")" -lt 2 ]; then
  echo "$SAYS"
  exit 100
fi
"""
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"


def program(folder: Path, name: str, text: str) -> dict[str, str]:
    """An environment in which a command is this script."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


def test_two_set_ups_at_once_build_each_tool_once(tmp_path: Path) -> None:
    env = program(tmp_path, "go", GO) | {"TOOLS_CACHE": str(tmp_path / "tools")}
    started = [
        subprocess.Popen([TOOLS / "build.sh"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    told = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert {printed for printed, _ in told} == {f"{tmp_path}/tools/bin\n"}
    assert sum(said.count("building helm") for _, said in told) == 1
    built = list((tmp_path / "tools" / "bin").iterdir())
    assert len(built) == 6
    assert {len(path.read_text().splitlines()) for path in built} == {3}


@pytest.mark.parametrize(("says", "calls"), [(LOCKED, ["update", "update", "install"]), ("E: no network", ["update"])])
def test_apt_is_waited_for_while_somebody_else_has_its_lists(says: str, calls: list[str], tmp_path: Path) -> None:
    log = tmp_path / "calls"
    env = program(tmp_path, "apt-get", APT_GET) | {"CALLS": str(log), "SAYS": says}
    done = subprocess.run(
        [TOOLS / "apt.sh", "some-package"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert [line.split()[0] for line in log.read_text().splitlines()] == calls
    assert (done.returncode, done.stderr) == ((0, "") if len(calls) == 3 else (1, f"{says}\n"))


def test_where_rabbitmq_4_cannot_be_had_one_line_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    env = program(tmp_path, "apt-get", "#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    env |= {"TOOLS_CACHE": str(tmp_path / "tools")}
    for _ in range(2):
        done = subprocess.run(
            [TOOLS / "rabbitmq4.sh"], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        said = done.stderr.removeprefix("unpacking RabbitMQ 4\n")
        assert (done.returncode, said.count("\n"), said.startswith("no RabbitMQ 4: ")) == (1, 1, True), done
        assert not (tmp_path / "tools" / "rabbitmq4" / ".ready").exists()


def test_where_prometheus_cannot_be_had_one_line_says_so_and_nothing_is_left(tmp_path: Path) -> None:
    env = program(tmp_path, "apt-get", "#!/bin/sh\necho 'W: a warning' >&2\necho 'E: no network' >&2\nexit 100\n")
    done = subprocess.run(
        [TOOLS / "prometheus.sh"],
        env=env | {"TOOLS_CACHE": str(tmp_path / "tools")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "unpacking Prometheus\nno Prometheus: E: no network\n")
    assert not list((tmp_path / "tools" / "bin").iterdir())
