"""The site of the documents: it builds without a warning, loads nothing from elsewhere, and shows what GitHub shows."""

import logging
import re
import runpy
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

TOP = Path(__file__).parents[2]
BUILD = runpy.run_path(str(TOP / "site" / "build.py"))
PAGES: list[Path] = sorted(page for page in BUILD["pages"]() if page.suffix == ".md")
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "object": "data"}
SHOWN = ("h1", "h2", "h3", "h4", "pre", "ol", "ul", "li", "tr")
CHARTS = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)


class Elements(HTMLParser):
    """Counts elements, within the article alone where there is one, and keeps what is loaded from another server."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.foreign: list[str] = []
        self._is_counted = "<article" not in text
        self._in_chart = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._is_counted |= tag == "article"
        self.count[tag] += self._is_counted
        address = dict(attributes).get(LOADED.get(tag, ""), "") or ""
        if address.startswith(("http:", "https:", "//")):
            self.foreign.append(address)

    def handle_endtag(self, tag: str) -> None:
        self._is_counted &= tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning ends the build."""
    folder = tmp_path_factory.mktemp("site")
    logger = logging.getLogger("mkdocs")
    level = logger.level
    BUILD["make"](folder / "source", folder / "site")
    logger.setLevel(level)
    return folder / "site"


def html_of(site: Path, page: Path) -> str:
    name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
    return (site / page.parent / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_shows_what_github_shows(site: Path, page: Path) -> None:
    source = (TOP / page).read_text(encoding="utf-8")
    wanted = Elements(MarkdownIt("commonmark").enable("table").render(CHARTS.sub("", source))).count
    shown = Elements(html_of(site, page)).count
    charts = sum(labels.count('"') for labels in re.findall(r"x-axis \[(.*?)\]", source)) // 2
    assert {tag: shown[tag] for tag in SHOWN} == {tag: wanted[tag] for tag in SHOWN} | {"tr": wanted["tr"] + charts}


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert not Elements(path.read_text(encoding="utf-8")).foreign, path
    for path in site.rglob("*.css"):
        assert not re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", path.read_text(encoding="utf-8")), path
