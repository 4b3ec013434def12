"""`slicebus broker definitions`: its three formats, and what differs between a broker and its definitions."""

import base64
import hashlib
import json
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from typer.testing import CliRunner

from slicebus.cli.broker.addresses import address_for, manager_of
from slicebus.cli.broker.api import BrokerApi
from slicebus.cli.broker.compare import differences, viewers
from slicebus.cli.broker.formats import as_definitions, as_manifests, as_shell, object_name, password_hash
from slicebus.cli.broker.members import accepted_members
from slicebus.cli.main import app
from slicebus.kube.client import KubeClient
from slicebus.proto.errors import ConfigurationError, InvalidError, SlicebusError
from slicebus.proto.messages import ClusterName
from slicebus.proto.rights import Member, Viewer, definitions, viewer_rights
from slicebus.sandbox.apiserver.api import Api
from slicebus.sandbox.apiserver.inprocess import InProcessTransport

MEMBER_WEST = Member(ClusterName("west"), "agent of west")
GIVEN = definitions([Member(ClusterName("east"), "east"), MEMBER_WEST])
EVIL = definitions([Member(ClusterName("east"), "a'; $(touch evil) \"`touch evil`")])


def call(*arguments: str, stdin: str = "") -> Any:
    return CliRunner().invoke(app, ["broker", "definitions", *arguments], input=stdin, env={"AMQP_URL": ""})


def test_a_hash_is_rabbitmqs() -> None:
    salt = bytes.fromhex("908DC60A")
    digest = hashlib.sha256(salt + b"test12").digest()
    assert base64.b64decode(password_hash("test12", salt)) == salt + digest
    assert password_hash("test12", salt) == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_a_password_is_nowhere_in_what_is_printed() -> None:
    lines = "manager=secret-1\neast=secret=2\n\n"
    done = call("--cluster", "east", "--passwords", "-", stdin=lines)
    assert done.exit_code == 0, done.stderr
    assert "secret" not in done.stdout
    users = {user["name"]: user for user in json.loads(done.stdout)["users"]}
    assert set(users) == {"manager", "east"}
    for name, password in (("manager", "secret-1"), ("east", "secret=2")):
        whole = base64.b64decode(users[name]["password_hash"])
        assert whole[4:] == hashlib.sha256(whole[:4] + password.encode()).digest()


def test_users_without_a_password_are_left_out_and_named() -> None:
    done = call("--cluster", "east", "--cluster", "west", "--passwords", "-", stdin="manager=x\nwest=y\n")
    assert [user["name"] for user in json.loads(done.stdout)["users"]] == ["manager", "west"]
    assert done.stderr == "without these users, which have to be there: east\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "told"),
    [
        (["--cluster", "East"], "", "'East' is no name of a cluster: use"),
        (["--cluster", "east", "--cluster", "east"], "", "a name and a broker user of its own"),
        (["--cluster", "east", "--viewer", "east"], "", "and every viewer a user: east; manager, east, east"),
        (["--cluster", "east", "--viewer", "a/b"], "", "not a viewer: 'a/b'"),
        (["--cluster", "east", "--agent-user", "west=x"], "", "--agent-user west: no such cluster"),
        (["--cluster", "east", "--agent-user", "east"], "", "--agent-user east: use CLUSTER=USER"),
        (["--cluster", "east", "--passwords", "-"], "manager:hidden", "--passwords -, line 1: use USER=PASSWORD"),
        (["--cluster", "east", "--passwords", "-"], "\nhidden=x", "--passwords -, line 2: no such user is defined"),
        (["--cluster", "east", "--passwords", "/nowhere"], "", "--passwords /nowhere: No such file"),
        (["--cluster", "east", "--format", "rabbitmqctl", "--passwords", "-"], "", "--passwords is for --format"),
    ],
)
def test_wrong_input_is_one_line_without_a_secret(arguments: list[str], stdin: str, told: str) -> None:
    done = call(*arguments, stdin=stdin)
    assert isinstance(done.exception, ConfigurationError)
    assert told in str(done.exception)
    assert "hidden" not in str(done.exception)


def test_the_script_is_shell_whatever_the_users_are_called(tmp_path: Any) -> None:
    ctl = tmp_path / "rabbitmqctl"
    ctl.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        "*--no-table-headers*) ;;\n"
        '*import_definitions*) cat "$3" >> imported ;;\n'
        '*) printf "%s\\n" "$@" >> calls ;;\nesac\n'
    )
    ctl.chmod(0o755)
    user = EVIL.users[1]
    for name in EVIL.users:
        (tmp_path / name).write_text("x\n")
    script = as_shell(EVIL, "a vhost")
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PASSWORDS": str(tmp_path)}
    subprocess.run(["sh"], input=script, text=True, cwd=tmp_path, env=env, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert not (tmp_path / "evil").exists()
    assert "a vhost" in calls
    assert [calls[at - 1] for at, word in enumerate(calls) if word == user] == ["add_user", "set_user_limits"]
    exchanges, rest = map(json.loads, (tmp_path / "imported").read_text().splitlines())
    assert list(exchanges) == ["exchanges"], "before the topic permissions on them"
    assert [one["user"] for one in rest["permissions"]] == list(EVIL.users)
    assert "users" not in rest, "RabbitMQ would take their passwords away"


def test_the_script_makes_no_user_without_a_password(tmp_path: Any) -> None:
    ctl = tmp_path / "rabbitmqctl"
    ctl.write_text('#!/bin/sh\necho "$@" >> calls\n')
    ctl.chmod(0o755)
    for env in ({}, {"PASSWORDS": str(tmp_path)}):
        done = subprocess.run(
            ["sh"],
            input=as_shell(GIVEN, "v"),
            text=True,
            cwd=tmp_path,
            env=env | {"PATH": f"{tmp_path}:/usr/bin:/bin"},
            check=False,
            capture_output=True,
        )
        assert done.returncode != 0
    assert "add_user" not in (tmp_path / "calls").read_text()


def test_the_operators_objects_are_of_its_kinds_and_refer_to_secrets() -> None:
    text = as_manifests(GIVEN, "slicebus", rabbitmq="broker")
    found = list(yaml.safe_load_all(text))
    kinds = [one["kind"] for one in found]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "Vhost": 1, "Exchange": 7, "User": 3, "Permission": 3, "TopicPermission": 21, "Policy": 5
    }  # fmt: skip
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(names)) == len(names)
    for one in found:
        assert one["apiVersion"] == "rabbitmq.com/v1beta1"
        assert one["spec"]["rabbitmqClusterReference"] == {"name": "broker"}
    users = [one["spec"] for one in found if one["kind"] == "User"]
    secrets = [user["importCredentialsSecret"]["name"] for user in users]
    comments = [line for line in text.splitlines() if line.startswith("# kubectl")]
    for secret, user, comment in zip(secrets, GIVEN.users, comments, strict=True):
        words = shlex.split(comment.removeprefix("# "))
        assert (secret in words, f"--from-literal=username={user}" in words) == (True, True)


def test_names_of_objects_are_dns_names_and_keep_apart() -> None:
    names = [object_name("p", text) for text in ("east", "East", "e ast", "e/ast", "...", "")]
    assert names[0] == "p-east"
    assert len(set(names)) == len(names)
    assert all(name == name.lower() and " " not in name and "/" not in name for name in names)


def a_broker() -> dict[str, Any]:
    """What a broker says that was made by the definitions, beside another vhost."""
    made = as_definitions(GIVEN, "v", dict.fromkeys(GIVEN.users, "hash"))
    made["users"].append({"name": "admin", "tags": ["administrator"], "limits": {}})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    made["permissions"] += [{"user": "admin", "vhost": "v", **everything}, {"user": "x", "vhost": "w", **everything}]
    return made


JANE = Viewer("jane")


def reads(broker: dict[str, Any]) -> None:
    [permission] = viewer_rights(JANE).permissions
    rights = {name: getattr(permission, name) for name in ("user", "configure", "write", "read")}
    broker["permissions"] += [{"vhost": "v", **rights}, {"vhost": "w", **rights, "user": "ann"}]


def test_who_may_read_the_journal_is_told_by_the_rights() -> None:
    broker = a_broker()
    assert viewers(broker, "v") == []
    reads(broker)
    assert viewers(broker, "v") == [JANE]
    assert differences(GIVEN, "v", broker) == ["user jane has rights and belongs to no accepted cluster"]
    known = definitions([Member(ClusterName("east"), "east"), MEMBER_WEST], viewers=[JANE])
    assert differences(known, "v", broker) == ["there is no user jane"]
    broker["users"].append({"name": "jane", "tags": [], "limits": {"max-connections": 16}})
    assert differences(known, "v", broker) == [
        "limits of jane are {'max-connections': 16}, not {'max-connections': 16, 'max-channels': 64}"
    ]
    broker["permissions"][-2]["read"] = ".*"
    assert viewers(broker, "v") == []


@pytest.mark.parametrize("format", ["definitions", "rabbitmqctl", "topology-operator"])
def test_each_format_has_the_viewers(format: str) -> None:
    done = call("--cluster", "east", "--viewer", "jane", "--viewer", "ann@example", "--format", format)
    assert done.exit_code == 0, done.stderr
    read = r"^slicebus\.(journal|agent-journal)$"
    match format:
        case "topology-operator":
            objects = list(yaml.safe_load_all(done.stdout))
            specs = [one["spec"] for one in objects if one["kind"] == "Permission"]
            found = {spec["user"]: spec["permissions"] for spec in specs}
            users = [one["metadata"]["name"] for one in objects if one["kind"] == "User"]
            assert "slicebus-jane" in users
        case "rabbitmqctl":
            assert "\nuser jane " in done.stdout
            [imported] = [line for line in done.stdout.splitlines() if line.startswith('{"permissions"')]
            found = {one["user"]: one for one in json.loads(imported)["permissions"]}
        case _:
            found = {one["user"]: one for one in json.loads(done.stdout)["permissions"]}
    for user in ("jane", "ann@example"):
        rights = {name: found[user][name] for name in ("configure", "write", "read")}
        assert rights == {"configure": "^$", "write": "^$", "read": read}


def broad(broker: dict[str, Any]) -> None:
    next(one for one in broker["permissions"] if one["user"] == "east")["write"] = ".*"


def stranger(broker: dict[str, Any]) -> None:
    broker["permissions"].append({"user": "left", "vhost": "v", "configure": "", "write": "", "read": ".*"})


def no_topic(broker: dict[str, Any]) -> None:
    broker["topic_permissions"] = [
        one for one in broker["topic_permissions"] if (one["user"], one["exchange"]) != ("east", "slicebus.up")
    ]


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], list[str]]] = {
    "nothing": (lambda broker: None, []),
    "a broad right": (
        broad,
        [r"permission of east: write is '.*', not '^slicebus\\.(up|agent-dead|agent-decisions)$'"],
    ),
    "no topic permission": (no_topic, ["no topic permission of east, slicebus.up: it may use every key"]),
    "somebody else": (stranger, ["user left has rights and belongs to no accepted cluster"]),
    "no bounds": (
        lambda broker: broker.update(policies=broker["policies"][1:]),
        ["no policy of slicebus-dead-letters"],
    ),
    "no user": (
        lambda broker: broker.update(users=[one for one in broker["users"] if one["name"] != "east"]),
        ["there is no user east"],
    ),
    "other limits": (
        lambda broker: broker["users"][1].update(limits={}),
        ["limits of east are {}, not {'max-connections': 8, 'max-channels': 64}"],
    ),
    "no limit of the vhost": (
        lambda broker: broker.update(parameters=[]),
        ["no parameter of vhost-limits, limits"],
    ),
}


@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES.keys())
def test_what_differs_is_said(change: Callable[[dict[str, Any]], object], told: list[str]) -> None:
    broker = a_broker()
    change(broker)
    assert differences(GIVEN, "v", broker) == told


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("amqps://boss:x@host/fleet", ("boss", "fleet")),
        ("amqps://a%40b:x@host/%2F", ("a@b", "/")),
        ("amqps://host", ("manager", "slicebus")),
        ("", ("manager", "slicebus")),
        (None, ("manager", "slicebus")),
    ],
)
def test_the_managers_address_says_its_user_and_vhost(url: str | None, found: tuple[str, str]) -> None:
    assert manager_of(url) == found


@pytest.mark.parametrize(
    ("broker", "like", "made"),
    [
        ("amqps://m:p@h:5671/v", "amqps://m:p@h:5671/v", "amqps://e%40st:p%2Fw@h:5671/v"),
        ("amqps://public:443", "amqp://m:p@h/v?heartbeat=9", "amqps://e%40st:p%2Fw@public:443/v?heartbeat=9"),
        ("amqps://[::1]:5671/own", "amqp://m:p@h/v", "amqps://e%40st:p%2Fw@[::1]:5671/own"),
    ],
)
def test_an_agents_address_is_the_managers_with_its_own_user(broker: str, like: str, made: str) -> None:
    assert address_for("e@st", "p/w", broker=broker, like=like) == made
    with pytest.raises(SlicebusError):
        address_for("e", "p", broker="host:5671", like=like)


@pytest.mark.parametrize(
    "url",
    ["https://ADMIN:PASSWORD@broker:https://x", "amqps://a:b@broker", "https://broker", "https://a%3Ab:c@broker", ""],
)
async def test_an_address_of_the_management_that_cannot_work_is_refused_without_a_secret(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^SLICEBUS_BROKER_API: use https://USER:PASSWORD@HOST:15671$"):
        async with BrokerApi.connect(url, "slicebus"):
            pass


async def test_the_connections_of_a_removed_user_are_closed_until_the_broker_says_so() -> None:
    answers = iter([500, 503, 204])
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        return web.Response(status=next(answers) if "connections" in request.path else 404)

    broker = web.Application()
    broker.router.add_route("*", "/{path:.*}", answer)
    async with (
        TestServer(broker, host="127.0.0.1") as server,
        BrokerApi.connect(f"http://boss:x@127.0.0.1:{server.port}", "slicebus") as api,
    ):
        await api.remove_user("blue")
    assert asked == ["DELETE /api/users/blue", *["DELETE /api/connections/username/blue"] * 3]


async def test_an_answer_of_something_else_is_one_line() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="<html>\n Log in\n</html>", content_type="text/html")

    proxy = web.Application()
    proxy.router.add_route("*", "/{path:.*}", answer)
    async with (
        TestServer(proxy, host="127.0.0.1") as server,
        BrokerApi.connect(f"http://boss:x@127.0.0.1:{server.port}", "slicebus") as api,
    ):
        with pytest.raises(InvalidError, match="GET definitions: the answer is none of a management API: <html> Log"):
            await api.definitions()


async def test_before_the_managers_chart_is_installed_there_is_no_cluster() -> None:
    assert await accepted_members(KubeClient(InProcessTransport(Api(), host="here"))) == []
