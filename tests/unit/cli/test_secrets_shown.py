"""What commands print and write of a journal that has secrets: recorded by an older version, or by an agent that takes
none out. Every form of the corpus stands in every place where somebody else writes text."""

import gzip
import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from slicebus.journal.redaction import Redactor
from unit.cli.hostile import call
from unit.journal.secrets import HIDDEN, TEXTS, TOKENS, VALUES

LIFE = Path(__file__).parents[2] / "replays" / "life-of-a-job.jsonl.gz"
JOB = "job-a"


def _forms() -> Iterator[tuple[str, str, str]]:
    """The name of each form, a text of it, and the secret in the text: a line of it that JSON leaves as it is."""
    for number, (name, text) in enumerate(TEXTS.items()):
        secret = f"{HIDDEN}{number:03}"
        yield name, text.replace("{{", "{").replace("}}", "}").replace("{}", secret), secret
    for name, token in TOKENS.items():
        yield name, f"use {token} here", max(token.split("\n"), key=len)


FORMS = tuple(_forms())
SECRETS = {name: secret for name, _, secret in FORMS} | {"values": HIDDEN}


def with_secrets(value: Any, texts: Iterator[str]) -> Any:
    """JSON of a recording with secrets in what tenants, servers and agents write freely."""
    if isinstance(value, list):
        return [with_secrets(entry, texts) for entry in value]
    if not isinstance(value, dict):
        return value
    changed = {name: with_secrets(entry, texts) for name, entry in value.items()}
    changed |= {name: next(texts) for name in ("message", "why", "note", "problem") if isinstance(value.get(name), str)}
    if isinstance(value.get("annotations"), dict):
        changed["annotations"] = changed["annotations"] | {"example.com/note": next(texts)}
    if isinstance(value.get("containers"), list):
        env = [{"name": "ANY", "value": HIDDEN}]
        changed["containers"] = [
            container | {"args": ["train", next(texts)], "env": env} for container in changed["containers"]
        ]
        changed |= {f"x-{number}": part for number, part in enumerate(VALUES.values())}
    return changed


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exported journal, as it lay in the stream."""
    texts = itertools.cycle(text for _, text, _ in FORMS)
    lines = []
    for line in gzip.decompress(LIFE.read_bytes()).splitlines():
        read = orjson.loads(line)
        headers = read["headers"] | {"x-note": next(texts), "x-token": HIDDEN}
        lines.append(orjson.dumps(read | {"body": with_secrets(read["body"], texts), "headers": headers}) + b"\n")
    file = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    file.write_bytes(b"".join(lines))
    assert not [name for name, secret in SECRETS.items() if secret.encode() not in file.read_bytes()]
    return file


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "journal query": ("journal", "query", "--from", "{file}"),
    "journal query of decisions": ("journal", "query", "--from", "{file}", "--type", "decisions"),
    "journal query --json": ("journal", "query", "--from", "{file}", "--json"),
    "journal query of decisions --json": ("journal", "query", "--from", "{file}", "--type", "decisions", "--json"),
    "trace": ("trace", JOB, "--from", "{file}"),
    "trace --html": ("trace", JOB, "--from", "{file}", "--html", "{page}"),
    "replay": ("replay", "{file}"),
    "replay --step": ("replay", "{file}", "--step"),
    "replay --state": ("replay", "{file}", "--state"),
    "jobs --at": ("jobs", "-A", "--at", "2026-01-01T00:00:15Z", "--from", "{file}"),
    "jobs --at -o json": ("jobs", "-A", "-o", "json", "--at", "2026-01-01T00:00:15Z", "--from", "{file}"),
    "queues --at": ("queues", "-o", "json", "--at", "2026-01-01T00:00:15Z", "--from", "{file}"),
}
SHOWN_NOTHING = ("journal query of decisions", "queues --at")
"""These print nothing of what others write."""


def printed(arguments: tuple[str, ...], journal: Path, page: Path) -> str:
    """Everything that comes out of a command."""
    names = {"{file}": str(journal), "{page}": str(page)}
    done = call(*(names.get(argument, argument) for argument in arguments))
    assert done.status in (0, 1), done.err
    assert "Traceback" not in done.err
    return done.out + done.err + (page.read_text() if page.exists() else "")


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_no_secret_of_a_journal_is_shown(arguments: tuple[str, ...], journal: Path, tmp_path: Path) -> None:
    out = printed(arguments, journal, tmp_path / "page.html")
    assert [name for name, secret in SECRETS.items() if secret in out] == []


@pytest.mark.parametrize(
    "arguments",
    [arguments for name, arguments in COMMANDS.items() if name not in SHOWN_NOTHING],
    ids=[name for name in COMMANDS if name not in SHOWN_NOTHING],
)
def test_without_redaction_there_would_be_some(
    arguments: tuple[str, ...], journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the other test can fail."""
    for name in ("value", "headers", "encoded"):
        monkeypatch.setattr(Redactor, name, lambda self, value: value)
    out = printed(arguments, journal, tmp_path / "page.html")
    assert [name for name, secret in SECRETS.items() if secret in out]
