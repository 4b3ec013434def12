"""The page docs/reference/values.md: the values of both charts, with the comments of their values.yaml."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

_CHARTS = Path(__file__).parents[3] / "charts"
_HEAD = """# Values of the charts

What `helm install --set` and a file of values may set. `make reference` writes this page from `values.yaml` and the
templates of both charts, and a test compares it with them. [The charts](../reference.md#charts) says how to use them.

What a value *sets* is a [setting](settings.md) of the role.
"""
_TABLE = "| value | default | meaning |\n|---|---|---|\n"
_KEY = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?: (?P<default>.+))?$")
_VARIABLE = re.compile(r"\b(AMQP_URL|SLICEBUS_\w+)\b")
_OF_VALUES = re.compile(r"(?:\.Values|\$values|\$(amqp))\.([\w.]+)")
_SET_BY_OTHERS = {
    "amqp.existingSecret": "AMQP_URL",
    "amqp.url": "AMQP_URL",
    "policy": "SLICEBUS_POLICY_FILE",
    "schedulers": "SLICEBUS_SCHEDULERS",
}
"""Values whose settings a template of another name writes."""
_FOLDED = {"policy": "[The policy of a cluster](../reference.md#the-policy-of-a-cluster) has its fields."}
"""Values whose fields another page describes."""


class _Value(NamedTuple):
    """One line of values.yaml that sets something, or that has a comment."""

    path: str
    default: str
    meaning: str


def values_page() -> str:
    """The page, from the files of both charts."""
    manager, agent = (list(_values(_CHARTS / f"slicebus-{role}" / "values.yaml")) for role in ("manager", "agent"))
    both = [value for value in manager if value in agent]
    sections = {
        "Both charts": both,
        "The manager's chart": [value for value in manager if value not in both],
        "The agent's chart": [value for value in agent if value not in both],
    }
    setting = _settings()
    tables = (
        f"\n## {title}\n\n{_TABLE}" + "".join(_row(value, setting) for value in values)
        for title, values in sections.items()
    )
    return _HEAD + "".join(tables)


def _row(value: _Value, setting: dict[str, str]) -> str:
    default = f"`{value.default}`" if value.default else ""
    sets = [f"*Sets* `{setting[value.path]}`."] if value.path in setting else []
    meaning = value.meaning.replace("*", "\\*").replace("|", "\\|")
    words = " ".join([*filter(None, [meaning]), *sets])
    return f"| `{value.path}` | {default} | {words} |\n"


def _values(file: Path) -> Iterator[_Value]:
    """The values of a chart in their order. What comes above a value are its words."""
    above: list[str] = []
    names: list[str] = []
    text = file.read_text(encoding="utf-8")
    lists = {
        name: yaml.safe_dump(value, default_flow_style=True).strip()
        for name, value in yaml.safe_load(text).items()
        if value and isinstance(value, list)
    }
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            above.append(stripped.removeprefix("#").strip())
        elif found := _KEY.match(line):
            del names[len(found["indent"]) // 2 :]
            names.append(found["name"])
            path, default, words = ".".join(names), found["default"] or lists.get(found["name"], ""), " ".join(above)
            folded = [name for name in _FOLDED if path == name or path.startswith(f"{name}.")]
            if path in _FOLDED:
                yield _Value(path, "", f"{words} {_FOLDED[path]}")
            elif not folded and (default or words):
                yield _Value(path, default, words)
            above = []
        else:
            above = []


def _settings() -> dict[str, str]:
    """The variable that each value sets, as the templates write it.

    The value stands in the variable's line, in the next one, or in the condition above it.
    """
    found = dict(_SET_BY_OTHERS)
    templates = [*_CHARTS.glob("common/*.tpl"), *_CHARTS.glob("slicebus-*/templates/_variables.tpl")]
    for template in templates:
        lines = template.read_text(encoding="utf-8").splitlines()
        for index, line in enumerate(lines):
            variable = _VARIABLE.search(line)
            if not variable or variable[1] in found.values():
                continue
            after = lines[index + 1] if line.lstrip().startswith("- name:") else ""
            for place in (line, after, lines[index - 1]):
                if of_values := _OF_VALUES.search(place):
                    amqp, path = of_values.groups()
                    found[f"amqp.{path}" if amqp else path] = variable[1]
                    break
    return found
