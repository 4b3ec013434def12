import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.slices.workload.names import group_of, slice_name

DEMO = {"kind": "Job", "group": "batch", "name": "demo-slice", "uid": "78d1e61a-c399-4c09-800f-a0bbfb5fe71e"}


def test_the_name_is_the_one_that_kueue_makes() -> None:
    # KEP-77, "Naming", shows this name for this job.
    assert slice_name(**DEMO, extra="1") == "job-demo-slice-e7080"


@pytest.mark.parametrize("other", ["2", "1_a-1", ""])
def test_another_extra_gives_another_name(other: str) -> None:
    assert slice_name(**DEMO, extra=other) != slice_name(**DEMO, extra="1")


@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", fullmatch=True))
def test_every_name_is_a_label_value(name: str) -> None:
    made = slice_name(**(DEMO | {"name": name}), extra="1")
    assert len(made) <= 63
    assert made[0].isalnum()
    assert made[-1].isalnum()


def test_group_of_core_is_empty() -> None:
    assert (group_of("v1"), group_of("batch/v1")) == ("", "batch")
