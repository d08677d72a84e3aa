"""The span of the producer as a message carries it: Trace Context of the World Wide Web Consortium, header
`traceparent`.

OpenTelemetry's Java instrumentations of the RocketMQ clients 4.8 and 5.0 put it among the user properties (their
MapSetter and MessageMapSetter), and a service may do so itself. Proxies write the field trace_context of gRPC clients
as TRACE_CONTEXT (MessageConst.PROPERTY_TRACE_CONTEXT); older instrumentations of these clients use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Properties that may hold it; the first one with a valid value counts.
_CARRIERS = ("traceparent", "TRACE_CONTEXT")
#: Version, trace, span and flags. Version ff, and ids of zeros only, are invalid; a later version may add fields after
#: a dash.
_TRACEPARENT = re.compile(
    r"((?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?", re.DOTALL
)


def traceparent_of(properties: Mapping[str, str]) -> str | None:
    """Returns the 55 characters that name the producing span. None: the message has no valid ones.

    It is a hint for people and proves nothing, because any sender can write it.
    """
    for name in _CARRIERS:
        found = _TRACEPARENT.fullmatch(properties.get(name, ""))
        if found is not None and (found[2] is None or not found[1].startswith("00")):
            return found[1]
    return None
