"""Writes Markdown by the rules of the site.

GitHub takes a list without a blank line before it, and what belongs to an item as far in as its text begins.
Python-Markdown needs the blank line, and four spaces a level.
"""

import re
from collections import defaultdict

from markdown_it import MarkdownIt

_MARKER = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_NEED_A_BLANK_LINE = ("bullet_list_open", "ordered_list_open", "table_open")
_STEP = 4


def indented(text: str) -> str:
    """A document that shows the same, with four spaces for each level of lists."""
    lines = text.split("\n")
    items: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    begins = set()
    item_before: dict[int, int] = {}
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.map is None:
            continue
        first, end = token.map
        if token.type == "list_item_open" and (marker := _MARKER.match(lines[first])):
            for number in range(first, end):
                items[number].append((first, marker.end()))
            # After an item of several blocks the next one needs a blank line, too.
            if (
                not all(line.strip() for line in lines[item_before.get(token.level, first) : first])
                and lines[first - 1].strip()
            ):
                begins.add(first)
            item_before[token.level] = first
        elif token.type in _NEED_A_BLANK_LINE and token.level == 0 and first and lines[first - 1].strip():
            begins.add(first)
    written = []
    for number, line in enumerate(lines):
        written += [""] if number in begins else []
        written.append(_moved(line, number, items[number]))
    return "\n".join(written)


def _moved(line: str, number: int, items: list[tuple[int, int]]) -> str:
    """A line within these items, which are known by their first lines and where their text begins."""
    if not items or not line.strip():
        return line
    first, begins = items[-1]
    if number == first:
        return " " * (_STEP * (len(items) - 1)) + line.lstrip()
    indent = len(line) - len(line.lstrip())
    return " " * (_STEP * len(items)) + line[min(indent, begins) :]
