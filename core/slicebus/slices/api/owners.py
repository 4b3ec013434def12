"""Reads which object controls another one, by its owner references."""

from typing import Any, Self

import msgspec

from slicebus.slices.api import api_names, kueue

Manifest = dict[str, Any]


class Owner(msgspec.Struct, frozen=True):
    """The controller of an object, as the owner reference names it."""

    api_version: str
    kind: str
    name: str
    uid: str

    @classmethod
    def from_metadata(cls, metadata: Manifest) -> Self | None:
        """The controller; None for an object without one. Other owners have no say."""
        for owner in metadata.get("ownerReferences") or ():
            if owner.get("controller"):
                return cls(owner.get("apiVersion", ""), owner["kind"], owner["name"], owner["uid"])
        return None


def job_uid_of(workload: Manifest) -> str:
    """The UID of the job of a Workload: of its controller, whatever somebody makes of the label, which counts once the
    Workload is orphaned. Empty where there is neither."""
    owner = Owner.from_metadata(workload["metadata"])
    return owner.uid if owner is not None else (workload["metadata"].get("labels") or {}).get(kueue.JOB_UID_LABEL, "")


def job_name_of(metadata: Manifest) -> tuple[str, str]:
    """The kind and the name of the job of a Workload: of its controller, or as an annotation says, which an orphan and
    a worker's copy have. Empty where nothing says them."""
    owner = Owner.from_metadata(metadata)
    if owner is not None:
        return owner.kind, owner.name
    kind, _, name = (metadata.get("annotations") or {}).get(api_names.JOB_ANNOTATION, "").partition("/")
    return kind, name
