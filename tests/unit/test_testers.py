"""Which tests go to the testers that have a control plane, and what begins first."""

import pytest

from support.testers import needs_control_plane, rank


@pytest.mark.parametrize(
    ("nodeid", "needs"),
    [
        ("tests/e2e/test_deletes.py::test_what_somebody_deletes_goes_at_once[real-Background]", True),
        ("tests/e2e/test_deletes.py::test_what_somebody_deletes_goes_at_once[embedded-Background]", False),
        ("tests/e2e/test_grove.py::test_a_pod_gang_from_one_worker_to_five_to_three[embedded-real]", False),
        ("tests/e2e/test_idle_quota.py::test_it_grows_and_gives_way[real-Job]", True),
        ("tests/e2e/test_outages.py::test_200_resizes_come_through_whatever_is_killed", True),
        ("tests/integration/kube/test_schemas.py::test_only_declared_kinds_are_compared[real]", True),
        ("tests/integration/kube/test_schemas.py::test_only_declared_kinds_are_compared[embedded]", False),
        ("tests/integration/charts/test_create_as.py::test_the_agent_creates_jobs_as_the_account[everywhere]", True),
        ("tests/integration/charts/test_rendering.py::test_the_same_values_render_once", False),
        ("tests/simulation/test_seeds.py::test_no_seed_breaks_a_rule", False),
    ],
)
def test_a_control_plane_is_for_what_runs_on_real_servers(nodeid: str, needs: bool) -> None:
    assert needs_control_plane(nodeid) is needs


def test_what_takes_longest_begins_first() -> None:
    begun = [
        "control plane 2",
        "tests/simulation/test_seeds.py",
        "tests/e2e/test_view.py",
        "tests/integration/bus/test_bus_contract.py",
        "tests/simulation/test_turns.py",
        "tests/unit/agent/test_room.py",
    ]
    assert [rank(scope) for scope in begun] == [*range(len(begun))]
