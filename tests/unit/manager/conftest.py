"""Fixtures of these tests."""

from unit.kube.loop_time import jumping, loop_time
from unit.kube.servers import api
from unit.manager.message_router import manager

__all__ = ["api", "jumping", "loop_time", "manager"]
