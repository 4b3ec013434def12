"""The rules for what the spec of a Job says of failures and of its success: Kubernetes 1.36, pkg/apis/batch/validation.
They hold for each write of the spec, and compare it with the completions."""

from collections.abc import Iterator
from typing import Any

from slicebus.sandbox.apiserver.job_status import indexes, misread

Manifest = dict[str, Any]


def problems(spec: Manifest) -> Iterator[str]:
    """Why the API server refuses this spec."""
    indexed, most = spec.get("completionMode") == "Indexed", spec.get("completions")
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if name in spec and not indexed:
            yield f"spec.{name}: Invalid value: {spec[name]}: requires indexed completion mode"
    if not indexed or most is None:
        return
    failed = spec.get("maxFailedIndexes")
    if failed is not None and "backoffLimitPerIndex" not in spec:
        yield "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"
    if failed is not None and failed > most:
        yield f"spec.maxFailedIndexes: Invalid value: {failed}: must be less than or equal to completions"
    for number, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or ()):
        yield from _of_success(f"spec.successPolicy.rules[{number}]", rule, most)


def _of_success(where: str, rule: Manifest, most: int) -> Iterator[str]:
    named, count = rule.get("succeededIndexes"), rule.get("succeededCount")
    if named is None and count is None:
        yield f"{where}: Required value: at least one of succeededCount or succeededIndexes must be specified"
    if named is not None and (problem := misread(named, most)):
        yield f"{where}.succeededIndexes: Invalid value: {named!r}: error parsing succeededIndexes: {problem}"
    if count is not None and count > most:
        yield (
            f"{where}.succeededCount: Invalid value: {count}: must be less than or equal to {most} (the number of "
            "specified completions)"
        )
    if named is not None and count is not None and count > len(indexes(named)):
        yield (
            f"{where}.succeededCount: Invalid value: {count}: must be less than or equal to {len(indexes(named))} (the "
            "number of indexes in the specified succeededIndexes field)"
        )
