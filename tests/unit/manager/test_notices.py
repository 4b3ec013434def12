"""How long before it loses pods a job is told: what it asks for, as far as the manager allows."""

import pytest
from msgspec import UNSET

from slicebus.decisions.commands import Publish
from slicebus.manager.decide.order import dispatch
from slicebus.manager.state.settings import AdmissionModeName, LeaderSettings
from slicebus.manager.state.store import ManagerStore
from slicebus.proto.messages import Notice, Suspend
from slicebus.slices.admission.cycle import Evict
from slicebus.slices.api.kueue import EvictionReason
from slicebus.slices.workload.workload import SliceKey
from unit.manager.objects import REF
from unit.manager.test_reclaims import Story

NOTICES: dict[str, tuple[str | None, float, float]] = {
    "none is asked for": (None, 600, 0),
    "none is allowed": ("120s", 0, 0),
    "as asked for": ("120s", 600, 120),
    "as allowed": ("2h", 600, 600),
    "makes no sense": ("soon", 600, 0),
}
EACH = pytest.mark.parametrize(("notice", "cap_s", "notice_s"), NOTICES.values(), ids=NOTICES.keys())


@EACH
def test_the_order_to_shrink_has_it(notice: str | None, cap_s: float, notice_s: float) -> None:
    story = Story(notice=notice, cap_s=cap_s)
    [order] = story.orders(story.shrink(4))
    note = story.note
    assert note is not None
    assert note.notice_s == notice_s
    wanted = Notice(id=note.id, notice_s=notice_s, why="so it is", beneficiaries=["team/high"])
    assert order.notice == (wanted if notice_s else UNSET)
    assert order.granted == {"main": 8}
    story.report()
    story.ask(4, follows=note.id)
    assert all(again.notice is UNSET for again in story.orders(story.reconcile())), "it has lost them"


def suspended(story: Story, reason: EvictionReason) -> Suspend:
    holder = story.view.holder
    assert holder is not None
    preemption = "InClusterQueue" if reason is EvictionReason.PREEMPTED else ""
    evict = Evict(key=SliceKey(holder.key), reason=reason, message="so it is", preemption=preemption)
    story.evict(evict)
    [slice] = story.view.slices
    [message] = [each.message for each in dispatch.suspend(story.view, slice) if isinstance(each, Publish)]
    assert isinstance(message, Suspend)
    return message


@EACH
def test_the_order_to_evict_has_it(notice: str | None, cap_s: float, notice_s: float) -> None:
    story = Story(notice=notice, cap_s=cap_s)
    told = suspended(story, EvictionReason.PREEMPTED).notice
    assert (told.notice_s if told else 0) == notice_s
    [slice] = story.view.slices
    again = [each.message for each in dispatch.suspend(story.view, slice) if isinstance(each, Publish)]
    assert all(isinstance(message, Suspend) and message.notice == told for message in again)


def test_only_a_preemption_has_one() -> None:
    assert suspended(Story(notice="120s", cap_s=600), EvictionReason.DEACTIVATED).notice is UNSET


@pytest.mark.parametrize(("mode", "cap_s"), [(AdmissionModeName.BUILTIN, 90.0), (AdmissionModeName.KUEUE, 0.0)])
def test_the_setting_allows_it_where_the_manager_admits(mode: AdmissionModeName, cap_s: float) -> None:
    store = ManagerStore()
    store.configure(LeaderSettings(admission=mode, notice_cap_s=90.0))
    assert store.view(REF).notice_cap_s == cap_s
