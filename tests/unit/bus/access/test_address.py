"""Broker addresses: what is read from them, and what is refused with the name of its variable."""

import pytest

from slicebus.bus.access.address import Access, Insecure, address_of
from slicebus.bus.factory import connect
from slicebus.proto.errors import ConfigurationError

ANY = "SLICEBUS_AMQP_INSECURE=plaintext"
UNVERIFIED = "SLICEBUS_AMQP_INSECURE=unverified"


@pytest.mark.parametrize(
    ("url", "access", "hosts"),
    [
        ("amqps://u:p@broker/v", Access(), "broker:5671"),
        ("amqps://u:p@broker:1234/v", Access(), "broker:1234"),
        ("amqps://u:p@[fd00::1]/v", Access(), "[fd00::1]:5671"),
        ("amqps://u:p@broker:1234/v", Access(hosts="a, b:1,[::1]:2"), "a:1234,b:1,[::1]:2"),
        ("amqps://u:p@/v", Access(hosts="a"), "a:5671"),
        ("amqp://localhost:5672/", Access(), "localhost:5672"),
        ("amqp://u:p@127.0.0.1/v", Access(), "127.0.0.1:5672"),
        ("amqp://u:p@127.8.9.1/v", Access(), "127.8.9.1:5672"),
        ("amqp://u:p@[::1]/v", Access(), "[::1]:5672"),
        ("amqp://u:p@broker/v", Access(hosts="127.0.0.1:1,localhost:2"), "127.0.0.1:1,localhost:2"),
        ("amqp://u:p@broker/v", Access(insecure=Insecure.PLAINTEXT), "broker:5672"),
        ("amqps://u:p@broker/v?no_verify_ssl=0", Access(), "broker:5671"),
        ("amqps://u:p@broker/v?no_verify_ssl=1", Access(insecure=Insecure.UNVERIFIED), "broker:5671"),
    ],
)
def test_what_an_address_says(url: str, access: Access, hosts: str) -> None:
    assert ",".join(map(str, address_of(url, access).hosts)) == hosts


REFUSED: dict[str, tuple[str, Access, str]] = {
    "plain": ("amqp://u:hunter2@broker/v", Access(), ANY),
    "plain, another value": ("amqp://u:hunter2@broker/v", Access(insecure=Insecure.UNVERIFIED), ANY),
    "plain, by address": ("amqp://u:hunter2@10.0.0.1/v", Access(), ANY),
    "plain, a name that begins like loopback": ("amqp://u:hunter2@127.0.0.1.example.org/v", Access(), ANY),
    "plain, a name that ends like loopback": ("amqp://u:hunter2@notlocalhost/v", Access(), ANY),
    "plain, one of several": ("amqp://u:hunter2@localhost/v", Access(hosts="localhost,broker"), ANY),
    "unverified": ("amqps://u:hunter2@broker/v?no_verify_ssl=1", Access(), UNVERIFIED),
    "unverified, as text": ("amqps://u:hunter2@broker/v?no_verify_ssl=true", Access(), UNVERIFIED),
    "unverified on loopback": ("amqps://u:hunter2@localhost/v?no_verify_ssl=1", Access(), UNVERIFIED),
    "unverified, another value": (
        "amqps://u:hunter2@broker/v?no_verify_ssl=1",
        Access(insecure=Insecure.PLAINTEXT),
        UNVERIFIED,
    ),
    "no host": ("amqps:///v", Access(), "AMQP_URL names no host"),
    "a password with a slash": ("amqps://u:hun/ter2@broker/v", Access(), "AMQP_URL: its host and port"),
    "an open bracket": ("amqps://u:hunter2@[broker/v", Access(), "AMQP_URL cannot be read"),
    "no such host": ("amqps://u:hunter2@broker/v", Access(hosts="a,,b"), "SLICEBUS_AMQP_HOSTS: ''"),
    "a host with a path": ("amqps://u:hunter2@broker/v", Access(hosts="a/v"), "SLICEBUS_AMQP_HOSTS: 'a/v'"),
    "a host with a user": ("amqps://u:hunter2@broker/v", Access(hosts="x@a"), "SLICEBUS_AMQP_HOSTS: 'x@a'"),
    "a host with a wrong port": ("amqps://u:hunter2@broker/v", Access(hosts="a:x"), "SLICEBUS_AMQP_HOSTS: 'a:x'"),
    "a CA for plain text": ("amqp://localhost/", Access(ca_file="ca"), "SLICEBUS_AMQP_CA_FILE needs amqps://"),
    "a certificate for plain text": ("amqp://localhost/", Access(cert_file="c"), "SLICEBUS_AMQP_CERT_FILE needs"),
    "a key alone": ("amqps://broker/", Access(key_file="k"), "SLICEBUS_AMQP_KEY_FILE needs SLICEBUS_AMQP_CERT_FILE"),
    "two passwords": ("amqps://u:hunter2@broker/", Access(password_file="p"), "set one of them"),
    "a password of nobody": ("amqps://broker/", Access(password_file="p"), "SLICEBUS_AMQP_PASSWORD_FILE needs a user"),
}


@pytest.mark.parametrize(("url", "access", "told"), REFUSED.values(), ids=REFUSED.keys())
async def test_what_is_refused_is_named_and_shows_no_password(url: str, access: Access, told: str) -> None:
    with pytest.raises(ConfigurationError) as refusal:
        await connect(url, name="test", access=access)
    text = str(refusal.value)
    assert told in text
    assert "\n" not in text
    assert "hunter2" not in text
    assert "ter2" not in text


def test_an_address_for_people_has_its_hosts_and_no_credentials() -> None:
    access = Access(hosts="a,b:2")
    assert str(address_of("amqps://u:hunter2@broker:1/v?heartbeat=3", access)) == "amqps://a:1,b:2/v"
