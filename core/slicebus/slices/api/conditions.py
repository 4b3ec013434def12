"""Compares and merges the conditions of Kubernetes objects, as values."""

from typing import Any

import msgspec

Manifest = dict[str, Any]

_MESSAGE_LENGTH = 32_768
"""The most that metav1.Condition allows."""


class Finding(msgspec.Struct, frozen=True):
    """The wanted state of a condition."""

    type: str
    status: bool
    reason: str
    message: str


def has_finding(manifest: Manifest, finding: Finding) -> bool:
    """Whether the object already has the condition in that state."""
    wanted = finding.status, finding.reason, finding.message[:_MESSAGE_LENGTH]
    return any(
        condition["type"] == finding.type
        and (condition["status"] == "True", condition.get("reason", ""), condition.get("message", "")) == wanted
        for condition in conditions_of(manifest)
    )


def with_findings(manifest: Manifest, *findings: Finding, now: str) -> list[Manifest]:
    """The object's conditions, each finding in place of the one of its type.

    `lastTransitionTime` changes only with the status.
    """
    merged = {condition["type"]: condition for condition in conditions_of(manifest)}
    generation = manifest["metadata"].get("generation", 1)
    for finding in findings:
        status = "True" if finding.status else "False"
        old = merged.get(finding.type)
        merged[finding.type] = {
            "type": finding.type,
            "status": status,
            "reason": finding.reason,
            "message": finding.message[:_MESSAGE_LENGTH],
            "observedGeneration": generation,
            "lastTransitionTime": old["lastTransitionTime"] if old and old["status"] == status else now,
        }
    return list(merged.values())


def is_ready(manifest: Manifest) -> bool:
    """Whether the condition Ready of a pod or a node is True."""
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions_of(manifest))


def conditions_of(manifest: Manifest) -> list[Manifest]:
    """The conditions in the object's status; empty where it has none."""
    conditions: list[Manifest] = manifest.get("status", {}).get("conditions") or []
    return conditions
