"""What a search of all slices finds to be used, beside the sums that the ledger keeps."""

from collections.abc import Mapping

from slicebus.slices.quota.quota import ChainInQueue, FlavorResource, Usage


def total_by_queue(chains: Mapping[ChainInQueue, Usage]) -> Mapping[str, Usage]:
    """The sum over all chains, by ClusterQueue."""
    used: dict[str, dict[FlavorResource, int]] = {}
    for (queue, _), usage in chains.items():
        total = used.setdefault(queue, {})
        for key, value in usage.items():
            total[key] = total.get(key, 0) + value
    return used
