"""The alerts of the charts, as they are in their files."""

from typing import Any

import yaml

from support.helm import CHARTS

Rule = dict[str, Any]
FILES = ("role", "both")


def alerts(chart: str) -> list[Rule]:
    """The alerts of a chart, in their order, with placeholders."""
    folder = CHARTS / chart / "files" / "alerts"
    return [rule for name in FILES for rule in yaml.safe_load((folder / f"{name}.yaml").read_text())]
