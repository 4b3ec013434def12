"""A worker refuses for ever to take pods of a job: who waits for them takes the whole job, or others' pods."""

from datetime import datetime, timedelta

import pytest

from slicebus.decisions.commands import Command, Emit, Requeue
from slicebus.kube.times import time_text
from slicebus.manager.decide.job import reclaims
from slicebus.manager.decide.messages import message_handlers
from slicebus.proto.messages import Refused, Waits
from slicebus.slices.api import api_names
from slicebus.slices.workload.waiting import PODS_REFUSED, WRITE_REFUSED
from unit.manager.objects import NOW, REF, an_envelope
from unit.manager.test_idle_quota import grown
from unit.manager.test_reclaims import Story, counts_of

DENIED = 'admission webhook "jobs.example.dev" denied the request: no resizes'
DOWN = 'Internal error occurred: failed calling webhook "jobs.example.dev": connection refused'


def later(seconds: float) -> str:
    return time_text(datetime.fromisoformat(NOW) + timedelta(seconds=seconds))


def refuse(story: Story, reason: str = "Forbidden", message: str = DENIED) -> list[Command]:
    """Its worker refuses the newest order."""
    outbox = story.view.outbox
    assert outbox is not None
    name, version = outbox.recorded_on["metadata"]["name"], outbox.record.version
    refused = Refused(job=REF, workload=name, spec_version=version, reason=reason, message=message)
    return story.carry_out(message_handlers.refused(story.view, refused, an_envelope(), now=story.now))


@pytest.fixture
def story() -> Story:
    """A job of eight pods that is told to lose half of them at once."""
    told = Story()
    told.shrink(4)
    told.reconcile()
    return told


def test_the_pods_stay_after_a_minute_and_none_is_taken_for_ten(story: Story) -> None:
    refuse(story)
    assert Requeue(job=REF, delay_s=61) in reclaims.requeue_after(story.view, now=story.now)
    story.now = later(59)
    assert story.orders(story.reconcile()) == story.orders(story.reconcile()), "the word is sent again"
    assert story.note is not None
    assert not story.note.done
    story.now = later(60)
    commands = story.reconcile()
    [order] = [each for each in story.orders(commands) if each.manifest["spec"]["parallelism"] == 8]
    assert counts_of(order) == (8, {"main": 8})
    told = [each.note for each in commands if isinstance(each, Emit) and each.reason == "ReclaimWithdrawn"]
    assert told == ["Its worker refuses to take the pods: keeps main=8"]
    assert (story.note.done, story.note.refused_at, story.sizes) == (True, later(60), [8])
    story.report()
    assert story.orders(story.reconcile()) == [], "once"
    story.now = later(659)
    story.reconcile()
    assert story.note is not None
    assert story.note.refused_at == later(60), "a cycle sees it"
    story.now = later(660)
    story.reconcile()
    assert story.note is None


def test_the_minute_begins_with_the_word_where_an_order_before_it_was_refused() -> None:
    story = Story()
    story.job["spec"]["parallelism"] = 7
    story.reconcile()
    refuse(story)
    story.now = later(600)
    story.shrink(4)
    story.now = later(659)
    story.reconcile()
    assert story.note is not None
    assert not story.note.done
    story.now = later(660)
    story.reconcile()
    assert story.note.done


@pytest.mark.parametrize(("reason", "message"), [("Conflict", "a pod is there"), ("WebhookUnavailable", DOWN)])
def test_a_worker_that_waits_is_waited_for(story: Story, reason: str, message: str) -> None:
    refuse(story, reason, message)
    story.now = later(3600)
    story.reconcile()
    assert story.note is not None
    assert not story.note.done


def test_a_worker_that_takes_it_after_all_is_waited_for(story: Story) -> None:
    refuse(story)
    story.report()
    story.now = later(3600)
    story.reconcile()
    assert story.note is not None
    assert not story.note.done


@pytest.mark.parametrize(
    ("reason", "message", "since", "is_left"),
    [
        (WRITE_REFUSED, DENIED, 120, True),
        (WRITE_REFUSED, DENIED, 60, True),
        (WRITE_REFUSED, DENIED, 121, False),
        (WRITE_REFUSED, DOWN, 120, False),
        (PODS_REFUSED, DENIED, 120, False),
    ],
)
def test_so_is_one_that_refuses_it_when_the_notice_is_over(
    reason: str, message: str, since: float, is_left: bool
) -> None:
    """It has applied the order, which only gives notice."""
    story = Story(notice="120s", cap_s=600)
    story.shrink(4)
    story.reconcile()
    story.report()
    story.waits = Waits(wanted={"main": 8}, reason=reason, message=message, since=later(since))
    story.now = later(179)
    story.reconcile()
    assert story.note is not None
    assert not story.note.done
    story.now = later(180)
    orders = story.orders(story.reconcile())
    assert story.note.done is is_left
    assert [counts_of(order) for order in orders] == [(8, {"main": 8})] * is_left


def test_pods_that_the_job_may_not_have_any_more_are_taken_again_after_ten_minutes() -> None:
    story = grown(8)
    del story.job["metadata"]["annotations"][api_names.MAX_SIZE_ANNOTATION]
    story.reconcile()
    assert story.note is not None
    assert story.note.to_nobody
    refuse(story)
    for at, is_done in ((59, False), (60, True), (659, True), (660, False)):
        story.now = later(at)
        story.reconcile()
        assert story.note.done is is_done
    assert story.note.to == {"main": 4}
