"""The paths under which an API server serves objects."""

from slicebus.kube.resources import JOBS, WORKERCLUSTERS


def test_a_name_of_any_characters_names_one_object() -> None:
    """One may come from an annotation that a tenant has written."""
    assert JOBS.path("team", "train", "status") == "/apis/batch/v1/namespaces/team/jobs/train/status"
    assert WORKERCLUSTERS.path(None, "system:east").endswith("/workerclusters/system:east")
    assert JOBS.path("team", "?watch=true") == "/apis/batch/v1/namespaces/team/jobs/%3Fwatch%3Dtrue"
    assert JOBS.path("team/jobs/a", "b/c") == "/apis/batch/v1/namespaces/team%2Fjobs%2Fa/jobs/b%2Fc"
