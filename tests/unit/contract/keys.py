"""Unique keys as clients write them, and keys of both shapes by lot."""

from __future__ import annotations

from hypothesis import strategies as st

from reconciler.contract.unique_key import is_digits, is_unique_key

JAVA = "7F00000100002A9F12AB34CD56EF0001"
#: rocketmq-client-go 2.1.2, primitive.CreateUniqID: the digits behind the process are in lower case.
GO = "0A000001A1B2000000003c5de2a0000b"
#: rocketmq-clients (Rust): MessageIdCodec in lower case.
RUST = "01a4b1c2d3e4f53a7c08f2a4be0000000b"
GRPC = RUST.upper()
OF_CLIENTS = (JAVA, GO, RUST, GRPC)

digits = st.binary(min_size=16, max_size=32).map(lambda data: data.hex().upper())
texts = (
    st.text("0123456789ABCDEFabcdefGHXYZghxyz_-", min_size=16, max_size=64)
    | st.binary(min_size=8, max_size=32).map(bytes.hex)
    | st.text("0123456789ABCDEF", min_size=16, max_size=64)
).filter(lambda key: is_unique_key(key) and not is_digits(key))
KEYS = digits | texts
