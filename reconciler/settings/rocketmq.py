"""The settings of name servers and brokers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from reconciler.settings.types import HostList, Seconds, SecretValue, Section, TopicName, no_duplicates


class AclSettings(Section):
    """The user that sends our requests, if brokers allow only known users."""

    access_key: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="AccessKey of ACL 1.0; the user's name from RocketMQ 5.3 on. Unset: no signatures.",
    )
    secret_key: SecretValue | None = Field(
        default=None, description="SecretKey of ACL 1.0; the user's password from RocketMQ 5.3 on."
    )
    security_token: SecretValue | None = Field(
        default=None, description="Only for keys that a token service lends for a while."
    )

    @model_validator(mode="after")
    def _has_both_keys(self) -> AclSettings:
        if (self.access_key is None) != (self.secret_key is None):
            given, other = ("secret_key", "access_key") if self.access_key is None else ("access_key", "secret_key")
            raise ValueError(f"has {given} and no {other}; give both, or neither")
        if self.security_token is not None and self.access_key is None:
            raise ValueError("has security_token and no access_key; give both keys with it, or none of them")
        return self


class TlsSection(Section):
    """Encryption of the connections to name servers and brokers."""

    enabled: bool = Field(default=False, description="True: TLS on every connection to name servers and brokers.")
    ca_file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="PEM file of the authorities that are trusted; unset: those of the system."
    )
    certificate_file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="PEM file of our certificate, where servers ask for one."
    )
    key_file: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="PEM file of the certificate's key; unset: it is in certificate_file."
    )
    key_password: SecretValue | None = Field(default=None, description="Password of the key file.")
    verify_host_name: bool = Field(
        default=True, description="False: any host with a certificate of the trusted authorities is good enough."
    )


class RocketmqSettings(Section):
    """How brokers are reached."""

    name_servers: HostList = Field(description="Name servers, host:port, several separated by ';'.")
    request_timeout_seconds: Seconds = Field(default=3.0, description="Longest wait for one answer of a broker.")
    probe_topic: TopicName = Field(default="RECONCILER_PROBE", description="Topic of the index-horizon probes.")
    retired_brokers: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=160)]],
        Field(max_length=1_000),
        BeforeValidator(no_duplicates),
    ] = Field(default_factory=list, description="Broker names that never come back: their answers are not waited for.")
    acl: AclSettings = AclSettings()
    tls: TlsSection = TlsSection()
