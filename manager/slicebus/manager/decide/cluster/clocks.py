"""Notices by the times of an agent's messages that the clock of its cluster differs from the manager's.

A clock that is ahead makes epochs that do not exist yet: all messages of the cluster are refused
(docs/decisions/0031). One that is behind may begin below an epoch that has ended. The WorkerCluster says either once.

A message cannot come before it was sent, so a time ahead proves a clock that is ahead. A time behind may also be that
of a message that has waited: messages that have waited together come faster than they were sent, so two that come as
slowly as they were sent prove a clock that is behind.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from slicebus.decisions.commands import Command, Emit, Forget, Patch, Remember
from slicebus.kube.resources import WORKERCLUSTERS
from slicebus.manager.state.tables import ManagerTable
from slicebus.manager.state.worker_clusters import is_true
from slicebus.proto.envelope import Envelope
from slicebus.proto.epochs import epoch_at
from slicebus.proto.messages import Manifest
from slicebus.slices.api.conditions import Finding, conditions_of, with_findings

CLOCK_SKEW = "ClockSkew"
"""True while the clock of the cluster's agent differs from the manager's by more than clocks may."""
AHEAD, BEHIND = "ClockAhead", "ClockBehind"
_IN_STEP = Finding(CLOCK_SKEW, False, "InStep", "The clocks agree")
_MOST_EPOCHS = 10**9
"""More are shown as so many: whoever publishes chooses the epoch, and no time is as long as the highest."""
_FASTER = 2.0
"""Messages that come so much faster than they were sent have waited somewhere."""


def note(
    cluster: Manifest, envelope: Envelope, *, late_before: tuple[str, str] | None, most_s: float, now: str
) -> list[Command]:
    """The commands that note what the time of a message says of its cluster's clock, beyond `most_s`; nothing where
    that is shown. `late_before`: the times of sending and receipt of an earlier message that came late."""
    key, sent = envelope.agent, _parsed(envelope.time)
    if sent is None:
        return []
    received = datetime.fromisoformat(now)
    # A clock that was set right since: the epoch stays where it was when the agent began to lead.
    epochs_ahead = min(envelope.epoch - epoch_at(received), _MOST_EPOCHS)
    skew = max(sent - received, timedelta(seconds=epochs_ahead))
    known: list[Command] = [Forget(table=ManagerTable.LATE, key=key)] if late_before is not None else []
    if abs(skew) <= timedelta(seconds=most_s):
        return [*known, *(_show(cluster, _IN_STEP, now=now) if is_true(cluster, CLOCK_SKEW) else [])]
    if skew > timedelta(0):
        return [*known, *_show(cluster, _finding(cluster, AHEAD, skew), now=now)]
    late: list[Command] = [Remember(table=ManagerTable.LATE, key=key, value=(envelope.time, now))]
    if late_before is None or not _comes_as_sent(late_before, (envelope.time, now)):
        return late
    return [*late, *_show(cluster, _finding(cluster, BEHIND, -skew), now=now)]


def _comes_as_sent(before: tuple[str, str], after: tuple[str, str]) -> bool:
    """Whether a message came as long after another one as it was sent after it."""
    (sent, received), (next_sent, next_received) = before, after
    first, second = _parsed(sent), _parsed(next_sent)
    if first is None or second is None or second <= first:
        return False
    passed = datetime.fromisoformat(next_received) - datetime.fromisoformat(received)
    return second - first <= _FASTER * passed


def _finding(cluster: Manifest, reason: str, by: timedelta) -> Finding:
    name, minutes = cluster["metadata"]["name"], max(1, round(by.total_seconds() / 60))
    amount = f"{minutes} minute{'' if minutes == 1 else 's'}"
    if reason == AHEAD:
        text = f"The clock of {name} is {amount} ahead of the manager's, which may refuse all that its agent says"
    else:
        text = f"The clock of {name} is {amount} behind the manager's, or its messages come so late"
    return Finding(CLOCK_SKEW, True, reason, f"{text}: compare the time synchronization of both clusters")


def _show(cluster: Manifest, finding: Finding, *, now: str) -> Sequence[Command]:
    """Show a finding once: another number of minutes is no news."""
    shown = next((entry for entry in conditions_of(cluster) if entry["type"] == CLOCK_SKEW), {})
    if (shown.get("status") == "True", shown.get("reason")) == (finding.status, finding.reason):
        return []
    body = {"status": {"conditions": with_findings(cluster, finding, now=now)}}
    return [
        Patch(resource=WORKERCLUSTERS, target=cluster, body=body, subresource="status"),
        Emit(regarding=cluster, reason=finding.reason, note=finding.message, warning=finding.status),
    ]


def _parsed(text: str) -> datetime | None:
    """A time of a message; None for one that nobody can read, or without a zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
