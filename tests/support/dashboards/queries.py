"""PromQL of the dashboards, which select by the variables that they have."""

RATE = "[$__rate_interval]"
OURS = 'namespace=~"$namespace"'
"""Selects the pods of slicebus."""
CLUSTER = f'{OURS},cluster=~"$cluster"'
QUEUE = f'{OURS},cluster_queue=~"$cluster_queue"'
COHORT = f'{OURS},cohort=~"$cohort"'


def rate(metric: str, by: str, *, selecting: str = OURS) -> str:
    """Events a second."""
    return f"sum by ({by}) (rate({metric}{{{selecting}}}{RATE}))"


def total(metric: str, by: str, *, selecting: str = OURS) -> str:
    """Since the process began. A rate misses the first event of its labels, as the series begins with it."""
    return f"sum by ({by}) ({metric}{{{selecting}}})"


def quantile(share: float, metric: str, by: str = "", *, selecting: str = OURS) -> str:
    """What so large a share stays below."""
    return f"histogram_quantile({share}, {rate(f'{metric}_bucket', f'{by}, le' if by else 'le', selecting=selecting)})"


def most(metric: str, by: str = "", *, selecting: str = OURS) -> str:
    """The greatest value: who led before, and who leads now, may both be scraped for a while."""
    return f"max by ({by}) ({metric}{{{selecting}}})" if by else f"max({metric}{{{selecting}}})"
