"""The producer's span in a message, in the form of the header `traceparent` (Trace Context of the World Wide Web
Consortium).

OpenTelemetry's Java instrumentations of the RocketMQ clients 4.8 and 5.0 write the header into the user properties
(their MapSetter and MessageMapSetter). A service may write the header itself. Proxies write the field trace_context of
gRPC clients as TRACE_CONTEXT (MessageConst.PROPERTY_TRACE_CONTEXT). Older instrumentations of these clients use this
field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Properties that may hold the span. The first property with a valid value counts.
_CARRIERS = ("traceparent", "TRACE_CONTEXT")
#: Version, trace, span and flags. Version ff is invalid, and so are ids of zeros only. A later version may add fields
#: after a dash.
_TRACEPARENT = re.compile(
    r"((?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?", re.DOTALL
)


def traceparent_of(properties: Mapping[str, str]) -> str | None:
    """Returns the 55 characters that name the producing span. None: the message has no valid span.

    The span is a hint for people and proves nothing, because any sender can write it.
    """
    for name in _CARRIERS:
        found = _TRACEPARENT.fullmatch(properties.get(name, ""))
        if found is not None and (found[2] is None or not found[1].startswith("00")):
            return found[1]
    return None
