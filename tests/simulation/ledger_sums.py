"""Pod-seconds as the ledger's bookkeeper comes to them."""

from collections.abc import Iterable

from slicebus.bus.contract import Record
from slicebus.journal.entry import Entry
from slicebus.ledger.bookkeeper import Bookkeeper, LedgerState
from slicebus.ledger.facts import GrantFact, SliceFact, UnknownSpan


class LedgerSums:
    """Sums what the bookkeeper makes of a journal."""

    def __init__(self) -> None:
        self.unknown_s = 0.0
        """The pod-seconds that are said not to be known."""
        self._keeper = Bookkeeper(LedgerState())
        self._grants: dict[tuple[str, str, int], GrantFact] = {}
        self._jobs: dict[str, str] = {}

    def feed(self, records: Iterable[Record]) -> None:
        """The next records of the journal."""
        for record in records:
            for fact in self._keeper.feed(Entry.from_record(record)):
                match fact:
                    case GrantFact():
                        self._grants[fact.slice_uid, fact.pod_set, fact.since_ms] = fact
                    case SliceFact():
                        self._jobs[fact.uid] = fact.job_uid
                    case UnknownSpan():
                        self.unknown_s += fact.pod_ms / 1000

    @property
    def known_s(self) -> float:
        """Up to when they are known, in Unix time."""
        assert self._keeper.known_ms is not None
        return self._keeper.known_ms / 1000

    def by_job(self) -> dict[str, float]:
        """Pod-seconds by the UID of the job."""
        found, known_ms = dict.fromkeys(self._jobs.values(), 0.0), self.known_s * 1000
        for grant in self._grants.values():
            until_ms = min(grant.until_ms or known_ms, known_ms)
            found[self._jobs[grant.slice_uid]] += grant.pods * max(0.0, until_ms - grant.since_ms) / 1000
        return found
