"""The Prometheus metrics of the agent: requests published, pods let start."""
