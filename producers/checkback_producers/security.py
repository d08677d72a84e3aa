"""Arguments of constructors for services that ask for a login, or speak TLS."""

from reconciler.contract.secret_sources import secret_from_command, secret_from_file
from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials

__all__ = ["AclCredentials", "TlsSettings", "secret_from_command", "secret_from_file"]
