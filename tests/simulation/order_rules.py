"""Rule 5 for the versions of orders: each has one content, whoever publishes it, and however often.

A job that could not be written while its last Workload went does not know of its delete. The next order may have that
one's version: the worker says then that it has deleted it, and the order gets a newer one. Of a job that has gone the
manager knows no version either: a copy that is left is deleted by one above its own.
"""

from typing import Any

import msgspec

from simulation.violations import Violation
from slicebus.manager.state.outbox import Outbox
from slicebus.proto.messages import Delete, WorkloadSpec
from slicebus.sandbox.apiserver.api import Api
from slicebus.slices.jobs import KINDS

Manifest = dict[str, Any]
_OF_STRAYS = "UnknownJob"
"""The reason of the delete of a copy whose job has gone."""


class _Content(msgspec.Struct, frozen=True):
    """What a worker shall hold by an order, as far as it is compared."""

    type: str
    cluster: str
    slice: str = ""
    granted: tuple[tuple[str, int], ...] = ()


class OrderRules:
    """Follows the orders that are published."""

    def __init__(self, manager: Api) -> None:
        self._store = manager.store
        self._contents: dict[tuple[str, int], _Content] = {}
        """By the UID of the manager's job and the version."""

    def see(self, type: str, cluster: str, order: Manifest) -> None:
        """A manager is about to publish a spec, a suspension or a delete. Others may not."""
        if order.get("reason") == _OF_STRAYS:
            return
        content = _Content(type, cluster)
        if type == WorkloadSpec.type:
            granted = tuple(sorted(_left(order).items()))
            content = _Content(type, cluster, order["workload"]["metadata"]["name"], granted)
        key = order["job"]["uid"], order["spec_version"]
        before = self._contents.setdefault(key, content)
        if before == content:
            return
        if before.type == Delete.type and not self._is_noted(*key):
            self._contents[key] = content
            return
        raise Violation(f"rule 5: version {key[1]} of {order['job']['name']} has two contents: {before} and {content}")

    def _is_noted(self, uid: str, version: int) -> bool:
        """Whether the manager's job says that it had an order of this version."""
        key = self._store.key_of_uid(uid)
        left = Outbox.left_on(self._store.objects[key]) if key is not None else None
        return left is not None and left.record.version >= version


def _left(order: Manifest) -> dict[str, int]:
    """What a spec grants once the pods are gone that it takes back. Published before and after that it grants what the
    slice has: its worker has lowered that by itself."""
    granted: dict[str, int] = order["granted"]
    if not order.get("taken_back"):
        return granted
    size = KINDS[order["job"]["kind"]].counts(order["manifest"], order["manifest"])
    return {name: min(count, size.get(name, count)) for name, count in granted.items()}
