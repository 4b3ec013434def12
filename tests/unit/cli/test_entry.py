"""How the `slicebus` process begins: a role without the modules of people's commands, a command with its own alone."""

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
    print(*sorted({{*{modules!r}}}.intersection(sys.modules)))
"""


_MODULES = (
    *("rich", "rich.traceback", "typer"),
    *("slicebus.agent.app", "slicebus.cli.main", "slicebus.cli.fleet.command", "slicebus.cli.trace.command"),
)
"""Those whose presence is told at the end."""


def begin(*arguments: str, before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    script = _BEGUN.format(arguments=arguments, before=before, modules=_MODULES)
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_role_has_nothing_of_the_commands(log_format: str) -> None:
    done = begin("agent", SLICEBUS_LOG_FORMAT=log_format)
    assert done.returncode == 2, done.stderr
    assert done.stdout.splitlines()[-1] == "slicebus.agent.app"
    assert "AMQP_URL is not set" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "own"),
    [(("--version",), ""), (("agent", "--help"), ""), (("manager", "-h"), ""), (("fleet", "-h"), "fleet.command")],
)
def test_everything_else_is_a_command_without_the_modules_of_others(arguments: tuple[str, ...], own: str) -> None:
    done = begin(*arguments)
    assert done.returncode == 0, done.stderr
    commands = [f"slicebus.cli.{own}"] if own else []
    assert done.stdout.splitlines()[-1].split() == ["rich", *commands, "slicebus.cli.main", "typer"]


def test_a_roles_unexpected_error_is_printed_without_control_characters() -> None:
    failing = "import slicebus.agent.app as agent\ndef run(): raise RuntimeError('a \\x1b[31m colour')\nagent.run = run"
    done = begin("agent", before=failing)
    assert done.returncode == 1
    assert "RuntimeError: a " in done.stderr
    assert "\x1b" not in done.stderr
