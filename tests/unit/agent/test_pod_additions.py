"""What a cluster adds to pods, as its agent tells it."""

from typing import Any

import pytest

from slicebus.agent.decide.cluster.pod_additions import container_defaults, pod_overheads

Manifest = dict[str, Any]


def a_limit_range(*items: Manifest, namespace: str = "team") -> Manifest:
    return {"metadata": {"namespace": namespace, "name": "l"}, "spec": {"limits": list(items)}}


def an_item(type: str = "Container", **fields: Any) -> Manifest:
    return {"type": type} | fields


DEFAULTS: dict[str, tuple[list[Manifest], dict[str, Any]]] = {
    "none": ([], {}),
    "a default request": ([a_limit_range(an_item(defaultRequest={"cpu": "4"}))], {"team": {"cpu": "4"}}),
    "a default limit alone": ([a_limit_range(an_item(default={"cpu": "4"}))], {"team": {"cpu": "4"}}),
    "both": (
        [a_limit_range(an_item(default={"cpu": "4"}, defaultRequest={"cpu": "1", "memory": "1Gi"}))],
        {"team": {"cpu": "1", "memory": "1Gi"}},
    ),
    "of pods": ([a_limit_range(an_item("Pod", max={"cpu": "4"}))], {}),
    "bounds only": ([a_limit_range(an_item(max={"cpu": "4"}))], {}),
    "of a namespace that nobody asks for": ([a_limit_range(an_item(default={"cpu": "4"}), namespace="other")], {}),
    "the larger of several": (
        [
            a_limit_range(an_item(defaultRequest={"cpu": "500m", "memory": "1Gi"})),
            a_limit_range(an_item(defaultRequest={"cpu": "2"}), an_item(defaultRequest={"cpu": "1"})),
        ],
        {"team": {"cpu": "2", "memory": "1Gi"}},
    ),
}


@pytest.mark.parametrize(("found", "expected"), DEFAULTS.values(), ids=DEFAULTS.keys())
def test_what_containers_request_by_default(found: list[Manifest], expected: dict[str, Any]) -> None:
    assert container_defaults(found, {"team"}) == expected


def test_what_pods_of_a_runtime_class_take() -> None:
    classes = [
        {"metadata": {"name": "plain"}},
        {"metadata": {"name": "kata"}, "overhead": {"podFixed": {"memory": "128Mi", "cpu": "250m"}}},
        {"metadata": {"name": "empty"}, "overhead": {}},
    ]
    assert pod_overheads(classes) == {"kata": {"cpu": "250m", "memory": "128Mi"}}
