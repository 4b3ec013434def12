"""Makes the envelopes of one publisher. Time and randomness are passed in as functions."""

from collections.abc import Callable
from datetime import datetime

from slicebus.proto.envelope import Envelope, MessageId
from slicebus.proto.messages import ClusterName, ClusterUid, Message, job_of


def new_id(now: datetime, random: bytes) -> MessageId:
    """A UUIDv7 (RFC 9562) of a time and ten random bytes: ids sort by time."""
    value = int(now.timestamp() * 1000) << 80 | int.from_bytes(random[:10])
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return MessageId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")


class Issuer:
    """Numbers the messages of one publisher within its epoch."""

    def __init__(
        self,
        *,
        epoch: int,
        user: str | None,
        now: Callable[[], datetime],
        random: Callable[[int], bytes],
        shard: int = 0,
    ) -> None:
        self.epoch = epoch
        self._shard = shard
        self._user = user
        self._now = now
        self._random = random
        self._sequence = 0

    def envelope(
        self,
        message: Message,
        cluster: ClusterName,
        cluster_uid: ClusterUid,
        *,
        caused_by: Envelope | None = None,
        correlation: MessageId | None = None,
        to_shard: int | None = None,
    ) -> Envelope:
        """The envelope of a new message.

        It belongs to `correlation`, else to the chain of the message that caused it, else it begins one. `to_shard` is
        the shard of the manager that an agent addresses.
        """
        now = self._now()
        identifier = new_id(now, self._random(10))
        self._sequence += 1
        job = job_of(message)
        return Envelope(
            id=identifier,
            type=message.type,
            cluster=cluster,
            cluster_uid=cluster_uid,
            subject=job.key if job is not None else "",
            time=now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            epoch=self.epoch,
            shard=self._shard if to_shard is None else to_shard,
            sequence=self._sequence,
            correlation_id=correlation or (caused_by.correlation_id if caused_by else identifier),
            causation_id=caused_by.id if caused_by else None,
            traceparent=caused_by.traceparent if caused_by else None,
            user_id=self._user,
        )
