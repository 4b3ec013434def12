"""Builds the site of the documents: `make docs`. It has every page that README.md leads to, in the folder of each."""

import logging
import re
import shutil
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

from indentation import indented

HERE = Path(__file__).parent
TOP = HERE.parent
SOURCE, SITE = TOP / ".cache" / "site-source", TOP / ".cache" / "site"
START = Path("README.md")
_LINK = re.compile(r"\]\((?![a-z]+:)([^)#]+)(?:#[^)]*)?\)")
_COMMENT = re.compile(r"^ *<!-- .* -->\n", re.MULTILINE)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)


def pages() -> set[Path]:
    """What the site has, by its path in the repository: the first page, and the files that its pages have links to."""
    found, left = {START}, [START]
    while left:
        page = left.pop()
        for target in _LINK.findall(_FENCE.sub("", (TOP / page).read_text(encoding="utf-8"))):
            path = (TOP / page.parent / target).resolve().relative_to(TOP)
            if path not in found and (TOP / path).is_file():
                found.add(path)
                left += [path] if path.suffix == ".md" else []
    return found


def make(source: Path = SOURCE, site: Path = SITE) -> None:
    """Copy the pages to `source` and write the site of them. Raises Abort of mkdocs where a page has a warning."""
    shutil.rmtree(source, ignore_errors=True)
    for page in pages():
        (source / page).parent.mkdir(parents=True, exist_ok=True)
        text = (TOP / page).read_text(encoding="utf-8")
        shown = indented(_COMMENT.sub("", text)) if page.suffix == ".md" else text
        (source / page).write_text(shown, encoding="utf-8")
    shutil.copy(HERE / "extra.css", source)
    config = load_config(str(HERE / "mkdocs.yml"), docs_dir=str(source), site_dir=str(site))
    config.plugins.on_startup(command="build", dirty=False)
    build(config)


if __name__ == "__main__":
    logging.basicConfig(format="%(levelname)s: %(message)s")  # What ends the build is said.
    make()
