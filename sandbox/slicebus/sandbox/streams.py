"""The streams of the in-process broker."""

import asyncio
from collections import deque
from datetime import datetime

from slicebus.bus.contract import Record, StreamOffset
from slicebus.proto.envelope import WireMessage
from slicebus.proto.topology import Queue


class Stream:
    """An append-only log by offset."""

    def __init__(self, declared: Queue) -> None:
        self.declared = declared
        self.records: deque[Record] = deque()
        self.next_offset = 0
        self.bytes = 0
        self.grew = asyncio.Event()

    def append(self, message: WireMessage, now: datetime) -> None:
        """Add a record, and drop the oldest ones beyond the limit of bytes."""
        self.records.append(Record(offset=self.next_offset, message=message, timestamp=now))
        self.next_offset += 1
        self.bytes += len(message.body)
        limit = self.declared.arguments.get("x-max-length-bytes")
        while isinstance(limit, int) and self.bytes > limit and len(self.records) > 1:
            self.bytes -= len(self.records.popleft().message.body)
        self.grew.set()
        self.grew = asyncio.Event()

    def start(self, offset: StreamOffset) -> int:
        """The first offset that a reader wants."""
        first = self.records[0].offset if self.records else self.next_offset
        match offset:
            case "first":
                return first
            case "next":
                return self.next_offset
            case "last":
                return max(first, self.next_offset - 1)
            case datetime():
                later = (record.offset for record in self.records if record.timestamp and record.timestamp >= offset)
                return next(later, self.next_offset)
            case _:
                return max(first, offset)

    def since(self, offset: int) -> list[Record]:
        """The records from an offset on."""
        first = self.records[0].offset if self.records else self.next_offset
        skipped = max(0, offset - first)
        return [self.records[index] for index in range(skipped, len(self.records))]
