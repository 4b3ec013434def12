"""What somebody asks `slicebus whatif` to change: amounts, names with dots, policies, and mistakes in one line."""

from decimal import Decimal

import pytest

from slicebus.cli.whatif.options import preemption_change, quota_change, room_change
from slicebus.manager.decide.whatif.hypotheses import AmountChange, amount_change
from slicebus.proto.errors import ConfigurationError

KNOWN = {
    "batch": [("reserved", "cpu"), ("spot", "cpu"), ("reserved", "nvidia.com/gpu")],
    "batch.large": [("reserved", "cpu")],
}


@pytest.mark.parametrize(
    ("text", "resource", "before", "after"),
    [
        ("+20%", "cpu", "10", "12"),
        ("+20%", "cpu", "5500m", "6600m"),
        ("-50%", "memory", "4Gi", "2Gi"),
        ("80%", "cpu", "10", "8"),
        ("0%", "cpu", "10", "0"),
        ("+8", "cpu", "4", "12"),
        ("-8", "cpu", "4", "0"),
        ("+500m", "cpu", "4", "4500m"),
        ("64", "cpu", "4", "64"),
        ("8Gi", "memory", "4Gi", "8Gi"),
        ("-2", "nvidia.com/gpu", "8", "6"),
    ],
)
def test_amounts(text: str, resource: str, before: str, after: str) -> None:
    assert amount_change(text).of(resource, before) == after


@pytest.mark.parametrize("text", ["", "%", "+", "-150%", "+-20%", "twice", "20 %", "+x%", "1e", "--8"])
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        amount_change(text)


@pytest.mark.parametrize(
    ("text", "queue", "resource", "flavor"),
    [
        ("batch.cpu=+20%", "batch", "cpu", ""),
        ("batch.cpu@spot=64", "batch", "cpu", "spot"),
        ("batch.nvidia.com/gpu=8", "batch", "nvidia.com/gpu", ""),
        ("batch.large.cpu=64", "batch.large", "cpu", ""),
    ],
)
def test_quota(text: str, queue: str, resource: str, flavor: str) -> None:
    change = quota_change(text, KNOWN)
    assert (change.queue, change.resource, change.flavor) == (queue, resource, flavor)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "use NAME=AMOUNT"),
        ("=8", "use NAME=AMOUNT"),
        ("batch.cpu=", "use NAME=AMOUNT"),
        ("batch.cpu=more", "more is no amount"),
        ("other.cpu=8", "the recording has batch, batch.large"),
        ("batch=+20%", "name a resource"),
        ("batch.memory=8", "batch has quota of"),
        ("batch.cpu=8", "name one of its flavors"),
        ("batch.nvidia.com/gpu@spot=8", "batch has quota of"),
    ],
)
def test_mistakes_about_quota(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        quota_change(text, KNOWN)


@pytest.mark.parametrize(
    ("text", "cluster", "resource"),
    [("batch=-50%", "batch", ""), ("batch.large.cpu=+8", "batch.large", "cpu"), ("batch.cpu=-50%", "batch", "cpu")],
)
def test_clusters(text: str, cluster: str, resource: str) -> None:
    change = room_change(text, KNOWN)
    assert (change.cluster, change.resource) == (cluster, resource)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch=8", "name a resource and a flavor"),
        ("batch.cpu=8", "name a resource and a flavor"),
        ("batch.memory=-50%", "no such room"),
        ("north=-50%", "the recording has"),
    ],
)
def test_mistakes_about_clusters(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        room_change(text, KNOWN)


def test_preemption() -> None:
    change = preemption_change("batch.large.withinClusterQueue=LowerPriority", KNOWN)
    assert (change.queue, change.field, change.policy) == ("batch.large", "withinClusterQueue", "LowerPriority")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch", "use QUEUE.FIELD=POLICY"),
        ("batch.within=Any", "use QUEUE.FIELD=POLICY"),
        ("other.withinClusterQueue=Never", "no ClusterQueue other"),
        ("batch.withinClusterQueue=Any", "takes Never, LowerPriority"),
    ],
)
def test_mistakes_about_preemption(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        preemption_change(text, KNOWN)


def test_a_share_is_exact() -> None:
    assert amount_change("+20%") == AmountChange(factor=Decimal("1.2"))
