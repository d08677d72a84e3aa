"""The announcement's wire form: what must be refused is refused with a reason, what is sent comes back."""

import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.contract.announcement import (
    BODY_BYTES_MAX,
    KEYS_MAX,
    AnnouncedKey,
    Announcement,
    decode_announcement,
    decode_bare_key,
    encode_announcement,
    is_signed,
    sign,
    split_by_shard,
)
from reconciler.contract.unique_key import is_digits, key_of, member_of, shard_of
from reconciler.errors import MalformedInput
from tests.unit.contract.keys import KEYS

KEY = "7F00000100002A9F0000000000000090"
announced = st.builds(
    AnnouncedKey,
    unique_key=KEYS,
    tag=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    committed_at_ms=st.integers(0, (1 << 53) - 1),
)


def one(**changes: object) -> dict[str, object]:
    """A valid document with changes."""
    entry = {"key": KEY, "tag": None, "committed_at_ms": 1}
    return {"v": 1, "env": "test", "topic": "T", "group": "G", "keys": [entry], **changes}


@given(st.lists(announced, min_size=1, max_size=900), st.integers(1, 64))
def test_every_announced_key_arrives_once_in_its_own_shard(entries: list[AnnouncedKey], shards: int) -> None:
    whole = Announcement(environment="test", topic="T", producer_group="G", keys=tuple(entries))
    arrived: list[AnnouncedKey] = []
    for shard, part in split_by_shard(whole, shards):
        body = encode_announcement(part)
        assert len(body) <= BODY_BYTES_MAX
        read = decode_announcement(body)
        assert read == part
        assert len(read.keys) <= KEYS_MAX
        assert {shard_of(k.unique_key, shards) for k in read.keys} == {shard}
        # A release that knows no keys but digits refuses an announcement with another one as a whole.
        assert len({is_digits(k.unique_key) for k in read.keys}) == 1
        arrived += read.keys
    assert sorted(map(repr, arrived)) == sorted(map(repr, entries))


@pytest.mark.parametrize("created_at_ms", [-1, 1 << 53, 1_795_732_227_034_433_568])
def test_a_row_whose_time_is_no_time_takes_no_other_key_with_it(created_at_ms: int) -> None:
    """Somebody wrote nanoseconds: a reader would refuse the whole message, each time that it is announced."""
    keys = (
        AnnouncedKey(unique_key=KEY, tag=None, committed_at_ms=created_at_ms),
        AnnouncedKey(unique_key=KEY[:-1] + "1", tag=None, committed_at_ms=1),
    )
    whole = Announcement(environment="test", topic="T", producer_group="G", keys=keys)
    read = decode_announcement(encode_announcement(whole))
    assert [key.unique_key for key in read.keys] == [key.unique_key for key in keys]
    assert read.keys[1] == keys[1]
    body = json.dumps(one(keys=[{"key": k.unique_key, "committed_at_ms": k.committed_at_ms} for k in keys])).encode()
    assert decode_announcement(body).keys == read.keys, "as a sender of 0.2.0 writes it"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"{", "JSON"),
        (b"[" * 100_000, "more|JSON|bytes"),
        (b"[1]", "object"),
        (json.dumps(one(v=2)).encode(), "version 2"),
        (json.dumps(one(v=True)).encode(), "version True"),
        (json.dumps(one(v=None)).encode(), "version None"),
        (json.dumps(one(env="")).encode(), "env"),
        (json.dumps(one(topic=7)).encode(), "topic"),
        (json.dumps(one(group="g" * 256)).encode(), "group"),
        (json.dumps(one(keys=[])).encode(), "keys"),
        (json.dumps(one(keys=[1])).encode(), r"keys\[0\]"),
        (json.dumps(one(keys=[{"key": "127.0.0.1:10911/x", "committed_at_ms": 1}])).encode(), "unique key"),
        (json.dumps(one(keys=[{"key": KEY, "committed_at_ms": 1.5}])).encode(), "committed_at_ms"),
        (json.dumps(one(keys=[{"key": KEY, "committed_at_ms": 1, "tag": 3}])).encode(), "tag"),
        (json.dumps(one(keys=[{"key": KEY, "committed_at_ms": 1}] * (KEYS_MAX + 1))).encode(), "keys"),
        (b" " * (BODY_BYTES_MAX + 1), "bytes"),
    ],
)
def test_malformed_announcement_is_refused_with_its_field(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedInput, match=reason):
        decode_announcement(body)


def test_field_of_a_later_minor_release_is_ignored() -> None:
    read = decode_announcement(json.dumps(one(later={"x": 1})).encode())
    assert read.keys[0].unique_key == KEY


@pytest.mark.parametrize("digits", [32, 34, 56, 64])
def test_known_key_lengths_are_accepted(digits: int) -> None:
    assert key_of(member_of("AB" * (digits // 2))) == "AB" * (digits // 2)


def test_shard_is_the_crc_of_the_text() -> None:
    assert shard_of("A" * 32, 1 << 32) == zlib.crc32(b"A" * 32)
    assert shard_of(KEY, 1) == 0


def test_bare_key_is_read_and_anything_else_refused() -> None:
    assert decode_bare_key(KEY.encode()) == KEY
    for body in (b"", b"\xff", KEY.encode() + b" x"):
        with pytest.raises(MalformedInput):
            decode_bare_key(body)


def test_forged_or_missing_signature_is_refused() -> None:
    body = b"{}"
    assert is_signed(body, sign(body, b"secret"), b"secret")
    assert not is_signed(body, sign(body, b"other"), b"secret")
    assert not is_signed(body + b" ", sign(body, b"secret"), b"secret")
    assert not is_signed(body, None, b"secret")
    assert not is_signed(body, "ä", b"secret")


def test_an_announcement_that_nobody_could_read_is_not_sent() -> None:
    def announcement(count: int, tag: str | None) -> Announcement:
        entries = tuple(AnnouncedKey(unique_key=KEY, tag=tag, committed_at_ms=1) for _ in range(count))
        return Announcement(environment="test", topic="T", producer_group="G", keys=entries)

    assert encode_announcement(announcement(KEYS_MAX, None))
    for count in (0, KEYS_MAX + 1):
        with pytest.raises(MalformedInput, match="1 to 500 keys"):
            encode_announcement(announcement(count, None))
    with pytest.raises(MalformedInput, match="bytes"):
        encode_announcement(announcement(KEYS_MAX, "long" * 40))


def test_nothing_announced_is_no_announcement() -> None:
    assert not list(split_by_shard(Announcement(environment="test", topic="T", producer_group="G", keys=()), 16))


@pytest.mark.parametrize(("count", "tag", "parts"), [(256, None, 1), (257, None, 2), (400, "\u20ac" * 40, 5)])
def test_more_keys_than_fit_travel_in_several_announcements(count: int, tag: str | None, parts: int) -> None:
    entries = tuple(AnnouncedKey(unique_key=f"{n:032X}", tag=tag, committed_at_ms=n) for n in range(count))
    cut = [
        part
        for _, part in split_by_shard(Announcement(environment="t", topic="T", producer_group="G", keys=entries), 1)
    ]
    assert len(cut) == parts
    assert tuple(key for part in cut for key in part.keys) == entries
    assert max(len(encode_announcement(part)) for part in cut) <= BODY_BYTES_MAX
