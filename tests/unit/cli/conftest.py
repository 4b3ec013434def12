"""Fixtures of these tests."""

from unit.kube.loop_time import jumping, loop_time

__all__ = ["jumping", "loop_time"]
