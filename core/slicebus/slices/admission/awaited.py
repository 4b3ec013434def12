"""Says in Kueue's words for whose end or pods a slice waits."""

from collections.abc import Collection

from slicebus.slices.admission.notices import named
from slicebus.slices.workload.workload import SliceKey


def awaited(evicted: Collection[SliceKey], shrunk: Collection[SliceKey]) -> tuple[str, str]:
    """How many have to go, or to lose pods, and what would admit the slice. Not both are empty."""
    losers = (evicted, "{} workload(s)", "the end of {}"), (shrunk, "pods of {} workload(s)", "fewer pods of {}")
    told = [(size.format(len(keys)), end.format(named(keys))) for keys, size, end in losers if keys]
    return " and ".join(size for size, _ in told), " and ".join(end for _, end in told)
