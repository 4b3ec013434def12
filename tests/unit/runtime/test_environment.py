"""Settings of both roles: defaults, variables, and errors that name the variable."""

from typing import Any

import msgspec
import pytest

from slicebus.agent.settings import AgentSettings
from slicebus.bus.access import address
from slicebus.manager.settings import ManagerSettings
from slicebus.manager.state.settings import AdmissionModeName
from slicebus.proto.errors import ConfigurationError
from slicebus.runtime.broker_settings import BrokerSettings
from slicebus.runtime.environment import variables_of

Role = type[AgentSettings] | type[ManagerSettings]
ROLES: dict[str, tuple[Role, dict[str, str], dict[str, str]]] = {
    "agent": (
        AgentSettings,
        {
            "SLICEBUS_CLUSTER": "east",
            "SLICEBUS_MANAGER_USER": "manager",
            "AMQP_URL": "amqps://east:pw@broker/slicebus",
        },
        variables_of(AgentSettings),
    ),
    "manager": (ManagerSettings, {"AMQP_URL": "amqps://manager:pw@broker"}, variables_of(ManagerSettings)),
}
MAPPINGS = '[{"name": "example.com/gpu", "deviceClassNames": ["gpu.example.com", "big.example.com"]}]'
PARAMETERS = pytest.mark.parametrize(("role", "least", "variables"), ROLES.values(), ids=ROLES.keys())


@PARAMETERS
def test_required_variables_alone_give_the_defaults(
    role: Role, least: dict[str, str], variables: dict[str, str]
) -> None:
    settings = role.from_env(least)
    assert settings.amqp_url == least["AMQP_URL"]
    assert settings.identity
    assert settings.workers == 16
    assert settings.kubeconfig is None


@PARAMETERS
def test_every_field_has_a_variable_of_its_own(role: Role, least: dict[str, str], variables: dict[str, str]) -> None:
    assert len(set(variables.values())) == len(variables)
    assert {"AMQP_URL", "KUBECONFIG", "SLICEBUS_LEASE_SECONDS", "SLICEBUS_WORKERS"} < set(variables.values())


def test_the_bus_names_the_same_variables() -> None:
    named = (value for name, value in vars(address).items() if name.isupper() and isinstance(value, str))
    assert set(named) == set(variables_of(BrokerSettings).values())


@PARAMETERS
def test_every_variable_is_read(role: Role, least: dict[str, str], variables: dict[str, str]) -> None:
    given: dict[str, Any] = {
        "cluster": "west",
        "amqp_url": "memory://a@b",
        "amqp_insecure": "plaintext",
        "health_address": "127.0.0.1:1",
        "log_format": "console",
        "log_level": "debug",
        "workers": "2",
        "prefetch": "3",
        "message_bytes": "300000",
        "resize_factor": "7",
        "growth_victims": "9",
        "idle_headroom": "0.25",
        "held_bytes": "600000",
        "lease_s": "70",
        "admission": "builtin",
        "admission_writers": "5",
        "shards": "1",
        "placement_strategy": "pack",
        "fair_sharing": "LessThanInitialShare",
        "fixed_jobs": "true",
        "pods_before_jobs": "true",
        "schedulers": '[{"name": "kai"}]',
        "device_class_mappings": "[]",
        "usage_weights": "[]",
        "drain_at_once": "3",
        "breaker_share": "0.5",
        "breaker_count": "7",
        "slice_history_limit": "8",
        "record_decisions": "true",
        "journal_max_age": "12h",
        "journal_max_bytes": "5000000",
    }
    texts = {field: given.get(field, "4.5" if field.endswith("_s") else f"the-{field}") for field in variables}
    settings = role.from_env({variables[field]: text for field, text in texts.items()})
    for field, text in texts.items():
        value = getattr(settings, field) if hasattr(settings, field) else getattr(settings.decisions, field)
        assert value == (() if text == "[]" else type(value)(text)), field


@PARAMETERS
def test_the_defaults_can_be_set_too(role: Role, least: dict[str, str], variables: dict[str, str]) -> None:
    settings = role.from_env(least)
    assert msgspec.convert(msgspec.to_builtins(settings), role) == settings


def test_a_kueue_has_settings_of_its_own() -> None:
    _, least, _ = ROLES["manager"]
    beside = least | {"SLICEBUS_ADMISSION": "kueue"}
    assert ManagerSettings.from_env(beside).decisions.admission is AdmissionModeName.KUEUE
    waits = ("SLICEBUS_PODS_READY_SECONDS", "SLICEBUS_PODS_RECOVERY_SECONDS", "SLICEBUS_SCALE_UP_READY_SECONDS")
    others = (("SLICEBUS_FIXED_JOBS", "true"), ("SLICEBUS_DEVICE_CLASS_MAPPINGS", MAPPINGS))
    for name, value in (*((name, "300") for name in waits), *others):
        with pytest.raises(ConfigurationError, match=f"{name} is not for admission by a Kueue"):
            ManagerSettings.from_env(beside | {name: value})


@PARAMETERS
def test_a_missing_value_is_named(role: Role, least: dict[str, str], variables: dict[str, str]) -> None:
    for name in least:
        for environment in (least | {name: ""}, {other: value for other, value in least.items() if other != name}):
            with pytest.raises(ConfigurationError, match=f"^{name} is not set$"):
                role.from_env(environment)


def test_an_empty_variable_counts_as_unset() -> None:
    _, least, variables = ROLES["agent"]
    empty = {name: "" for name in variables.values() if name not in least}
    assert AgentSettings.from_env(least | empty) == AgentSettings.from_env(least)


def test_mappings_of_device_classes_are_those_of_kueue() -> None:
    _, least, _ = ROLES["manager"]
    settings = ManagerSettings.from_env(least | {"SLICEBUS_DEVICE_CLASS_MAPPINGS": MAPPINGS})
    [mapping] = settings.decisions.device_class_mappings
    assert (mapping.name, mapping.device_class_names) == ("example.com/gpu", ("gpu.example.com", "big.example.com"))


def test_the_weights_of_resources_are_json() -> None:
    _, least, _ = ROLES["manager"]
    text = '[{"name": "nvidia.com/gpu", "weight": 10}]'
    [weight] = ManagerSettings.from_env(least | {"SLICEBUS_USAGE_WEIGHTS": text}).decisions.usage_weights
    assert (weight.name, weight.weight) == ("nvidia.com/gpu", 10.0)
    with pytest.raises(ConfigurationError, match="SLICEBUS_USAGE_WEIGHTS"):
        ManagerSettings.from_env(least | {"SLICEBUS_USAGE_WEIGHTS": '[{"name": "cpu", "weight": -1}]'})


COUNT = ["0", "-1", "1.5", "many", "NaN"]
SECONDS = ["0", "-1", "NaN", "inf", "1e9", "10s"]
WRONG: dict[str, list[str]] = {
    "SLICEBUS_DEVICE_CLASS_MAPPINGS": [
        "gpu",
        "{}",
        '[{"name": "a"}]',
        '[{"name": "", "deviceClassNames": ["b"]}]',
        '[{"name": "a", "deviceClassNames": []}]',
        '[{"name": "a", "deviceClassNames": ["b"], "more": 1}]',
        '[{"name": "a", "deviceClassNames": ["b"]}, {"name": "c", "deviceClassNames": ["b"]}]',
    ],
    "AMQP_URL": [
        *("broker:5672", "http://broker", "amqp://", "amqp", "amqps:///v", "amqps://u:p/w@broker", "amqps://[broker"),
        *("amqp://broker", "amqp://10.0.0.1/v", "amqps://broker?no_verify_ssl=1"),
    ],
    "SLICEBUS_AMQP_HOSTS": ["a:port", "a,,b", "u@a", "a/v"],
    "SLICEBUS_AMQP_INSECURE": ["yes", "true", "PLAINTEXT"],
    "SLICEBUS_AMQP_KEY_FILE": ["key.pem"],
    "SLICEBUS_AMQP_PASSWORD_FILE": ["/etc/password"],
    "SLICEBUS_CLUSTER": ["East", "east.example", "-east", "e_st", "e" * 64, "e st"],
    "SLICEBUS_HEALTH_ADDRESS": ["8080", "localhost", "localhost:http", "localhost:", "a b:80", ":123456"],
    "SLICEBUS_LOG_FORMAT": ["xml", "JSON"],
    "SLICEBUS_LOG_LEVEL": ["LOUD", "20", "NOTSET"],
    "SLICEBUS_WORKERS": COUNT,
    "SLICEBUS_PREFETCH": COUNT,
    "SLICEBUS_MESSAGE_BYTES": [*COUNT, "262143"],
    "SLICEBUS_HELD_BYTES": COUNT,
    "SLICEBUS_HEARTBEAT_SECONDS": SECONDS,
    "SLICEBUS_STATUS_INTERVAL_SECONDS": SECONDS,
    "SLICEBUS_CLUSTER_LOST_SECONDS": SECONDS,
    "SLICEBUS_DRAIN_AT_ONCE": COUNT,
    "SLICEBUS_FAIR_SHARING": ["on", "true"],
    "SLICEBUS_EPOCH_SKEW_SECONDS": SECONDS,
    "SLICEBUS_LEASE_SECONDS": [*SECONDS, "5.9"],
    "SLICEBUS_LEASE_RENEW_SECONDS": [*SECONDS, "5.1"],
    "SLICEBUS_RECORD_DECISIONS": ["maybe", "2"],
    "SLICEBUS_JOURNAL_MAX_AGE": ["7", "D", "0D", "7d", "-7D", "7D 1h"],
    "SLICEBUS_JOURNAL_MAX_BYTES": [*COUNT, "999999", "2GB"],
}
CASES = [
    pytest.param(role, least, name, value, id=f"{called}-{name}={value[:12]}")
    for called, (role, least, variables) in ROLES.items()
    for name in variables.values()
    for value in WRONG.get(name, ())
]


@pytest.mark.parametrize(("role", "least", "name", "value"), CASES)
def test_the_error_of_a_wrong_value_names_the_variable(
    role: Role, least: dict[str, str], name: str, value: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        role.from_env(least | {name: value})
    text = str(raised.value)
    assert name in text
    assert "$." not in text
    assert len(text) > len(name) + 10


def test_errors_show_no_password() -> None:
    with pytest.raises(ConfigurationError) as raised:
        ManagerSettings.from_env({"AMQP_URL": "ampq://manager:hunter2@broker"})
    assert "hunter2" not in str(raised.value)


def test_settings_cannot_be_changed() -> None:
    settings = ManagerSettings.from_env({"AMQP_URL": "amqps://broker"})
    with pytest.raises(AttributeError):
        settings.workers = 1  # type: ignore[misc]
    assert msgspec.structs.replace(settings, workers=1).workers == 1


@pytest.mark.parametrize(
    ("message_bytes", "held_bytes", "queues", "prefetch"),
    [
        (2**20, 2**27, 2, 64),
        (2**20, 2**27, 4, 32),
        (2**20, 2**30, 2, 200),
        (2**30, 2**20, 2, 1),
        (2**18, 2**27, 2, 200),
    ],
)
def test_the_prefetch_bounds_the_bytes_that_are_held(
    message_bytes: int, held_bytes: int, queues: int, prefetch: int
) -> None:
    least = ROLES["manager"][1]
    given = {"SLICEBUS_MESSAGE_BYTES": str(message_bytes), "SLICEBUS_HELD_BYTES": str(held_bytes)}
    settings = ManagerSettings.from_env(least | given)
    assert settings.prefetch_of(queues) == prefetch
    assert settings.bus.message_bytes == message_bytes
