"""What a constructor takes to reach brokers that let only known users in, or speak TLS."""

from reconciler.rocketmq.client.tls import TlsSettings
from reconciler.rocketmq.wire.acl import AclCredentials

__all__ = ["AclCredentials", "TlsSettings"]
