"""Values that a Kueue would refuse are told where they stand."""

from typing import Any

import pytest

from slicebus.slices.api.honored import unhonored
from slicebus.slices.api.odd_values import odd_values

_QUOTA = "spec.resourceGroups[].flavors[].resources"
_LESS = "it is less than 0, and others of the tree have so much less"
_REFUSED = "API servers refuse pods with it, as"


def _quota(**limits: Any) -> dict[str, Any]:
    resource = {"name": "cpu", "nominalQuota": "4"} | limits
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [resource]}]}]}


@pytest.mark.parametrize(("kind", "above"), [("ClusterQueue", "cohortName"), ("Cohort", "parentName")])
@pytest.mark.parametrize(
    ("limits", "field", "instead"),
    [
        ({"nominalQuota": -1}, "nominalQuota", _LESS),
        ({"nominalQuota": "-500m"}, "nominalQuota", _LESS),
        ({"borrowingLimit": "-2"}, "borrowingLimit", _LESS),
        ({"lendingLimit": -2}, "lendingLimit", _LESS),
        ({"lendingLimit": "5"}, "lendingLimit", "it is more than nominalQuota, and all of that is lent"),
    ],
)
def test_an_odd_limit_is_told(kind: str, above: str, limits: dict[str, Any], field: str, instead: str) -> None:
    spec = _quota(**limits) | {above: "tree"}
    assert unhonored(kind, {"spec": spec}) == {f"{_QUOTA}[].{field}": f"cpu of flavor a: {instead}"}


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort"])
def test_nobody_borrows_without_a_cohort(kind: str) -> None:
    told = {f"{_QUOTA}[].borrowingLimit": "cpu of flavor a: there is no cohort to borrow from"}
    assert dict(odd_values(kind, _quota(borrowingLimit=0))) == told


@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort", "LocalQueue"])
@pytest.mark.parametrize(("weight", "is_odd"), [("-1", True), (-0.5, True), (0, False), ("2", False), ("a", False)])
def test_a_weight_below_0_is_told(kind: str, weight: object, is_odd: bool) -> None:
    told = {"spec.fairSharing.weight": "it is less than 0, and counts as 0"} if is_odd else {}
    assert dict(odd_values(kind, {"fairSharing": {"weight": weight}})) == told


def test_what_a_kueue_takes_is_not_odd() -> None:
    spec = _quota(borrowingLimit="0", lendingLimit="4") | {"cohortName": "tree", "fairSharing": {"weight": "1500m"}}
    assert dict(odd_values("ClusterQueue", spec)) == {}
    assert dict(odd_values("ClusterQueue", {})) == {}
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": []}]}]}
    assert dict(odd_values("WorkerCluster", spec)) == {}, "it has no such fields"


@pytest.mark.parametrize(
    ("toleration", "field", "instead"),
    [
        ({"value": "b"}, "operator", f"{_REFUSED} without a key it has to be Exists"),
        ({"key": "", "operator": "Equal"}, "operator", f"{_REFUSED} without a key it has to be Exists"),
        ({"key": "a", "operator": "Gt", "value": "5"}, "operator", "'Gt' counts as Equal"),
        ({"key": "a", "operator": "Exists", "value": "b"}, "value", f"{_REFUSED} the operator Exists has none"),
        (
            {"key": "a", "effect": "NoSchedul"},
            "effect",
            f"{_REFUSED} 'NoSchedul' is none of NoSchedule, PreferNoSchedule, NoExecute",
        ),
        (
            {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
            "tolerationSeconds",
            f"{_REFUSED} the effect has to be NoExecute",
        ),
    ],
)
def test_an_odd_toleration_of_a_flavor_is_told(toleration: dict[str, Any], field: str, instead: str) -> None:
    assert unhonored("ResourceFlavor", {"spec": {"tolerations": [toleration]}}) == {
        f"spec.tolerations[].{field}": instead
    }


@pytest.mark.parametrize(
    "toleration",
    [
        {"operator": "Exists"},
        {"key": "a", "value": "b"},
        {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
    ],
)
def test_a_toleration_as_api_servers_take_it_is_not_odd(toleration: dict[str, Any]) -> None:
    assert dict(odd_values("ResourceFlavor", {"tolerations": [toleration]})) == {}


def test_a_taint_that_keeps_no_pod_off_is_told() -> None:
    spec = {"nodeTaints": [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "Never"}]}
    assert dict(odd_values("ResourceFlavor", spec)) == {"spec.nodeTaints[].effect": "no pod is kept off by 'Never'"}


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {"resourceGroups": "a"},
        {"resourceGroups": [{"flavors": [{"resources": [{"name": 5}]}]}]},
        {"fairSharing": []},
        {"fairSharing": {"weight": ["-1"]}},
        {"tolerations": [{"key": 5}]},
        {"nodeTaints": {}},
    ],
)
@pytest.mark.parametrize("kind", ["ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"])
def test_what_cannot_be_read_is_told_elsewhere(kind: str, spec: object) -> None:
    assert list(odd_values(kind, spec)) == []
