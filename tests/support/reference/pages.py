"""Every page of docs/reference, by its path."""

from pathlib import Path

from support.reference.commands import commands_page
from support.reference.messages import messages_page
from support.reference.settings import settings_page
from support.reference.values import values_page

TOP = Path(__file__).parents[3]
FOLDER = TOP / "docs" / "reference"


def pages() -> dict[Path, str]:
    """The text of each page. That of the settings keeps the words that the page has."""
    settings = FOLDER / "settings.md"
    return {
        FOLDER / "commands.md": commands_page(),
        settings: settings_page(settings.read_text(encoding="utf-8")),
        FOLDER / "values.md": values_page(),
        FOLDER / "messages.md": messages_page(),
    }
