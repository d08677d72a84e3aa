"""Keys as codes: equal exactly where the bytes are equal, for any bytes."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.audit.evidence.key_columns import lengths_seen, prefixes_of
from reconciler.audit.judge import keys as kernel_keys
from reconciler.audit.judge.keys import KeyCodes, KeyLayout, prefixes_of_words
from reconciler.contract.history_row import PREFIXES

KEYS = st.lists(st.binary(min_size=1, max_size=33), max_size=60)


def codes_of(batches: list[list[bytes]]) -> tuple[list[list[int]], KeyCodes, KeyLayout]:
    arrays = [pa.array(batch, pa.binary()) for batch in batches]
    layout = KeyLayout(lengths_seen(arrays))
    index = KeyCodes(layout.width)
    return [index.add(layout.words(array)).tolist() for array in arrays], index, layout


@given(st.lists(KEYS, max_size=4))
def test_codes_are_those_of_a_dictionary(batches: list[list[bytes]]) -> None:
    codes, index, layout = codes_of(batches)
    flat = [(key, code) for batch, of in zip(batches, codes, strict=True) for key, code in zip(batch, of, strict=True)]
    by_key = dict(flat)
    assert all(by_key[key] == code for key, code in flat)
    assert sorted(by_key.values()) == list(range(len(index)))
    assert layout.key_bytes(index.words) == sorted(by_key, key=lambda key: by_key[key])


@given(KEYS)
def test_ordered_words_sort_as_the_bytes_do(keys: list[bytes]) -> None:
    array = pa.array(keys, pa.binary())
    layout = KeyLayout(lengths_seen([array]))
    order = np.lexsort([*reversed(layout.ordered(layout.words(array)))])
    assert [keys[place] for place in order] == sorted(keys)


@given(KEYS)
def test_prefixes_are_those_of_zlibs_checksums(keys: list[bytes]) -> None:
    array = pa.array(keys, pa.binary())
    layout = KeyLayout(lengths_seen([array]))
    expected = [zlib.crc32(key) % PREFIXES for key in keys]
    assert prefixes_of(array).tolist() == expected
    assert prefixes_of_words(layout, layout.words(array)).tolist() == expected


@pytest.mark.parametrize("length", [16, 17, 28, 32])
def test_trailing_nuls_and_every_byte_value_tell_keys_apart(length: int) -> None:
    keys = [bytes([value]) * length for value in range(256)]
    keys += [b"\x01" * place + b"\x00" * (length - place) for place in range(1, length)]
    codes, index, _ = codes_of([keys, list(reversed(keys))])
    assert len(index) == len(set(keys)) == len(keys)
    assert codes[0] == list(reversed(codes[1]))


def test_a_key_is_not_the_shorter_key_plus_a_nul() -> None:
    codes, index, _ = codes_of([[b"k" * 16, b"k" * 16 + b"\x00"]])
    assert len(index) == 2
    assert codes == [[0, 1]]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary(17)])
def test_other_binary_types_and_slices_give_the_same_words(kind: pa.DataType) -> None:
    keys = [number.to_bytes(17, "little") for number in range(40)]
    layout = KeyLayout((17,))
    expected = layout.words(pa.array(keys, pa.binary()))
    assert (layout.words(pa.array(keys, kind)) == expected).all()
    assert (layout.words(pa.array(keys, kind).slice(7, 20)) == expected[7:27]).all()


def test_a_hash_that_always_collides_costs_time_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_keys, "hash_of", lambda words: np.full(len(words), 7, np.uint64))
    keys = [number.to_bytes(16, "big") for number in range(300)]
    codes, index, layout = codes_of([keys[:200] * 2, keys[100:] * 2])
    assert len(index) == 300
    assert codes[0] == [*range(200)] * 2
    assert codes[1] == [*range(100, 300)] * 2
    assert layout.key_bytes(index.words) == keys
