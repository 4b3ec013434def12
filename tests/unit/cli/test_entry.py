"""How the `slicebus` process begins: a role without the modules of people's commands, a command with them."""

import subprocess
import sys

import pytest

_BEGUN = """
import sys
sys.argv = ["slicebus", *{arguments!r}]
from slicebus.cli import entry
{before}
try:
    entry.main()
finally:
    print(*sorted({{"rich", "typer", "slicebus.cli.main", "slicebus.agent.app"}}.intersection(sys.modules)))
"""


def begin(*arguments: str, before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    script = _BEGUN.format(arguments=arguments, before=before)
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_role_has_nothing_of_the_commands(log_format: str) -> None:
    done = begin("agent", SLICEBUS_LOG_FORMAT=log_format)
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[-1] == "slicebus.agent.app"
    assert "AMQP_URL is not set" in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [("--version",), ("agent", "--help"), ("manager", "-h")])
def test_everything_else_is_a_command(arguments: tuple[str, ...]) -> None:
    done = begin(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "rich slicebus.cli.main typer"


def test_a_roles_unexpected_error_is_printed_without_control_characters() -> None:
    failing = "import slicebus.agent.app as agent\ndef run(): raise RuntimeError('a \\x1b[31m colour')\nagent.run = run"
    done = begin("agent", before=failing)
    assert done.returncode == 1
    assert "RuntimeError: a " in done.stderr
    assert "\x1b" not in done.stderr
