"""`slicebus queues`: quota, what is used of it, and who waits."""

from typing import Any

import pytest

from slicebus.cli.cluster.listing import Listing
from slicebus.cli.cluster.options import Output, OutputFormat
from slicebus.cli.queues.rows import COLUMNS, LOCAL_COLUMNS, QueueLine, QueueRow, bar, in_order, lines
from unit.manager.objects import condition

Manifest = dict[str, Any]


def quota(name: str, nominal: str, **limits: str) -> Manifest:
    return {"name": name, "nominalQuota": nominal, **limits}


def a_queue(*, stop: str | None = None, active: bool = True, **status: Any) -> Manifest:
    """A ClusterQueue with two flavors."""
    spot = {"name": "spot", "resources": [quota("cpu", "8", borrowingLimit="4"), quota("memory", "16Gi")]}
    gpu = {"name": "gpu", "resources": [quota("cpu", "0"), quota("memory", "0")]}
    spec: Manifest = {"cohortName": "org", "resourceGroups": [{"flavors": [spot, gpu]}]}
    return {
        "metadata": {"name": "batch"},
        "spec": spec | ({"stopPolicy": stop} if stop else {}),
        "status": {
            "pendingWorkloads": 3,
            "admittedWorkloads": 2,
            "conditions": [condition("Active", active, "CohortCycle", "a cycle")],
            **status,
        },
    }


def used(flavor: str, **resources: str) -> Manifest:
    entries = [
        {"name": name, "total": total.partition("+")[0]}
        | ({"borrowed": total.partition("+")[2]} if "+" in total else {})
        for name, total in resources.items()
    ]
    return {"name": flavor, "resources": entries}


LOCAL: Manifest = {
    "metadata": {"name": "main", "namespace": "team-a"},
    "spec": {"clusterQueue": "batch", "stopPolicy": "Hold"},
    "status": {"pendingWorkloads": 1, "admittedWorkloads": 2, "flavorsUsage": [used("spot", cpu="2")]},
}


def printed(
    row: QueueRow, columns: Any, capsys: pytest.CaptureFixture[str], output: Output = Output.TABLE
) -> list[list[str]]:
    Listing[QueueLine](columns, OutputFormat(output=output)).show(lines([row]))
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_queue_has_a_line_for_each_resource_of_a_flavor(capsys: pytest.CaptureFixture[str]) -> None:
    row = QueueRow.of(a_queue(flavorsUsage=[used("spot", cpu="10+2", memory="4Gi"), used("gpu", cpu="500m")]))
    titles, *found = printed(row, COLUMNS, capsys)
    assert titles == [
        "CLUSTERQUEUE", "COHORT", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED", "BAR", "PENDING", "ADMITTED",
        "STOPPED",
    ]  # fmt: skip
    assert found == [
        ["batch", "org", "spot", "cpu", "8", "10", "2", "██████████", "125%", "3", "2", "-"],
        ["batch", "org", "spot", "memory", "16Gi", "4Gi", "0", "██░░░░░░░░", "25%", "3", "2", "-"],
        ["batch", "org", "gpu", "cpu", "0", "500m", "0", "-", "3", "2", "-"],
        ["batch", "org", "gpu", "memory", "0", "0", "0", "-", "3", "2", "-"],
    ]


def test_wide_has_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    titles, cpu, *_ = printed(QueueRow.of(a_queue()), COLUMNS, capsys, Output.WIDE)
    assert titles[7:9] == ["MAY-BORROW", "MAY-LEND"]
    assert cpu[7:9] == ["4", "-"]


def test_what_has_no_quota_any_more_is_shown_too() -> None:
    row = QueueRow.of(a_queue(flavorsUsage=[used("gone", cpu="3")]))
    assert [(use.flavor, use.resource, use.nominal, use.used) for use in row.use][-1] == ("gone", "cpu", "", "3")


def test_a_local_queue(capsys: pytest.CaptureFixture[str]) -> None:
    _, line = printed(QueueRow.of(LOCAL), LOCAL_COLUMNS, capsys)
    assert line == ["main", "batch", "spot", "cpu", "2", "1", "2", "Hold"]


def test_a_queue_without_quota_is_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    row = QueueRow.of({"metadata": {"name": "new"}})
    _, line = printed(row, COLUMNS, capsys)
    assert line == ["new", "-", "-", "-", "-", "-", "-", "-", "0", "0", "-"]


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        (a_queue(), "-"),
        (a_queue(stop="HoldAndDrain", active=False), "HoldAndDrain"),
        (a_queue(active=False), "CohortCycle: a cycle"),
    ],
)
def test_why_a_queue_admits_nothing(queue: Manifest, told: str) -> None:
    assert lines([QueueRow.of(queue)])[0].stopped == told


@pytest.mark.parametrize(
    ("share", "text"), [(None, "-"), (0.0, "░" * 10 + " 0%"), (0.64, "██████░░░░ 64%"), (2.0, "█" * 10 + " 200%")]
)
def test_bars(share: float | None, text: str) -> None:
    assert bar(share) == text


def test_names_and_order() -> None:
    rows = in_order([QueueRow.of(LOCAL), QueueRow.of(a_queue())])
    assert [row.resource_name for row in rows] == [
        "clusterqueue.kueue.x-k8s.io/batch",
        "localqueue.kueue.x-k8s.io/main",
    ]


def test_a_quota_that_is_no_quantity_ends_nothing() -> None:
    broken = a_queue()
    broken["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "many"
    assert QueueRow.of(broken).use[0].nominal == ""
