"""The effects of an edit, for a terminal and for a pull request."""

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from slicebus.cli.screen import styled
from slicebus.manager.decide.forecast.difference import Effect, Fate
from slicebus.manager.decide.forecast.verdict import lost
from slicebus.proto.messages import counts_text

_NOTHING = "Nobody loses pods, nobody is admitted, and nobody waits for anything else."
_PLAIN = re.compile(r"[\w ,=.-]*")
"""What is no Markdown, whoever reads it."""
_MARKS = {
    Fate.EVICTED: ("✗ ", "red"),
    Fate.SHRUNK: ("- ", "red"),
    Fate.ADMITTED: ("✓ ", "green"),
    Fate.LATER: ("✓ ", "green"),
    Fate.WAITS: ("~ ", "yellow"),
}


def text(effects: Sequence[Effect]) -> RenderableType:
    """A line for each job, with its reason below."""
    lines: list[Text] = []
    for effect in effects:
        lines.append(styled(_MARKS[effect.fate], (effect.job, "bold"), f" {_told(effect)}"))
        lines += [styled(f"   {why}", style="dim") for why in _why(effect)]
    lines.append(styled(_summary(effects)))
    return Group(*lines)


def markdown(effects: Sequence[Effect]) -> str:
    """A table, with the summary before it."""
    if not effects:
        return _NOTHING
    rows = [" | ".join(("", *_cells(effect), "")).strip() for effect in effects]
    return "\n".join([f"**{_summary(effects)}**", "", "| | job | effect | why |", "|---|---|---|---|", *rows])


def _cells(effect: Effect) -> tuple[str, ...]:
    told = _told(effect)
    return (
        _MARKS[effect.fate][0].strip(),
        _code(effect.job),
        told if _PLAIN.fullmatch(told) else _code(told),
        _code("; ".join(_why(effect))),
    )


def _told(effect: Effect) -> str:
    there = f" on cluster {effect.cluster}" if effect.cluster else ""
    pods = counts_text(effect.pods)
    match effect.fate:
        case Fate.EVICTED:
            return f"would lose all its pods, {pods}{there}"
        case Fate.SHRUNK:
            return f"would lose {counts_text(lost(effect.pods, effect.left))} of {pods}{there}"
        case Fate.ADMITTED:
            return f"would be admitted with {pods}{there}"
        case Fate.LATER:
            return f"would be admitted with {pods}{there} when the others have left"
        case Fate.WAITS:
            return f"would wait with {pods}" + (" for something else" if effect.before else "")


def _why(effect: Effect) -> list[str]:
    said = [effect.message] if effect.message else []
    return [*said, *([f"now: {effect.before}"] if effect.before else [])]


def _summary(effects: Sequence[Effect]) -> str:
    if not effects:
        return _NOTHING
    lose = sum(effect.takes_pods for effect in effects)
    admitted = sum(effect.fate in (Fate.ADMITTED, Fate.LATER) for effect in effects)
    return f"Lose pods: {lose}. Admitted: {admitted}. Wait for something else: {len(effects) - lose - admitted}."


def _code(text: str) -> str:
    """A text as code that ends no cell of a table. Names in an edit are whatever its author writes, and in code nothing
    is a link, an image or a mention."""
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    edge = " " if "`" in (text[0], text[-1]) else ""
    one_line = text.replace("\n", " ").replace("\\|", "\\ |")  # A backslash before it would be the escaped one.
    return edge.join((fence, one_line.replace("|", "\\|"), fence))
