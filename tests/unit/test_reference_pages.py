"""docs/reference says what the commands, settings, charts and schemas say."""

from pathlib import Path

import pytest

from slicebus.agent.settings import AgentSettings
from slicebus.manager.settings import ManagerSettings
from slicebus.proto.messages import MESSAGES
from slicebus.runtime.environment import variables_of
from support.reference import commands, pages
from support.reference.settings import rows_without_words, settings_page
from unit.cli.test_command_line import commands as every_command

FOLDER = pages.FOLDER
PAGES = pages.pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path], "make reference"


def test_no_page_is_left_of_something_that_is_gone() -> None:
    assert {*FOLDER.iterdir()} == {*PAGES}


def test_every_command_has_a_section() -> None:
    text = PAGES[FOLDER / "commands.md"]
    assert not [path for path in every_command() if path and f"# slicebus {' '.join(path)}\n" not in text]
    assert not commands.MORE.keys() - {*every_command()}


def test_every_setting_has_a_row_with_words() -> None:
    text = PAGES[FOLDER / "settings.md"]
    names = {*variables_of(AgentSettings).values(), *variables_of(ManagerSettings).values()}
    assert not {name for name in names if text.count(f"| `{name}` |") != 1}
    assert not rows_without_words(text)
    assert "| `SLICEBUS_LEASE_SECONDS` | number, above 0, at most 86400 | `12` | how long" in text


def test_the_words_of_a_row_are_kept_and_a_setting_that_is_gone_leaves() -> None:
    page = settings_page("| `AMQP_URL` | x | y | where it is |\n| `SLICEBUS_GONE` | x | y | gone |\n")
    assert "| `AMQP_URL` | text | required | where it is |" in page
    assert "SLICEBUS_GONE" not in page
    assert "SLICEBUS_WORKERS" in rows_without_words(page)


@pytest.mark.parametrize(
    "row",
    [
        "| `amqp.existingSecret` |  | The Secret that you create",
        "| `logLevel` | `INFO` | *Sets* `SLICEBUS_LOG_LEVEL`. |",
        "| `amqp.caSecret.key` | `ca.crt` | *Sets* `SLICEBUS_AMQP_CA_FILE`. |",
        "null: never. *Sets* `SLICEBUS_CLUSTER_LOST_REQUEUE_SECONDS`. |",
        "| `schedulers` | `[{name: default}]` | The scheduler backends",
    ],
)
def test_a_value_has_its_default_its_setting_and_its_comment(row: str) -> None:
    assert row in PAGES[FOLDER / "values.md"]


def test_every_message_has_its_fields() -> None:
    text = PAGES[FOLDER / "messages.md"]
    for message in MESSAGES.values():
        assert f"\n## {message.type}\n" in text
        for field in message.__struct_fields__:
            assert f"| `{field}` |" in text or field == "unknown", (message.type, field)
