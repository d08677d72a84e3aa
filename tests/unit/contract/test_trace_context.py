"""The producing span that a message names: read as its specification says, or not at all."""

from __future__ import annotations

import pytest

from reconciler.contract.trace_context import traceparent_of

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("properties", "read"),
    [
        ({"traceparent": SENT, "tracestate": "congo=t61"}, SENT),
        ({"TRACE_CONTEXT": SENT}, SENT),
        ({"traceparent": SENT, "TRACE_CONTEXT": f"00-{TRACE}-{SPAN}-00"}, SENT),
        ({"traceparent": "none", "TRACE_CONTEXT": SENT}, SENT),
        ({"traceparent": f"cc-{TRACE}-{SPAN}-01-what-comes-later"}, f"cc-{TRACE}-{SPAN}-01"),
    ],
)
def test_what_instrumentations_write_is_read(properties: dict[str, str], read: str) -> None:
    assert traceparent_of(properties) == read


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-what-comes-later",
        f"{SENT}\n",
        f" {SENT}",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE[:-1]}\u0660-{SPAN}-01",
        "\x1b]0;title\x07",
    ],
)
def test_what_is_no_span_links_to_none(value: str) -> None:
    assert traceparent_of({"traceparent": value}) is None
