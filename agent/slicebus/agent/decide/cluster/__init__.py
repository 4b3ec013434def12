"""The worker cluster: its capacity, for the heartbeat, and whether it reaches its manager and may start pods."""
