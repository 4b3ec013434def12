"""Checks whether a value is a pod template, as far as slicebus reads one."""

from typing import Any, TypeGuard

import msgspec

Manifest = dict[str, Any]
_Amounts = dict[str, str | int | float]


class _Resources(msgspec.Struct):
    requests: _Amounts = {}
    limits: _Amounts = {}


class _Container(msgspec.Struct, rename="camel"):
    name: str
    resources: _Resources = msgspec.field(default_factory=_Resources)


class _Gate(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    init_containers: list[_Container] = []
    scheduling_gates: list[_Gate] = []
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    resources: _Resources | None = None
    overhead: _Amounts = {}


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(msgspec.Struct):
    spec: _Spec
    metadata: _Metadata | None = None


def is_template(value: object) -> TypeGuard[Manifest]:
    """Whether it can be read as a PodTemplateSpec. Its quantities may still be none."""
    try:
        msgspec.convert(value, _Template)
    except msgspec.ValidationError:
        return False
    return True
