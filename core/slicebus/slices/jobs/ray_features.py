"""Says what KubeRay would refuse of a cluster's features: resources, labels and priority of groups, GCS fault
tolerance, and authentication.

Source: KubeRay 1.7, `ray-operator/controllers/ray/utils/validation.go`.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from slicebus.slices.jobs.ray import autoscaler_version, groups, head_environment

Manifest = dict[str, Any]

V2_VARIABLE = "RAY_enable_autoscaler_v2"
_RESOURCE_PARAMETERS = ("num-cpus", "num-gpus", "memory", "resources")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(rf"({_NAME.pattern})?")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LENGTH, _PREFIX_LENGTH = 63, 253
_LARGEST = 2**64 - 1
"""The largest component of a version that Kubernetes' parser reads."""
_DIGITS = 20
"""How many digits it has: int() raises for thousands."""
_VERSION = re.compile(r"\s*v?(\d+(?:\.\d+)*).*", re.DOTALL)

_FT_ANNOTATION = "ray.io/ft-enabled"
_STORAGE_ANNOTATION = "ray.io/external-storage-namespace"
_REDIS_ADDRESS = "RAY_REDIS_ADDRESS"
_REDIS_PASSWORD = "REDIS_PASSWORD"
_REDIS_USERNAME = "REDIS_USERNAME"


def uses_v2(spec: Manifest) -> bool:
    """Whether the head is told to run autoscaler v2."""
    return autoscaler_version(spec) == "v2" or head_environment(spec).get(V2_VARIABLE) in ("1", "true")


def feature_messages(spec: Manifest, *, annotations: Mapping[str, str]) -> Iterator[str]:
    """Why KubeRay would refuse a cluster's spec, by the rules about its features. `annotations` are those of the
    RayCluster, or of the RayJob that has the spec."""
    for name, group in (("Head", spec["headGroupSpec"]), *((group["groupName"], group) for group in groups(spec))):
        yield from _resource_messages(name, group)
        yield from _label_messages(name, group)
    for group in groups(spec):
        yield from _priority_messages(spec, group)
    yield from _redis_messages(spec, annotations)
    yield from _authentication_messages(spec)


def _resource_messages(name: str, group: Manifest) -> Iterator[str]:
    parameters = group.get("rayStartParams") or {}
    if group.get("resources") and any(parameters.get(parameter) for parameter in _RESOURCE_PARAMETERS):
        yield (
            f"resource fields should not be set in both rayStartParams and Resources for {name} group; "
            "please use only one"
        )


def _label_messages(name: str, group: Manifest) -> Iterator[str]:
    if "labels" in (group.get("rayStartParams") or {}):
        yield (
            f"rayStartParams['labels'] is not supported for {name} group; please use the top-level Labels field instead"
        )
    for key, value in (group.get("labels") or {}).items():
        if not _is_label_key(key):
            yield f"invalid label key for {name} group: '{key}'"
        if len(value) > _NAME_LENGTH or not _VALUE.fullmatch(value):
            yield f"invalid label value for key '{key}' in {name} group: '{value}'"


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _PREFIX_LENGTH or not _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= _NAME_LENGTH and bool(_NAME.fullmatch(name))


def _priority_messages(spec: Manifest, group: Manifest) -> Iterator[str]:
    name, priority, version = group["groupName"], group.get("priority"), spec.get("rayVersion") or ""
    if not priority:
        return
    if not version:
        yield (
            f"worker group {name}: priority is set, but RayVersion was not specified. "
            "Ray version 2.56.0 or later is required"
        )
    elif problem := _version_problem(version):
        yield f"worker group {name}: priority is set, but RayVersion format is invalid: {version}, {problem}"
    elif _numbers(version) < (2, 56, 0):
        yield f"worker group {name}: priority is set, but minimum Ray version is 2.56.0, got {version}"
    if not uses_v2(spec):
        yield (
            f"worker group {name}: priority is set to {priority}, but autoscaler v2 is not enabled. "
            "Priority is only supported with autoscaler v2 enabled"
        )


def _redis_messages(spec: Manifest, annotations: Mapping[str, str]) -> Iterator[str]:
    """About GCS fault tolerance: one way to turn it on, and one way to say where Redis is."""
    options, variables = spec.get("gcsFaultToleranceOptions"), head_environment(spec)
    parameters = spec["headGroupSpec"].get("rayStartParams") or {}
    if annotations.get(_FT_ANNOTATION) and options is not None:
        yield (
            f"{_FT_ANNOTATION} annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance"
        )
    if options is None and annotations.get(_FT_ANNOTATION, "").lower() != "true" and _REDIS_ADDRESS in variables:
        yield (
            f"{_REDIS_ADDRESS} is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is "
            "not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
        )
    if options is not None:
        for is_set, setting, instead in (
            (parameters.get("redis-password"), "`redis-password` in rayStartParams", "RedisPassword"),
            (_REDIS_PASSWORD in variables, f"`{_REDIS_PASSWORD}` env var in head Pod", "RedisPassword"),
            (_REDIS_ADDRESS in variables, f"`{_REDIS_ADDRESS}` env var in head Pod", "RedisAddress"),
            (annotations.get(_STORAGE_ANNOTATION), f"`{_STORAGE_ANNOTATION}` annotation", "ExternalStorageNamespace"),
        ):
            if is_set:
                yield (
                    f"cannot set {setting} when GcsFaultToleranceOptions is enabled - "
                    f"use GcsFaultToleranceOptions.{instead} instead"
                )
        if options.get("backend") in (None, "", "redis") and options.get("storage") is not None:
            yield (
                "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - "
                "it only applies to the 'rocksdb' backend"
            )
    if parameters.get("redis-username") or _REDIS_USERNAME in variables:
        yield (
            "cannot set redis username in rayStartParams or environment variables - "
            "use GcsFaultToleranceOptions.RedisUsername instead"
        )


def _authentication_messages(spec: Manifest) -> Iterator[str]:
    options, version = spec.get("authOptions") or {}, spec.get("rayVersion") or ""
    by_kubernetes = bool(options.get("enableK8sTokenAuth"))
    if options.get("mode") != "token":
        if by_kubernetes:
            yield "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"
        return
    if not version:
        yield ("authOptions.mode is 'token' but RayVersion was not specified. Ray version 2.52.0 or later is required")
    elif problem := _version_problem(version):
        yield f"authOptions.mode is 'token' but RayVersion format is invalid: {version}, {problem}"
    elif _numbers(version) < (2, 52, 0):
        yield f"authOptions.mode is 'token' but minimum Ray version is 2.52.0, got {version}"
    elif by_kubernetes and _numbers(version) < (2, 55, 0):
        yield f"authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got {version}"
    if by_kubernetes and options.get("secretName"):
        yield "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"


def _version_problem(text: str) -> str:
    """Why a text is no version of Ray, in the words of Kubernetes' parser; empty for a version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return f"could not parse {json.dumps(text)} as version"
    parts = match[1].split(".")
    if len(parts) < 2:
        return f"illegal version string {json.dumps(text)}"
    if parts[0].startswith("0") and parts[0] != "0":
        return f'illegal zero-prefixed version component "{parts[0]}" in {json.dumps(text)}'
    for part in parts:
        if len(part.lstrip("0")) > _DIGITS or _number(part) > _LARGEST:
            return f'illegal non-numeric version component "{part}" in {json.dumps(text)}'
    return ""


def _numbers(text: str) -> tuple[int, ...]:
    """The components of a version, with zeros for the third where it has two."""
    match = _VERSION.fullmatch(text)
    assert match is not None
    numbers = tuple(map(_number, match[1].split(".")))
    return numbers + (0,) * (3 - len(numbers))


def _number(digits: str) -> int:
    return int(digits.lstrip("0") or "0")
