"""docs/sizing.md, the manager's chart and the benchmark of its memory say the same."""

import re
from pathlib import Path

import memory
import yaml

from slicebus.slices.api.quantities import amount

TOP = Path(__file__).parents[2]
CLAIM = re.compile(
    r"^\| memory \| (?P<rest>\d+) MB resident at rest\b.*count (?P<each>[\d.]+) KB a job: the chart's limit of "
    r"(?P<limit>\S+ ?[KMG]i) holds (?P<jobs>[\d,]+)",
    re.MULTILINE,
)


def limit_bytes(role: str) -> int:
    values = yaml.safe_load((TOP / "charts" / f"slicebus-{role}" / "values.yaml").read_text(encoding="utf-8"))
    return int(amount("memory", values["resources"]["limits"]["memory"]))


def test_the_managers_limit_holds_what_the_page_says() -> None:
    page = (TOP / "docs" / "sizing.md").read_text(encoding="utf-8").partition("## Agent")[0]
    said = CLAIM.search(page)
    assert said is not None
    jobs = int(said["jobs"].replace(",", ""))
    limit = int(amount("memory", said["limit"].replace(" ", "")))
    assert limit == limit_bytes("manager") == memory.LIMIT_MB * memory.MIB
    assert jobs >= 50_000
    assert (int(said["rest"]), jobs) == (memory.REST_MB, memory.MANY)
    needed = int(said["rest"]) * 10**6 + jobs * float(said["each"]) * 1000
    assert needed <= limit * 0.9, "with a tenth to spare"
