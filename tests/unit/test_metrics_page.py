"""docs/metrics.md has every metric of both roles, and every metric that a document names exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from support import metrics_page
from support.metrics_page import Family

TOP = Path(__file__).parents[2]
DOCUMENTS = [TOP / "README.md", TOP / "CHANGELOG.md", *sorted((TOP / "docs").rglob("*.md"))]
NAMED = re.compile(r"\b((?:slicebus|kueue)_[a-z_]+[a-z])(?:\b|(?=_\*))")
PARTS_OF_HISTOGRAMS = re.compile(r"_(?:bucket|sum|count)$")
NO_METRICS = {"slicebus_agent", "slicebus_manager"}
"""Names of other things."""


@cache
def families() -> dict[str, Family]:
    """What the roles register."""
    return metrics_page.families()


def test_the_page_is_up_to_date() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(families()), "make metrics"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(TOP).as_posix())
def test_every_metric_that_a_document_names_exists(document: Path) -> None:
    named = {PARTS_OF_HISTOGRAMS.sub("", name) for name in NAMED.findall(document.read_text())}
    assert named - NO_METRICS <= set(families())


def test_no_metric_is_by_job_and_their_names_are_conventional() -> None:
    own = {name: family for name, family in families().items() if name.startswith("slicebus_")}
    for name, family in own.items():
        assert not {"job", "workload", "pod", "le", "uid"} & {*family.labels}, name
        assert family.type == "counter" or not name.endswith("_total"), name
        assert family.type != "histogram" or name.endswith(("_seconds", "_bytes")), name
        assert family.text.endswith("."), name
    assert not any(name.endswith("_created") for name in families())
