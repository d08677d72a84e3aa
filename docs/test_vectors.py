"""Test vectors for implementations in other languages: every value is computed by the code of the plug-ins.

One vector a line: its name, its arguments, the result, with spaces between. Texts are percent-encoded (UTF-8), `-` is an
empty or missing one, bytes are hexadecimal.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from reconciler.contract.announcement import AnnouncedKey, Announcement, encode_announcement, sign
from reconciler.contract.content_digest import content_digest
from reconciler.contract.keyspace import ShardKeys
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.unique_key import member_of, shard_of

KEYS = (
    "7F00000100002A9F0000000000000090",  # Java, C++, Python
    "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF",
    "01A2B3C4D5E6F700112233445566778899",  # gRPC
    "20010DB80000000000000000000000012A9F12AB34CD56EF00010002",  # Java on IPv6
    "0A000001A1B2000000003c5de2a0000b",  # Go
    "01a2b3c4d5e6f700112233445566778899",  # gRPC, Rust
    "order-2026_17-debit",
    "0123456789ABCDEF",  # too short for digits
    "ABCDEFABCDEFABCDEFABCDEFABCDEFABC",  # an odd number of digits
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-",
)
SHARDS = (1, 16, 1024)
#: Sorted by their UTF-8 bytes the wide letter comes before the emoji; by UTF-16, as in Java and JavaScript, after it.
UNICODE_PROPERTIES = {"\U0001f4b0": "eur", "\uff21": "wide", "a b": "x=y,z", "BUSINESS_ID": "order-7"}
SUBSCRIPTION = Subscription(environment="production", topic="ORDERS", group="billing")


def lines() -> Iterator[str]:
    """All vectors."""
    for key in KEYS:
        for shards in SHARDS:
            yield f"shard {key} {shards} {shard_of(key, shards)}"
        yield f"member {key} {member_of(key).hex()}"
        shard = Shard(subscription=SUBSCRIPTION, number=shard_of(key, 16))
        yield f"commit-set production ORDERS billing {key} 16 {quote(ShardKeys(shard).commit, safe='')}"
    for tag in ("paid", None, "bezahlt ü"):
        body = _announcement(tag, KEYS[0])
        yield f"announcement production ORDERS order-service {_text(tag)} {KEYS[0]} 1763716000000 {body.hex()}"
        yield f"signature secret {body.hex()} {sign(body, b'secret')}"
    for tags, keys, properties, body in (
        (None, None, {}, b""),
        ("paid", "order-7", {"BUSINESS_ID": "order-7"}, b"100 EUR"),
        ("paid", "order-7 vip", {"BUSINESS_ID": "order-7", "WAIT": "true", "PGROUP": "order-service"}, b"100 EUR"),
        ("paid", "order-7", UNICODE_PROPERTIES, bytes(range(256))),
    ):
        digest = content_digest(topic="ORDERS", tags=tags, keys=keys, properties=properties, body=body)
        pairs = ",".join(f"{_text(name)}={_text(value)}" for name, value in properties.items()) or "-"
        yield f"digest ORDERS {_text(tags)} {_text(keys)} {pairs} {body.hex() or '-'} {digest.hex()}"


def _announcement(tag: str | None, key: str) -> bytes:
    announced = AnnouncedKey(unique_key=key, tag=tag, committed_at_ms=1_763_716_000_000)
    return encode_announcement(
        Announcement(environment="production", topic="ORDERS", producer_group="order-service", keys=(announced,))
    )


def _text(value: str | None) -> str:
    return quote(value, safe="") if value else "-"
