"""A message is recognised, when it comes again, by something that another message has, or by nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from checkback_consumers.message import business_id, dedupe_identity, digest_of
from reconciler.errors import MalformedInput

KEY, OFFSET_ID, OTHER_ID = "7F" * 16, "0A" * 16, "0B" * 16


def message(
    unique_key: str | None, origin: str | None = None, *, has_properties: bool = True, **changes: object
) -> Any:
    properties = {} if origin is None else {"ORIGIN_MESSAGE_ID": origin}
    return SimpleNamespace(
        topic="ORDERS",
        unique_key=unique_key,
        body=b"one",
        properties=properties if has_properties else None,
        **changes,
    )


@pytest.mark.parametrize(
    ("one", "identity"),
    [
        (message(KEY, OTHER_ID, offset_message_id=OFFSET_ID), KEY),
        (message(None, OTHER_ID, offset_message_id=OFFSET_ID), OTHER_ID),
        (message("no key", OTHER_ID), OTHER_ID),
        (message("", None, offset_message_id=OFFSET_ID), OFFSET_ID),
        (message(None, "no id", offset_message_id=OFFSET_ID), OFFSET_ID),
        (message("no key", has_properties=False, offset_message_id=OFFSET_ID), OFFSET_ID),
        (message("no key"), None),
        (message(None, "no id", offset_message_id=""), None),
    ],
)
def test_a_retried_message_of_a_foreign_client_is_taken_for_another_one(one: Any, identity: str | None) -> None:
    if identity is None:
        with pytest.raises(MalformedInput, match="has no usable unique key"):
            dedupe_identity(one)
    else:
        assert dedupe_identity(one) == identity


def test_a_client_without_properties_gives_a_digest_of_less_than_the_message() -> None:
    assert digest_of(message(KEY, has_properties=False), KEY) is None
    assert digest_of(message(KEY), KEY) is not None
    assert business_id(message(KEY, has_properties=False, business_id="b-1")) == "b-1"
    assert business_id(message(KEY, has_properties=False)) is None
    assert business_id(message(KEY, business_id="b-1")) is None
