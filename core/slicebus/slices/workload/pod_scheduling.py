"""Writes into a pod template what a scheduler backend gives the pods of a job."""

from typing import Any

import msgspec

Manifest = dict[str, Any]

_GROUP = "schedulingGroup"
_DEFAULT_SCHEDULER = "default-scheduler"
"""What an API server puts into a pod that names none."""


class PodScheduling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The fields by which a scheduler knows a pod. Empty ones change nothing."""

    scheduler_name: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_group: str = ""
    """The name of its `scheduling.k8s.io` PodGroup. Pods cannot change it."""

    def applied_to(self, template: Manifest) -> Manifest:
        """The template with these fields in place of its own."""
        metadata, spec = template.get("metadata") or {}, dict(template["spec"])
        fields = {
            "labels": (metadata.get("labels") or {}) | self.labels,
            "annotations": (metadata.get("annotations") or {}) | self.annotations,
        }
        if self.scheduler_name:
            spec["schedulerName"] = self.scheduler_name
        if self.pod_group:
            spec[_GROUP] = {"podGroupName": self.pod_group}
        return template | {
            "metadata": metadata | {name: value for name, value in fields.items() if value},
            "spec": spec,
        }

    def lost_in(self, pod: Manifest) -> list[str]:
        """The fields that a pod lacks: whoever made it, or the definition of its owner, has dropped them.

        Another queue, or scheduler, is that of the settings when its job was made.
        """
        metadata, spec = pod["metadata"], pod["spec"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        lost = [f"label {name}" for name in self.labels if name not in labels]
        lost += [f"annotation {name}" for name in self.annotations if name not in annotations]
        wanted, present = (name or _DEFAULT_SCHEDULER for name in (self.scheduler_name, spec.get("schedulerName")))
        if present == _DEFAULT_SCHEDULER != wanted:
            lost.append("schedulerName")
        if self.pod_group and (spec.get(_GROUP) or {}).get("podGroupName") != self.pod_group:
            lost.append(_GROUP)
        return lost
