"""The policy of the agent's own cluster: what orders may make here, whoever gives them."""

from slicebus.slices.jobs.cluster_policy import PolicyRules


class PolicyFile(PolicyRules, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The policy as it is written in a file."""


class Policy(PolicyRules, frozen=True, kw_only=True, rename="camel"):
    """The policy in force."""

    own_namespace: str = ""
    """The agent's namespace, where no job may be."""
