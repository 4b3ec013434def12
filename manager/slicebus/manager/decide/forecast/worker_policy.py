"""What the policy of a worker's cluster would refuse of a job that would go there, by what its agent tells of it."""

from collections.abc import Mapping

import msgspec

from slicebus.manager.decide.forecast.verdict import PodSetPlace, Prospect, Verdict
from slicebus.manager.decide.manifests import pod_set_flavor
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.jobs.base import Placement
from slicebus.slices.jobs.cluster_policy import PolicyRules, objections, objections_text, told_policy


def with_refusal(store: ManagerStore, job: Manifest, verdict: Verdict) -> Verdict:
    """The verdict about a job without a copy: refused where it would run, and its cluster does not allow its copy."""
    rules = _rules(store, verdict.cluster) if verdict.outcome.runs else None
    if rules is None:
        return verdict
    flavors = {flavor["metadata"]["name"]: flavor for flavor in store.flavors.all()}
    placements = {place.name: _placement(flavors, place) for place in verdict.pod_sets}
    found = list(objections(rules, KINDS[job["kind"]].worker_copy(job, placements)))
    if not found:
        return verdict
    message = objections_text(found, f"cluster {verdict.cluster}")
    return msgspec.structs.replace(verdict, outcome=Prospect.REFUSED, reason=found[0].reason, message=message)


def _rules(store: ManagerStore, cluster: str) -> PolicyRules | None:
    """The rules of a cluster; None where its agent has told none that can be read."""
    manifest = store.clusters.get(None, cluster) if cluster else None
    told = manifest.get("status", {}).get("policy") if manifest is not None else None
    return told_policy(told) if isinstance(told, dict) else None


def _placement(flavors: Mapping[str, Manifest], place: PodSetPlace) -> Placement:
    where = pod_set_flavor(flavors, place.flavors.values())
    return Placement(node_selector=where.node_labels, tolerations=tuple(where.tolerations))
