"""Defines the broker settings that roles and commands have."""

from collections.abc import Mapping
from typing import Self

import msgspec

from slicebus.bus.access.address import Access, Insecure, address_of
from slicebus.runtime.environment import from_environment

_IN_PROCESS = "memory://"
"""The bus of the demo and of tests, which has nothing to log in to."""


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Say where the broker is, and how to log in there."""

    amqp_url: str
    amqp_hosts: str = ""
    amqp_insecure: Insecure | None = None
    amqp_ca_file: str | None = None
    amqp_cert_file: str | None = None
    amqp_key_file: str | None = None
    amqp_password_file: str | None = None

    def __post_init__(self) -> None:
        """Raises ConfigurationError for an address that cannot or must not work."""
        if not self.amqp_url.startswith(_IN_PROCESS):
            address_of(self.amqp_url, self.access)

    @property
    def access(self) -> Access:
        """The settings that go with the address."""
        return Access(
            hosts=self.amqp_hosts,
            insecure=self.amqp_insecure,
            ca_file=self.amqp_ca_file,
            cert_file=self.amqp_cert_file,
            key_file=self.amqp_key_file,
            password_file=self.amqp_password_file,
        )

    @property
    def shown(self) -> str:
        """The address for people, without user, password and options."""
        in_process = self.amqp_url.startswith(_IN_PROCESS)
        return self.amqp_url if in_process else str(address_of(self.amqp_url, self.access))

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Read the settings from environment variables. Raises ConfigurationError, which names the variable."""
        return from_environment(cls, environment)
