"""Reads a job of the manager: each part once for each version of its manifest."""

from collections import Counter

import msgspec
from propcache.api import cached_property

from slicebus.manager.state.annotations import SizeRequest, as_copied, own_counts
from slicebus.manager.state.outbox import Outbox
from slicebus.proto.messages import Counts, Manifest
from slicebus.slices.api.honored import Unhonored, unhonored_of_job
from slicebus.slices.jobs import KINDS, Problem
from slicebus.slices.placement.suitability import node_choice
from slicebus.slices.workload.pod_fit import charged_beside
from slicebus.slices.workload.pod_requests import pod_requests


class JobReading(msgspec.Struct, frozen=True, dict=True):
    """One version of a job's manifest. Each part is parsed when it is first read."""

    manifest: Manifest

    @cached_property
    def outbox(self) -> Outbox | None:
        """What is left of the dispatches after the last Workload."""
        return Outbox.left_on(self.manifest)

    @cached_property
    def own_counts(self) -> Counts:
        """The counts that its user has put into its spec."""
        return own_counts(self.manifest, KINDS[self.manifest["kind"]])

    @cached_property
    def left_request(self) -> SizeRequest | None:
        """The size request on the job: of an earlier version, or what is left of it after the last Workload."""
        return SizeRequest.from_manifest(self.manifest)

    @cached_property
    def is_autoscaled(self) -> bool:
        """Whether Ray's autoscaler owns the size of a copy that is made of the job."""
        return KINDS[self.manifest["kind"]].is_autoscaled(as_copied(self.manifest))

    @cached_property
    def problems(self) -> list[Problem]:
        """Why the job cannot be taken as it is now; empty for one that can."""
        return KINDS[self.manifest["kind"]].problems(as_copied(self.manifest))

    @cached_property
    def requests(self) -> dict[str, dict[str, int] | None]:
        """What one pod requests, by pod set; None for unreadable requests."""
        pod_sets = KINDS[self.manifest["kind"]].pod_sets(as_copied(self.manifest))
        return {pod_set["name"]: _requests(pod_set["template"]) for pod_set in pod_sets}

    @cached_property
    def charged_beside(self) -> dict[str, tuple[str, Counter[str]]]:
        """What one pod is charged for beside its requests, by pod set."""
        pod_sets = KINDS[self.manifest["kind"]].pod_sets(as_copied(self.manifest))
        return {pod_set["name"]: charged_beside(pod_set["template"].get("spec") or {}) for pod_set in pod_sets}

    @cached_property
    def nodes(self) -> dict[str, Manifest]:
        """What decides on which nodes the pods can run, by pod set."""
        pod_sets = KINDS[self.manifest["kind"]].pod_sets(as_copied(self.manifest))
        return {pod_set["name"]: node_choice(pod_set["template"].get("spec") or {}) for pod_set in pod_sets}

    @cached_property
    def unhonored(self) -> Unhonored:
        """What the labels and annotations of the job and its pods ask for, and slicebus does not honor."""
        pod_sets = KINDS[self.manifest["kind"]].pod_sets(as_copied(self.manifest))
        return unhonored_of_job(self.manifest, [pod_set["template"] for pod_set in pod_sets])


def _requests(template: Manifest) -> dict[str, int] | None:
    try:
        return pod_requests(template.get("spec", {}))
    except ValueError:
        return None
