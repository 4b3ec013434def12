"""The Pod Security Standards without a server. tests/integration compares them with a real one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.workload.pod_security import CHECKS, Level, violations
from unit.proto.strategies import VALUES
from unit.slices.pods import HARDENED, PLAIN, corpus, with_value

VIOLATES: dict[str, tuple[str, Any, str]] = {
    "hostNamespaces": ("hostNetwork", True, "spec.hostNetwork=True"),
    "privileged": (
        "initContainers.0.securityContext.privileged",
        True,
        "spec.initContainers[0].securityContext.privileged=True",
    ),
    "capabilities_baseline": (
        "containers.0.securityContext.capabilities",
        {"drop": ["ALL"], "add": ["SYS_ADMIN"]},
        "spec.containers[0].securityContext.capabilities.add[0]='SYS_ADMIN'",
    ),
    "hostPathVolumes": (
        "volumes",
        [{"name": "v", "hostPath": {"path": "/"}}],
        "spec.volumes[0].hostPath={'path': '/'}",
    ),
    "hostPorts": (
        "containers.0.ports",
        [{"containerPort": 1}, {"containerPort": 2, "hostPort": 2}],
        "spec.containers[0].ports[1].hostPort=2",
    ),
    "sysctls": (
        "securityContext.sysctls",
        [{"name": "kernel.msgmax", "value": "1"}],
        "spec.securityContext.sysctls[0].name='kernel.msgmax'",
    ),
    "appArmorProfile": (
        "metadata/container.apparmor.security.beta.kubernetes.io/c",
        "unconfined",
        "metadata.annotations.container.apparmor.security.beta.kubernetes.io/c='unconfined'",
    ),
}


@pytest.mark.parametrize(("name", "case"), VIOLATES.items(), ids=VIOLATES.keys())
def test_a_violation_names_its_rule_its_field_and_its_value(name: str, case: tuple[str, Any, str]) -> None:
    path, value, told = case
    template = with_value(HARDENED, path, value)
    assert f"{name}: {told}" in violations(template, Level.BASELINE)
    assert f"{name}: {told}" in violations(template, Level.RESTRICTED)
    assert violations(template, Level.PRIVILEGED) == []


def test_a_long_value_is_shown_in_part() -> None:
    template = with_value(HARDENED, "volumes", [{"name": "v", "hostPath": {"path": "x" * 10_000}}])
    [found] = violations(template, Level.BASELINE)
    assert found.startswith("hostPathVolumes: spec.volumes[0].hostPath={'path': 'xxx")
    assert len(found) < 200


@pytest.mark.parametrize("level", Level)
def test_the_levels_are_one_within_the_other(level: Level) -> None:
    for template in corpus().values():
        assert {*violations(template, Level.BASELINE)} <= {*violations(template, Level.RESTRICTED)}
    assert (violations(PLAIN, level) == []) is (level is not Level.RESTRICTED)
    assert violations(HARDENED, level) == []


def test_every_check_refuses_something_and_not_everything() -> None:
    for check in CHECKS:
        verdicts = {bool(list(check.find(template))) for template in corpus().values()}
        assert verdicts == {True, False}, check.name


@pytest.mark.parametrize("value", ["text", 1, [], ["x"], {"a": 1}])
@pytest.mark.parametrize("path", ["containers", "securityContext", "volumes", "initContainers.0"])
def test_a_value_of_the_wrong_type_is_not_allowed(path: str, value: Any) -> None:
    template = with_value(HARDENED, path, value)
    assert violations(template, Level.RESTRICTED) or value in ([], {"a": 1})


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "containers"]), VALUES))
def test_whatever_a_template_is_nothing_is_raised(template: dict[str, Any]) -> None:
    for level in Level:
        violations(template, level)
        violations({"spec": template}, level)
