"""The page docs/reference/commands.md: the help of every command, and where to read on."""

from collections.abc import Iterator

import typer
from typer.testing import CliRunner

from slicebus.cli import main as command_line

Path = tuple[str, ...]
_HEAD = """# Commands

The help of every command. `make reference` writes this page, and a test compares it with the commands.
[Commands for people](../commands.md) says what is the same everywhere, and shows the commands that one uses daily; [the
reference](../reference.md#commands) says what exit statuses mean.

"""
_SECTIONS = ("\nArguments:", "\nOptions:", "\nCommands:")
MORE: dict[Path, str] = {
    ("manager",): "Its [settings](settings.md#the-manager) are environment variables.",
    ("agent",): "Its [settings](settings.md#an-agent) are environment variables.",
    ("demo",): "Its own jobs are deleted at the end. [Getting started](../getting-started.md) uses it.",
    ("doctor",): "With `SLICEBUS_BROKER_API` it checks the rights of every broker user. For an agent it also checks "
    "the policy, and whether a manager reads what the agent sends. The checks run beside each other, and end within "
    "half a minute. [Who leads, and does it work?](../operations.md#who-leads-and-does-it-work)",
    ("jobs",): "[Jobs](../commands.md#jobs), and [the rights of one "
    "namespace](../commands.md#with-the-rights-of-one-namespace).",
    ("top",): "[A fleet at a glance](../commands.md#a-fleet-at-a-glance).",
    ("queues",): "[Queues](../commands.md#queues).",
    ("explain",): "It decides with the manager's own code. [Why does it wait?](../operations.md#why-does-it-wait)",
    ("wait",): "[Wait for a job](../commands.md#wait-for-a-job-and-see-all-of-it).",
    ("tree",): "[See all of a job](../commands.md#wait-for-a-job-and-see-all-of-it).",
    ("trace",): "[How did a resize go?](../operations.md#how-did-a-resize-go)",
    ("view",): "[The view](../view.md).",
    ("replay",): "[Would this version decide the same?](../operations.md#would-this-version-decide-the-same)",
    ("redrive",): "[Publish again what was lost](../operations.md#publish-again-what-was-lost).",
    ("fleet", "get"): "[One cluster](../commands.md#one-cluster).",
    ("fleet", "cordon"): "[Take a cluster out of service](../operations.md#take-a-cluster-out-of-service).",
    ("fleet", "drain"): "[Take a cluster out of service](../operations.md#take-a-cluster-out-of-service).",
    ("fleet", "uncordon"): "[Take a cluster out of service](../operations.md#take-a-cluster-out-of-service).",
    ("fleet", "release"): "[Too many deletes](../operations.md#too-many-deletes).",
    ("fleet", "join"): "[A cluster joins](../operations.md#a-cluster-joins-a-cluster-leaves).",
    ("fleet", "revoke"): "[A cluster leaves](../operations.md#a-cluster-joins-a-cluster-leaves).",
    ("fleet", "viewer"): "[Somebody who only reads](../operations.md#somebody-who-only-reads).",
    ("fleet", "repin"): "[Two clusters of one name](../operations.md#two-clusters-of-one-name).",
    ("journal",): "[The journal](../operations.md#the-journal).",
    ("journal", "export"): "The file has mode 0600, and is compressed with the suffix `.gz`.",
    (
        "dead",
    ): "[Dead letters](../operations.md#dead-letters), and [their reasons](../reference.md#dead-letter-reasons).",
    ("broker", "definitions"): "[The broker](../operations.md#the-broker).",
}
"""What the page adds to the help, and where to read on."""


def commands_page() -> str:
    """The page, from the commands."""
    told = {path: _help(path) for path in _commands((), typer.main.get_command(command_line.app))}
    rows = [
        f"| [`slicebus {' '.join(path)}`](#slicebus-{'-'.join(path)}) | {words[0]} |\n"
        for path, (words, _) in told.items()
    ]
    return (
        _HEAD
        + "| command | |\n|---|---|\n"
        + "".join(rows)
        + "".join(_section(path, *each) for path, each in told.items())
    )


def _commands(path: Path, command: object) -> Iterator[Path]:
    """Every command below this one, each after the group that it is in."""
    for name, inner in getattr(command, "commands", {}).items():
        yield (*path, name)
        yield from _commands((*path, name), inner)


def _help(path: Path) -> tuple[list[str], str]:
    """What one command does, by paragraphs, and what it takes, as its help shows it at 80 columns."""
    runner = CliRunner(env={"COLUMNS": "80"})
    told = runner.invoke(command_line.app, [*path, "--help"], prog_name="slicebus").stdout
    begin = min(found for mark in _SECTIONS if (found := told.find(mark)) >= 0)
    usage, *text = told[:begin].split("\n\n")
    words = [_escaped(" ".join(part.split())) for part in text if part.strip()]
    return words, f"{usage.strip()}\n{told[begin:].rstrip()}"


def _section(path: Path, words: list[str], takes: str) -> str:
    level, more = "#" * (len(path) + 1), [MORE[path]] if path in MORE else []
    return "\n" + "\n\n".join([f"{level} slicebus {' '.join(path)}", *words, f"```text\n{takes}\n```", *more]) + "\n"


def _escaped(text: str) -> str:
    """Words of help in Markdown: what it would read as markup stands in code."""
    words = (f"`{word}`" if word.startswith("--") and "`" not in word else word for word in text.split(" "))
    return " ".join(words).replace("<", "\\<").replace("*", "\\*")
