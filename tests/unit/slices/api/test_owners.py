"""Who controls an object, and of which job a Workload is."""

from typing import Any

import pytest

from slicebus.slices.api.kueue import JOB_UID_LABEL
from slicebus.slices.api.owners import Owner, job_uid_of

JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
NOTES = {"apiVersion": "v1", "kind": "ConfigMap", "name": "notes", "uid": "uid-notes"}


def a_workload(owners: list[Any] | None, label: str | None) -> dict[str, Any]:
    return {"metadata": {"ownerReferences": owners, "labels": {JOB_UID_LABEL: label} if label else None}}


def test_the_owner_is_the_controller() -> None:
    assert Owner.from_metadata({"ownerReferences": [NOTES, JOB]}) == Owner("batch/v1", "Job", "train", "uid-train")


@pytest.mark.parametrize("owners", [None, [], [NOTES]])
def test_others_are_no_owners(owners: list[Any] | None) -> None:
    assert Owner.from_metadata({"ownerReferences": owners}) is None


@pytest.mark.parametrize(
    ("owners", "label", "uid"),
    [
        pytest.param([JOB], "uid-train", "uid-train", id="both agree"),
        pytest.param([JOB], None, "uid-train", id="a label that was taken off"),
        pytest.param([NOTES, JOB], "uid-of-another", "uid-train", id="a label of another job"),
        pytest.param([], "uid-train", "uid-train", id="orphaned"),
        pytest.param([NOTES], None, "", id="of nobody"),
    ],
)
def test_a_workload_is_of_its_controller_before_its_label(owners: list[Any], label: str | None, uid: str) -> None:
    assert job_uid_of(a_workload(owners, label)) == uid
