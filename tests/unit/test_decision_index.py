"""docs/decisions/README.md: every page is in it once, by its title, and a number without a page is explained."""

import re
from pathlib import Path

INDEX = Path(__file__).parents[2] / "docs" / "decisions" / "README.md"
PAGES = sorted(INDEX.parent.glob("[0-9]*.md"))
ENTRY = re.compile(r"^- \[(\d{4})\]\((\S+)\) (.+)$", re.MULTILINE)
WITHOUT_PAGE = re.compile(r"^## Numbers without a page\n\n(.+?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def test_every_page_is_in_the_index_once_by_its_title() -> None:
    pages = [(path.name[:4], path.name, path.read_text().splitlines()[0].removeprefix("# ")) for path in PAGES]
    assert sorted(ENTRY.findall(INDEX.read_text())) == pages


def test_a_number_without_a_page_is_explained() -> None:
    numbers = [int(path.name[:4]) for path in PAGES]
    assert len({*numbers}) == len(numbers), "a number has one page"
    [told] = WITHOUT_PAGE.findall(INDEX.read_text())
    lacking = [f"{number:04}" for number in range(1, max(numbers)) if number not in numbers]
    assert re.findall(r"\b\d{4}\b", told.partition(":")[0]) == lacking
