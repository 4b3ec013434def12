"""Envelopes of one publisher: ids that sort by time, a sequence that grows, chains that hold together."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicebus.proto.codec import decode, encode
from slicebus.proto.issuer import Issuer, new_id
from slicebus.proto.messages import ClusterUid, JobRef, Resync, Suspend

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
SWEEP = JobRef("batch/v1", "Job", "team-a", "sweep", "e5f4fe86-d509-4847-99ac-304e0eba605c")
TIMES = st.datetimes(datetime(1970, 1, 2), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
TEN_BYTES = st.binary(min_size=10, max_size=10)


class Clock:
    """A second passes with each look."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


UID = ClusterUid("uid-1")


@pytest.fixture
def issuer() -> Issuer:
    return Issuer(epoch=4, user="manager", now=Clock(), random=bytes)


@given(time=TIMES, random=TEN_BYTES)
def test_an_id_is_a_uuid_of_version_7_that_holds_the_time(time: datetime, random: bytes) -> None:
    text = new_id(time, random)
    parsed = uuid.UUID(text)
    assert str(parsed) == text
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert abs((parsed.int >> 80) - time.timestamp() * 1000) <= 1


@given(times=st.lists(TIMES, min_size=2, max_size=2), random=st.lists(TEN_BYTES, min_size=2, max_size=2))
def test_ids_sort_by_time(times: list[datetime], random: list[bytes]) -> None:
    earlier, later = sorted(times)
    if later - earlier >= timedelta(milliseconds=2):
        assert new_id(earlier, random[0]) < new_id(later, random[1])


def test_the_id_of_the_rfc() -> None:
    # RFC 9562, appendix A.6: rand_a 0xCC3, rand_b 0x18C4DC0C0C07398F.
    random = bytes.fromhex("0cc318c4dc0c0c07398f")
    time = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
    assert new_id(time, random) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


def test_the_sequence_grows_within_the_epoch(issuer: Issuer) -> None:
    envelopes = [issuer.envelope(Resync(), "east", UID) for _ in range(5)]
    assert [envelope.sequence for envelope in envelopes] == [1, 2, 3, 4, 5]
    assert {envelope.epoch for envelope in envelopes} == {4}
    ids = [envelope.id for envelope in envelopes]
    assert ids == sorted(set(ids))


def test_one_publisher_counts_over_all_clusters(issuer: Issuer) -> None:
    assert [issuer.envelope(Resync(), cluster, UID).sequence for cluster in ("east", "west", "east")] == [1, 2, 3]


def test_a_message_begins_a_chain(issuer: Issuer) -> None:
    envelope = issuer.envelope(Resync(), "east", UID)
    assert envelope.correlation_id == envelope.id
    assert envelope.causation_id is None


def test_a_message_belongs_to_the_chain_of_its_cause(issuer: Issuer) -> None:
    first = issuer.envelope(Resync(), "east", UID)
    second = issuer.envelope(Resync(), "east", UID, caused_by=first)
    third = issuer.envelope(Resync(), "east", UID, caused_by=second)
    assert (third.correlation_id, third.causation_id) == (first.id, second.id)


def test_a_given_correlation_wins(issuer: Issuer) -> None:
    first = issuer.envelope(Resync(), "east", UID)
    other = issuer.envelope(Resync(), "east", UID)
    answer = issuer.envelope(Resync(), "east", UID, caused_by=first, correlation=other.id)
    assert (answer.correlation_id, answer.causation_id) == (other.id, first.id)


def test_the_subject_is_the_job(issuer: Issuer) -> None:
    assert issuer.envelope(Suspend(job=SWEEP, spec_version=1, workload="w1"), "east", UID).subject == "Job/team-a/sweep"
    assert issuer.envelope(Resync(), "east", UID).subject == ""


def test_the_time_is_utc_with_microseconds(issuer: Issuer) -> None:
    assert issuer.envelope(Resync(), "east", UID).time == "2026-03-02T09:00:01.000000Z"


@pytest.mark.parametrize(
    "message", [Resync(), Suspend(job=SWEEP, spec_version=1, workload="w1")], ids=["resync", "suspend"]
)
def test_an_issued_envelope_decodes(issuer: Issuer, message: Resync | Suspend) -> None:
    envelope = issuer.envelope(message, "east", UID)
    received = decode(encode(envelope, message))
    assert (received.envelope, received.message) == (envelope, message)
