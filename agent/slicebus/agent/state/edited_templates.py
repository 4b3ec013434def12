"""Edited pod templates: what those of a job have named since they were first changed on the worker.

A template may be changed for a moment, and pods be made meanwhile. Such a pod looks like one to which the cluster has
added something: only what its templates have named tells the two apart.
"""

from collections.abc import Iterable

from slicebus.decisions.table import Table
from slicebus.kube.cache import Change
from slicebus.proto.messages import Manifest
from slicebus.slices.jobs import KINDS
from slicebus.slices.workload.pod_fit import named_in

Names = dict[str, list[str]]
"""Resources by container, and under the empty name the RuntimeClasses."""
EditedTemplates = dict[str, Names]
"""By pod set."""


def note_edit(change: Change, edited: Table[str, EditedTemplates]) -> None:
    """Note what changed templates of a job name, or forget a job that has gone. The entries are by the job's UID."""
    old, new = change.old, change.new
    if old is None:
        return
    uid = old["metadata"]["uid"]
    if new is None or new["metadata"]["uid"] != uid:
        edited.pop(uid, None)
        return
    if new.get("spec") == old.get("spec"):
        return
    kind = KINDS[new["kind"]]
    before = {name: _spec(template) for name, template in kind.templates(old, old).items()}
    now = {name: _spec(template) for name, template in kind.templates(new, new).items()}
    changed = {name: named_in(spec) for name, spec in now.items() if spec != before.get(name)}
    if changed:
        edited[uid] = joined([edited.get(uid, {}), changed])


def joined(entries: Iterable[EditedTemplates]) -> EditedTemplates:
    """The entries of several objects as one."""
    found: EditedTemplates = {}
    for pod_set, names in (item for entry in entries for item in entry.items()):
        known = found.get(pod_set, {})
        found[pod_set] = known | {name: sorted({*known.get(name, ()), *more}) for name, more in names.items()}
    return found


def _spec(template: Manifest) -> Manifest:
    spec: Manifest = template.get("spec") or {}
    return spec
