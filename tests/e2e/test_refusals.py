"""API servers that refuse for a while: nothing ends, nothing is lost, everything is told, and goes on by itself."""

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from slicebus.bus.factory import connect
from slicebus.cli.demo.world import World
from slicebus.kube.client import KubeClient, MergePatch
from slicebus.kube.resources import EVENTS, JOBS, PODS, WORKLOADS, Resource
from slicebus.manager.decide.job.waiting import REQUEST_REFUSED
from slicebus.manager.decide.messages import message_handlers
from slicebus.proto.errors import ForbiddenError, InvalidError
from slicebus.proto.topology import DEAD
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.status import ApiError
from slicebus.slices.api import api_names
from slicebus.slices.api.conditions import conditions_of
from slicebus.slices.workload.waiting import WRITE_REFUSED, Waiting
from support import refusing as answers
from support.refusing import refusing
from support.scenario import NAMESPACE, Scenario, elastic, expect_used, set_quota
from support.waiting import eventually

Manifest = dict[str, Any]
POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy")
BINDINGS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused order is sent again after a second, and not after thirty."""
    monkeypatch.setattr(message_handlers, "_RETRY_REFUSED_S", 1.0)


@pytest.fixture(autouse=True)
async def no_dead_letters(world: World, urls: dict[str, str]) -> AsyncIterator[None]:
    yield
    bus = await connect(urls["manager"], name="test")
    try:
        assert (await bus.depth(DEAD)).ready == 0
    finally:
        await bus.aclose()


def api_of(world: World, client: KubeClient) -> Api:
    return world.apis[client.host]


@contextmanager
def refused_everywhere(world: World, error: ApiError, **which: str) -> Iterator[None]:
    with refusing(api_of(world, world.manager), error, **which):
        first, second = (api_of(world, client) for client in world.workers.values())
        with refusing(first, error, **which), refusing(second, error, **which):
            yield


async def test_tokens_that_rotate_stop_nothing(world: World) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    with refused_everywhere(world, answers.UNAUTHORIZED, verbs="GET POST PUT PATCH DELETE", path="workloads|leases"):
        await asyncio.sleep(3)
    await scenario.expect_pods(running=1)
    await scenario.scale(3)
    await scenario.expect_pods(running=3)


@pytest.mark.parametrize(
    "error",
    [answers.FORBIDDEN, answers.POLICY, answers.UNSERVED, answers.WEBHOOK_DOWN, answers.WEBHOOK_FAILS],
    ids=lambda e: str(e.code),
)
async def test_a_new_job_is_taken_when_the_right_comes(world: World, error: ApiError) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    with refusing(api_of(world, world.manager), error, path="/workloads") as refused:
        await scenario.submit()
        said = await scenario.expect_event("ReconcileFailed", on=world.manager)
        assert str(error) in said
    assert refused.requests
    await scenario.expect_pods(running=1)


@pytest.mark.parametrize("error", [answers.WEBHOOK_DENIES, answers.WEBHOOK_DOWN], ids=lambda e: str(e.code))
async def test_requests_and_grants_that_are_refused_on_the_manager_come_through_later(
    world: World, error: ApiError
) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    with refusing(api_of(world, world.manager), error, verbs="POST PATCH", path="/workloads"):
        await scenario.scale(3)
        for client in (world.manager, await scenario.worker()):
            assert error.message in await scenario.expect_event(REQUEST_REFUSED, on=client)

        async def shown() -> bool:
            jobs = [await client.get(JOBS, "train", NAMESPACE) for client in (world.manager, await scenario.worker())]
            waits = [Waiting.from_manifest(job) for job in jobs]
            return all(wait is not None and wait.reason == REQUEST_REFUSED for wait in waits)

        await eventually(shown, "both jobs say why they wait")
    await scenario.expect_pods(running=3)


WORKERS = {
    "a policy": answers.POLICY,
    "a quota": answers.FORBIDDEN,
    "a webhook that is down": answers.WEBHOOK_DOWN,
    "a webhook that fails": answers.WEBHOOK_FAILS,
}


@pytest.mark.parametrize("error", WORKERS.values(), ids=WORKERS.keys())
async def test_what_a_worker_refuses_is_told_on_the_managers_job(world: World, error: ApiError) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    first, second = (api_of(world, client) for client in world.workers.values())
    with refusing(first, error, verbs="POST", path="/jobs"), refusing(second, error, verbs="POST", path="/jobs"):
        await scenario.submit()
        said = await scenario.expect_event("Invalid", "Forbidden", "WebhookUnavailable", on=world.manager)
        assert error.message in said
    await scenario.expect_pods(running=1)

    async def is_shown() -> bool:
        [slice] = await scenario.chain()
        return slice.condition(api_names.DISPATCHED_CONDITION)

    await eventually(is_shown, "its Workload does not say any more that it is refused")


@pytest.mark.parametrize("by_turns", [False, True], ids=["with an ID of the request", "by two webhooks in turns"])
async def test_a_refusal_with_other_words_each_time_is_tried_again_in_its_time(world: World, by_turns: bool) -> None:
    await set_quota(world, 20)
    scenario, numbers = Scenario(world, "Job", "train"), itertools.count()

    def error() -> ApiError:
        number = next(numbers)
        words = ("not on a Friday", "nor here")[number % 2] if by_turns else f"not on a Friday, {uuid.UUID(int=number)}"
        return ApiError(403, f'admission webhook "jobs.example.dev" denied the request: {words}')

    first, second = (api_of(world, client) for client in world.workers.values())
    with (
        refusing(first, error, verbs="POST", path="/jobs") as there,
        refusing(second, error, verbs="POST", path="/jobs") as here,
    ):
        await scenario.submit()
        await scenario.expect_event("Forbidden", on=world.manager)
        await asyncio.sleep(4)
        assert 2 <= len(there.requests + here.requests) < 10, "every second, as the test has it"
    await scenario.expect_pods(running=1)


@pytest.mark.parametrize("error", WORKERS.values(), ids=WORKERS.keys())
async def test_a_resize_that_a_worker_refuses_is_told_on_the_managers_job(world: World, error: ApiError) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    worker = await scenario.worker()
    await scenario.scale(3)
    with refusing(api_of(world, worker), error, verbs="PATCH", path="/jobs/"):
        for client in (worker, world.manager):
            said = await scenario.expect_event(WRITE_REFUSED, "Invalid", "Forbidden", on=client)
            assert error.message in said
    await scenario.expect_pods(running=3)


@pytest.mark.parametrize("error", WORKERS.values(), ids=WORKERS.keys())
async def test_a_delete_that_a_worker_refuses_keeps_the_quota_and_is_told_on_the_workload(
    world: World, error: ApiError
) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    worker = await scenario.worker()
    with refusing(api_of(world, worker), error, verbs="DELETE", path="/jobs/"):
        await world.manager.delete(JOBS, "train", NAMESPACE)

        async def told() -> bool:
            events = (await world.manager.list(EVENTS, namespace=NAMESPACE)).items
            return any(
                error.message in event["message"] and event["involvedObject"]["kind"] == "Workload" for event in events
            )

        await eventually(told, "an Event of the Workload says it", within_s=30)
        await expect_used(world, "1")
    await expect_used(world, "0")


async def test_an_end_that_cannot_be_shown_frees_the_quota(world: World) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    job = elastic("Job", "train")
    job["spec"]["completions"] = 1
    await world.manager.create(JOBS, job)
    await scenario.expect_pods(running=1)
    with refusing(api_of(world, world.manager), answers.POLICY, verbs="PATCH PUT", path="/jobs/train/status"):
        await succeed(await scenario.worker(), scenario)
        await expect_used(world, "0")
        assert answers.POLICY.message in await scenario.expect_event("EndNotShown", on=world.manager)
        [workload] = (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items
        shown = {entry["type"]: entry["status"] for entry in conditions_of(workload)}
        assert (shown["Finished"], shown[api_names.END_SHOWN_CONDITION]) == ("True", "False")


async def succeed(worker: KubeClient, scenario: Scenario) -> None:
    """Let the job's pods end well."""
    for pod in await scenario.pods():
        body = MergePatch({"status": {"phase": "Succeeded"}})
        await worker.patch(PODS, pod["metadata"]["name"], NAMESPACE, body, subresource="status")


@asynccontextmanager
async def policy(client: KubeClient, resource: str, group: str, expression: str) -> AsyncIterator[None]:
    """A ValidatingAdmissionPolicy of somebody else that refuses updates for which the expression is false."""
    rule = {"apiGroups": [group], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": expression, "message": "not on a Friday"}],
    }
    named = {"metadata": {"name": "fridays"}}
    await client.create(POLICIES, {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, **named, "spec": spec})
    bound = {"policyName": "fridays", "validationActions": ["Deny"]}
    await client.create(BINDINGS, {"apiVersion": BINDINGS.api_version, "kind": BINDINGS.kind, **named, "spec": bound})
    try:
        yield
    finally:
        await client.delete(BINDINGS, "fridays")
        await client.delete(POLICIES, "fridays")


async def is_enforced(client: KubeClient, resource: Resource, name: str) -> None:
    """Wait until the policy refuses: the server takes a moment to read it."""

    async def look() -> bool:
        try:
            body = {"metadata": {"annotations": {"example.dev/friday": "yes"}}}
            await client.patch(resource, name, NAMESPACE, MergePatch(body))
        except (ForbiddenError, InvalidError) as error:
            return "not on a Friday" in str(error)
        return False

    await eventually(look, "the policy is enforced")


@pytest.mark.real(only=True)
async def test_a_policy_of_the_manager_that_refuses_a_request_is_told_on_both_sides(world: World) -> None:
    await set_quota(world, 20)
    scenario = Scenario(world, "Job", "train")
    await scenario.submit()
    await scenario.expect_pods(running=1)
    [workload] = (await world.manager.list(WORKLOADS, namespace=NAMESPACE)).items
    name = workload["metadata"]["name"]
    key = api_names.REQUESTED_ANNOTATION
    is_friday = "'example.dev/friday' in object.metadata.annotations"
    asks = f"'{key}' in object.metadata.annotations && object.metadata.annotations['{key}'].contains('\"main\":3')"
    allowed = f"!has(object.metadata.annotations) || !({is_friday} || ({asks}))"
    async with policy(world.manager, "workloads", "kueue.x-k8s.io", allowed):
        await is_enforced(world.manager, WORKLOADS, name)
        await scenario.scale(3)
        for client in (world.manager, await scenario.worker()):
            assert "not on a Friday" in await scenario.expect_event(REQUEST_REFUSED, on=client)
    await scenario.expect_pods(running=3)
