"""Each key has one member and each member one key: two keys that met in one member would be settled by one effect."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.contract.unique_key import (
    TEXT_BYTES_MAX,
    TEXT_BYTES_MIN,
    fault_of_member,
    is_digits,
    is_member,
    is_unique_key,
    key_of,
    member_of,
    require_unique_key,
)
from reconciler.errors import MalformedInput
from tests.unit.contract.keys import JAVA, KEYS, OF_CLIENTS, digits, texts

members = st.one_of(
    st.binary(max_size=70),
    KEYS.map(member_of),
    st.binary(min_size=32, max_size=66).map(lambda tail: b"\0" + tail),
    KEYS.map(lambda key: b"\0" + key.encode()),
)


@given(KEYS, KEYS)
@example(JAVA, JAVA.lower())
@example("0" * 32, "0" * 64)
@example("A" * 16, "A" * 17)
@example("A" * 32, "A" * 33)
def test_two_keys_have_two_members_and_each_is_read_back(one: str, other: str) -> None:
    assert key_of(member_of(one)) == one
    assert (member_of(one) == member_of(other)) is (one == other)
    assert is_member(member_of(one))
    assert fault_of_member(member_of(one)) is None


@given(digits)
def test_a_key_of_digits_keeps_the_bytes_that_it_has_had(key: str) -> None:
    assert is_digits(key)
    assert member_of(key) == bytes.fromhex(key)


@given(texts)
def test_every_other_key_is_a_zero_byte_and_its_text(key: str) -> None:
    assert not is_digits(key)
    member = member_of(key)
    assert member[0] == 0
    assert member[1 : 1 + len(key)] == key.encode()
    assert set(member[1 + len(key) :]) <= {0}
    assert TEXT_BYTES_MIN <= len(member) <= TEXT_BYTES_MAX


@given(members)
@example(b"")
@example(bytes(33))
@example(bytes(65))
@example(b"\0" + JAVA.encode())
@example(b"\0" + b"a" * 20 + b"\0" * 12 + b"b")
@example(b"\0" + b"a" * 33 + b"\0")
@example(b"\0" + b"a" * 65)
def test_bytes_that_no_key_has_are_told_and_can_be_removed_as_they_are(member: bytes) -> None:
    key = key_of(member)
    assert member_of(key) == member
    assert is_unique_key(key) is is_member(member)
    if not is_member(member):
        assert fault_of_member(member) is not None


@pytest.mark.parametrize("key", OF_CLIENTS)
def test_a_recorder_that_writes_the_text_of_a_key_is_told_so(key: str) -> None:
    fault = fault_of_member(key.encode())
    assert fault is not None
    assert f"the text of a key: {len(key)} characters" in fault


@pytest.mark.parametrize("key", [*OF_CLIENTS, "a" * 16, "_" * 64, "-" * 33, "order-2026_000017"])
def test_the_keys_of_every_client_are_keys(key: str) -> None:
    assert require_unique_key(key) == key


@pytest.mark.parametrize(
    "text", ["", "a" * 15, "a" * 65, "a" * 16 + "\n", "a" * 15 + " ", "a" * 15 + ".", "ä" * 16, "\uff11" * 16, None, 7]
)
def test_other_texts_are_none(text: object) -> None:
    assert not is_unique_key(text)
    with pytest.raises(MalformedInput, match="16 to 64 letters, digits"):
        require_unique_key(text)
