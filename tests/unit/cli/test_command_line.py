"""The command line as a user meets it: each command describes itself, and settings that cannot work end it by name."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from slicebus.cli import main as command_line
from slicebus.cli.entry import ROLES

Ended = tuple[int, str]
"""The exit status, and everything that was printed."""
AGENT = {"SLICEBUS_CLUSTER": "east", "SLICEBUS_MANAGER_USER": "manager"}


def commands() -> Iterator[tuple[str, ...]]:
    """Every command and group of `slicebus`, itself too."""
    left = [((), typer.main.get_command(command_line.app))]
    while left:
        path, command = left.pop()
        yield path
        if isinstance(command, TyperGroup):
            left += [((*path, name), each) for name, each in command.commands.items()]


def test_the_command_line_is_walked() -> None:
    assert {(), ("manager",), ("agent",), ("doctor",), ("journal",), ("journal", "tail")} <= set(commands())


@pytest.mark.parametrize("command", sorted(commands()), ids=lambda command: " ".join(command) or "slicebus")
def test_a_command_describes_itself(command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command_line.app, [*command, "--help"], prog_name="slicebus")
    assert done.exit_code == 0, done.output
    assert " ".join(["Usage: slicebus", *command]) in done.stdout


@pytest.mark.parametrize("command", sorted(commands()), ids=lambda command: " ".join(command) or "slicebus")
def test_help_is_whole_at_80_columns(command: tuple[str, ...]) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(command_line.app, [*command, "--help"], prog_name="slicebus")
    too_long = [line for line in done.stdout.splitlines() if len(line) > 80]
    assert not too_long
    assert "…" not in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.endswith("...") and "Usage" not in line]


def options_of(command: tuple[str, ...]) -> set[str]:
    found = typer.main.get_command(command_line.app)
    for name in command:
        assert isinstance(found, TyperGroup)
        found = found.commands[name]
    return {spelling for option in found.params for spelling in option.opts}


SHARED = {"--output", "-o", "--no-headers"}
LISTS = {("jobs",), ("queues",), ("fleet", "list")}
OF_JOBS = {("jobs",), ("queues",), ("explain",), ("tree",), ("wait",)}


@pytest.mark.parametrize(
    "command", sorted(command for command in commands() if "--kubeconfig" in options_of(command)), ids=" ".join
)
def test_a_command_that_reads_a_cluster_has_the_options_of_all(command: tuple[str, ...]) -> None:
    options = options_of(command)
    assert "--context" in options
    if SHARED & options:
        assert options >= SHARED
    if command in LISTS:
        assert options >= {"--watch", "-w"}
    if command in OF_JOBS:
        assert options >= {"--namespace", "-n", "--all-namespaces", "-A"}


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs `slicebus` in this process with variables of its own, and says how it ends."""

    def run(*arguments: str, **variables: str) -> Ended:
        unset = {"AMQP_URL": "", "SLICEBUS_CLUSTER": "", "KUBECONFIG": "", "SLICEBUS_HEALTH_ADDRESS": "127.0.0.1:0"}
        for name, value in (unset | variables).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["slicebus", *arguments])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)
        role = ROLES.get(arguments[0]) if len(arguments) == 1 else None
        with pytest.raises(SystemExit) as ended:
            import_module(role).run() if role else command_line.main()
        printed = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, printed.out + printed.err

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--pods", "3"),
        ("sweep",),
        ("--size", "main=1"),
        ("-f", "x.yaml", "--queue", "q"),
        ("sweep", "--request", "a=1"),
    ],
    ids=" ".join,
)
def test_simulate_asks_for_one_question(arguments: tuple[str, ...], ends: Callable[..., Ended]) -> None:
    status, printed = ends("simulate", *arguments)
    assert (status, printed.startswith("slicebus: name a JOB and its --size, or files")) == (2, True), printed


@pytest.mark.parametrize(
    ("program", "name"),
    [("/usr/bin/slicebus", "slicebus"), ("/usr/bin/kubectl-slicebus", "kubectl slicebus"), ("x", "slicebus")],
)
def test_help_has_the_name_by_which_it_was_called(
    program: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "fleet", "-h"])
    with pytest.raises(SystemExit):
        command_line.main()
    assert capsys.readouterr().out.startswith(f"Usage: {name} fleet ")


@pytest.mark.parametrize(
    ("command", "variables", "told"),
    [
        ("manager", {}, "AMQP_URL is not set"),
        ("agent", {"AMQP_URL": "amqps://broker"}, "SLICEBUS_CLUSTER is not set"),
        ("agent", {**AGENT, "AMQP_URL": "amqps://broker", "SLICEBUS_CLUSTER": "No Name"}, "SLICEBUS_CLUSTER: "),
        ("agent", {"AMQP_URL": "amqps://broker", "SLICEBUS_CLUSTER": "east"}, "SLICEBUS_MANAGER_USER is not set"),
        ("manager", {"AMQP_URL": "http://broker"}, "AMQP_URL: "),
        ("manager", {"AMQP_URL": "amqp://broker"}, "SLICEBUS_AMQP_INSECURE=plaintext"),
        ("manager", {"AMQP_URL": "amqps://broker?no_verify_ssl=1"}, "SLICEBUS_AMQP_INSECURE=unverified"),
        ("manager", {"AMQP_URL": "amqps://broker", "SLICEBUS_AMQP_INSECURE": "yes"}, "SLICEBUS_AMQP_INSECURE: "),
        ("manager", {"AMQP_URL": "amqps://broker", "SLICEBUS_WORKERS": "many"}, "SLICEBUS_WORKERS: "),
        ("manager", {"AMQP_URL": "amqps://broker", "SLICEBUS_HEALTH_ADDRESS": "nowhere"}, "SLICEBUS_HEALTH_ADDRESS"),
        ("manager", {"AMQP_URL": "amqps://broker", "KUBECONFIG": "/does/not/exist"}, "kubeconfig: "),
    ],
)
def test_a_setting_that_cannot_work_ends_a_role_with_its_name(
    command: str, variables: dict[str, str], told: str, ends: Callable[..., Ended]
) -> None:
    status, printed = ends(command, **variables)
    assert status == 2
    assert told in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("journal", "tail", "--type", "scale-requst"), "no message type scale-requst; did you mean scale-request?"),
        (("journal", "query", "--type", "descisions"), "did you mean decisions?"),
        (("dead", "list", "--type", "statu"), "did you mean status?"),
        (("dead", "list", "--reason", "malfromed"), "there is no reason malfromed; did you mean malformed?"),
        (("dead", "list", "--reason", "zzz"), "there is no reason zzz, only failed, fenced-epoch, "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_unknown_value_of_a_filter_names_the_nearest(
    command: tuple[str, ...], told: str, ends: Callable[..., Ended]
) -> None:
    status, printed = ends(*command, AMQP_URL="memory://manager@nowhere")
    assert (status, told in " ".join(printed.split())) == (2, True), printed


@pytest.mark.parametrize(
    "command",
    [
        ("doctor",),
        ("dead", "list"),
        ("journal", "tail"),
        ("trace", "sweep"),
        ("replay", "stream"),
        ("redrive", "stream", "--all"),
        ("demo",),
    ],
    ids=" ".join,
)
def test_a_command_refuses_plain_amqp_to_another_host(command: tuple[str, ...], ends: Callable[..., Ended]) -> None:
    status, printed = ends(*command, AMQP_URL="amqp://u:hunter2@broker/v", KUBECONFIG="/does/not/exist")
    assert status == (1 if command == ("doctor",) else 2), printed
    assert "plain amqp:// to broker" in printed
    assert "set SLICEBUS_AMQP_INSECURE=plaintext" in printed
    assert "hunter2" not in printed
    assert "Traceback" not in printed


CLUSTER_COMMANDS = [
    ("explain", "sweep"),
    ("fleet", "list"),
    *(("fleet", word, "east") for word in ("release", "repin", "cordon", "uncordon", "drain", "join", "revoke")),
    ("broker", "definitions"),
]


@pytest.mark.parametrize("command", CLUSTER_COMMANDS, ids=" ".join)
def test_a_command_without_a_kubeconfig_says_so_in_one_line(
    command: tuple[str, ...], ends: Callable[..., Ended], tmp_path: Path
) -> None:
    variables = {"AMQP_URL": "amqps://broker", "SLICEBUS_BROKER_API": "https://u:p@broker", "SLICEBUS_CLUSTER": "east"}
    missing = tmp_path / "config"
    status, printed = ends(*command, **variables, KUBECONFIG=str(missing))
    told = f"slicebus: kubeconfig: there is no file {missing}: KUBECONFIG names another\n"
    assert (status, printed) == (2, told)


@pytest.mark.parametrize(
    "command",
    [
        ("dead", "list"),
        ("dead", "requeue", "--all"),
        ("dead", "discard", "--all"),
        ("dead", "show", "1"),
        ("journal", "tail"),
        ("journal", "query"),
        ("journal", "export", "-"),
        ("trace", "sweep"),
        ("replay", "stream"),
        ("redrive", "stream", "--all"),
        ("demo",),
    ],
    ids=" ".join,
)
def test_a_command_with_another_scheme_says_so_in_one_line(
    command: tuple[str, ...], ends: Callable[..., Ended]
) -> None:
    status, printed = ends(*command, AMQP_URL="http://u:hunter2@broker/v")
    use = "use amqps://USER:PASSWORD@HOST:5671/VHOST"
    assert (status, printed) == (2, f"slicebus: AMQP_URL: http:// is no broker's address: {use}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--worker", "east"), "--worker east: use NAME=KUBECONFIG"),
        (("--worker", "east=/nowhere"), "give --manager-kubeconfig and at least one --worker"),
    ],
)
def test_a_demo_on_half_of_the_real_parts_is_refused(
    arguments: tuple[str, ...], told: str, ends: Callable[..., Ended]
) -> None:
    status, printed = ends("demo", *arguments)
    assert (status, told in printed) == (2, True), printed


def test_the_demo_says_what_an_image_lacks(ends: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slicebus.sandbox", None)
    status, printed = ends("demo")
    assert status == 2
    assert printed.count("\n") == 1
    assert "the demo needs the package slicebus.sandbox, which images leave out" in printed
