"""Conditions of Kubernetes objects, as values."""

from typing import Any

import msgspec

Manifest = dict[str, Any]

_MESSAGE_LENGTH = 32_768
"""metav1.Condition allows no more."""


class Finding(msgspec.Struct, frozen=True):
    """What a condition shall say."""

    type: str
    status: bool
    reason: str
    message: str


def has_finding(manifest: Manifest, finding: Finding) -> bool:
    """Whether a condition of the object says so already."""
    said = finding.status, finding.reason, finding.message[:_MESSAGE_LENGTH]
    return any(
        condition["type"] == finding.type
        and (condition["status"] == "True", condition.get("reason", ""), condition.get("message", "")) == said
        for condition in conditions_of(manifest)
    )


def with_findings(manifest: Manifest, *findings: Finding, now: str) -> list[Manifest]:
    """The object's conditions with each finding in the place of its type.

    `lastTransitionTime` stays where the status stays: it tells since when, not when it was looked at last.
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
    """What the object's status says; empty where it says nothing."""
    conditions: list[Manifest] = manifest.get("status", {}).get("conditions") or []
    return conditions
