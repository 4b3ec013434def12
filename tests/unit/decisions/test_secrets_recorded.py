"""Secrets are not in a recording, and its decisions are made again all the same."""

from typing import Any

import msgspec
import orjson
import pytest

from slicebus.bus.contract import Record
from slicebus.decisions.commands import Command, Create, Emit, Publish
from slicebus.decisions.decider import Incoming
from slicebus.decisions.replay import Replayer
from slicebus.journal.export import from_line, to_line
from slicebus.journal.redaction import MARK
from slicebus.kube.resources import PODS
from slicebus.proto.codec import decode, encode
from slicebus.proto.errors import ProtocolError
from slicebus.proto.issuer import Issuer
from slicebus.proto.messages import ClusterName, ClusterUid, JobRef, Refused, ScaleRequest
from slicebus.slices.api.fingerprints import content_hash
from unit.decisions.roles import JOB, Role, Store, a_pod, model, replay
from unit.journal.records import BEGAN
from unit.kube.loop_time import LoopTime

SECRET, OTHER = "hunter2-Zq9", "hunter3-Zq9"
EAST = ClusterName("east")


def with_secret(name: str = "a", version: int = 1, secret: str = SECRET, **parts: Any) -> dict[str, Any]:
    containers = [{"name": "c", "env": [{"name": "A", "value": secret}], "args": ["--token", secret]}]
    return a_pod(name, version=version, **({"spec": {"node": "n", "containers": containers}} | parts))


def differ(store: Store) -> bool:
    """Whether pods have other containers: a comparison of what is replaced."""
    containers = [pod["spec"]["containers"] for pod in store.pods.all()]
    return any(each != containers[0] for each in containers)


def copy(store: Store) -> list[Command]:
    """Commands with what is replaced, in every kind of place."""
    pod = store.pods.all()[0]
    text = f"token={pod['spec']['containers'][0]['args'][1]} was refused"
    message = Refused(job=JOB, workload="w", spec_version=1, reason="Invalid", message=text)
    return [
        Create(resource=PODS, manifest={"spec": pod["spec"]}),
        Emit(regarding=pod, reason="R", note=text),
        Publish(cluster=EAST, message=message),
    ]


def why(store: Store, *, incoming: Incoming) -> str:
    """A text of a message."""
    return str(getattr(incoming.message, "why", ""))


def hashed(store: Store) -> str:
    """A hash of what is replaced."""
    return content_hash([pod.get("status") for pod in store.pods.all()])


DECISIONS = {each.__name__: each for each in (differ, copy, why, hashed)}


@pytest.fixture
def role(jumping: LoopTime) -> Role:
    return Role()


def again(role: Role, *, hashing: bool = True) -> tuple[Replayer, list[Any]]:
    """The decisions of the export, made again."""
    records = [from_line(to_line(record)) for record in role.records]
    of = msgspec.structs.replace(model(**DECISIONS), hashed=frozenset({"hashed"} if hashing else ()))
    replayer = Replayer({"manager": of})
    return replayer, [made for record in records for made in replayer.feed(record)]


def written(records: list[Record]) -> bytes:
    return b"".join(record.message.body + orjson.dumps(record.message.headers) for record in records)


async def test_a_replay_decides_the_same_without_the_secrets(role: Role) -> None:
    """They are in the first snapshot, in changes, in a table, in a message, in arguments and in outcomes."""
    role.store.pods.put(with_secret("a", 1))
    issuer = Issuer(epoch=1, user="manager", now=lambda: BEGAN, random=lambda count: b"\0" * count)
    counts = {"main": 1}
    message = ScaleRequest(
        job=JOB,
        workload="w",
        worker_uid="u",
        worker_generation=1,
        granted=counts,
        wanted=counts,
        why=f"password={SECRET}",
    )
    async with role.recorded():
        differing = [role.decide(differ)]
        role.store.pods.put(with_secret("b", 2))
        differing.append(role.decide(differ))
        role.store.pods.put(with_secret("c", 3, OTHER))
        differing.append(role.decide(differ))
        role.decide(copy)
        incoming = role.decide.receive(encode(issuer.envelope(message, EAST, ClusterUid("uid-1")), message), decode)
        assert SECRET in role.decide(why, incoming=incoming)
    assert differing == [False, False, True]
    assert not [secret for secret in (SECRET, OTHER) if secret.encode() in written(role.records)]
    for records in (None, role.records):
        made = replay(records, **DECISIONS)[1] if records else again(role)[1]
        assert [each.what for each in made if not each.same] == []
        assert [each.what for each in made] == ["differ", "differ", "differ", "copy", "why"]


async def test_a_hash_of_what_was_replaced_is_known_to_differ(role: Role) -> None:
    status = {"message": f"password={SECRET}"}
    async with role.recorded():
        role.store.pods.put(a_pod("a", 1, status={"message": "fine"}))
        role.decide(hashed)
        role.store.pods.put(a_pod("a", 2, status=status))
        role.decide(hashed)
    replayer, made = again(role)
    assert [each.same for each in made] == [True]
    assert replayer.passed_over == 1
    assert [each.same for each in again(role, hashing=False)[1]] == [True, False]


async def test_a_message_that_cannot_be_searched_is_recorded_without_its_content(role: Role) -> None:
    issuer = Issuer(epoch=1, user="manager", now=lambda: BEGAN, random=lambda count: b"\0" * count)
    message = Refused(job=JOB, workload="w", spec_version=1, reason="Invalid", message="")
    wire = encode(issuer.envelope(message, EAST, ClusterUid("uid-1")), message)
    async with role.recorded():
        for body in (f"password={SECRET}", f"\xffpassword={SECRET}", f'{{"env":[{{"name":"A","value":"{SECRET}"'):
            with pytest.raises(ProtocolError):
                role.decide.receive(msgspec.structs.replace(wire, body=body.encode("latin-1")), decode)
    assert SECRET.encode() not in written(role.records)
    assert written(role.records).count(MARK.encode()) == 3
    assert replay(role.records)[1] == []


def named(store: Store, *, pod: JobRef) -> Any:
    """What a decision reads of an object that it names."""
    found = store.pods.get(pod.namespace, pod.name)
    return found["spec"] if found else None


async def test_what_is_foreign_is_recorded_from_the_first_decision_on_that_names_it(role: Role) -> None:
    def foreign(name: str, version: int, node: str = "n") -> dict[str, Any]:
        pod = a_pod(name, version, spec={"node": node})
        return pod | {"metadata": pod["metadata"] | {"labels": {"foreign": "true"}}}

    of_pod = JobRef("v1", "Pod", "team", "x", "uid-x")
    role.store.pods.put(foreign("x", 1))
    async with role.recorded():
        role.store.pods.put(a_pod("ours", 2))
        role.store.pods.put(foreign("y", 3))
        role.store.pods.remove(foreign("y", 3))
        before = written(role.records)
        role.decide(named, pod=of_pod)
        role.store.pods.put(foreign("x", 4, "other"))
        role.decide(named, pod=of_pod)
    assert b"uid-x" not in before
    assert b"uid-y" not in written(role.records)
    _, made = replay(role.records, named=named)
    assert [(each.what, each.same) for each in made] == [("named", True), ("named", True)]
