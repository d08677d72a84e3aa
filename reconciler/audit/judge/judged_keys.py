"""Every judged key of one subscription as Arrow columns, from which tables of keys are made."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from reconciler.audit.judge.facts import NEVER, CodedRows, GroupFacts
from reconciler.audit.judge.keys import Codes, KeyLayout, Longs, Words
from reconciler.audit.judge.rows import NO_NAME, NULL, Flags, Vocabulary
from reconciler.audit.result.classes import BY_NAME, NAMES
from reconciler.contract.unique_key import DIGITS_BYTES_MAX, DIGITS_BYTES_MIN, key_of

#: Type of times. Parquet, Iceberg, Delta and Spark all have its unit.
TIMESTAMP = pa.timestamp("us", tz="UTC")
#: First and last time that readers can show, in the years 1 to 9999. Any other time is damaged evidence.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
#: For each byte, its two hexadecimal characters as one number.
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)
_VIOLATION = np.array([False, *(BY_NAME[name].violation for name in NAMES)])


class KeySink(Protocol):
    """Receiver of the judged keys of a subscription, a piece at a time."""

    def add(self, place: int, keys: pa.Table) -> None:
        """Takes columns that `judged_keys` made. `place` is the subscription's place in the plan. Raises AuditError."""


def judged_keys(
    facts: GroupFacts,
    classes: npt.NDArray[np.uint8],
    candidate: CodedRows,
    words: Words,
    layout: KeyLayout,
    vocabulary: Vocabulary,
) -> pa.Table:
    """Makes one row per key of the window. The rows are not sorted."""
    codes = np.flatnonzero(facts.present)
    numbers = classes[codes]
    committed_at = np.where(facts.committed, facts.created_at, NEVER)[codes]
    applied_at, detected_at = facts.applied_at[codes], facts.repair.created_at[codes]
    effects = facts.effects[codes]
    names = pa.array(["", *NAMES], pa.string())
    return pa.table(
        {
            "key": key_texts(words[codes], layout),
            "class": pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int8()), names),
            "violation": pa.array(_VIOLATION[numbers]),
            "counted_at": timestamps(facts.key_time[codes]),
            "committed_at": timestamps(committed_at),
            "announced_at": timestamps(facts.announced_at[codes]),
            "consumed_at": timestamps(facts.consumed_at[codes]),
            "applied_at": timestamps(applied_at),
            "detected_at": timestamps(detected_at),
            "commit_to_effect_ms": _between(committed_at, np.where(facts.incomplete[codes], NEVER, applied_at)),
            "commit_to_detected_ms": _between(committed_at, detected_at),
            "effects": pa.array(effects, mask=effects == NULL),
            "cause": _causes(candidate, len(facts.present), vocabulary).take(pa.array(codes)),
            "repaired": pa.array(facts.repair.sent[codes]),
        }
    )


def timestamps(times: Longs) -> pa.Array:
    """Converts milliseconds to timestamps. NULL: there is no time, or readers could not show the time."""
    unknown = (times < _FIRST_MS) | (times > _LAST_MS)
    return pa.array(np.where(unknown, 0, times) * 1_000, mask=unknown).cast(TIMESTAMP)


def _between(start: Longs, end: Longs) -> pa.Array:
    """Subtracts times, in milliseconds. The result is below 0 where clocks differ. NULL: a time is not known."""
    unknown: Flags = (start == NEVER) | (end == NEVER)
    return pa.array(np.where(unknown, 0, end) - np.where(unknown, 0, start), mask=unknown)


def _causes(candidate: CodedRows, size: int, vocabulary: Vocabulary) -> pa.Array:
    """Finds for each code the verdict that first meant a loss. This verdict never changes.

    If damaged rows have several verdicts, the first one by name counts.
    """
    verdicts = candidate.rows.names["loss_verdict"]
    rows = np.flatnonzero(verdicts != NO_NAME)
    found: Longs = np.full(size, NEVER, np.int64)
    ranks = vocabulary.ranks()
    np.minimum.at(found, candidate.codes[rows], ranks[verdicts[rows]])
    by_rank = pa.array([vocabulary.name(number) for number in np.argsort(ranks)], pa.string())
    unknown = found == NEVER
    places = pa.array(np.where(unknown, 0, found).astype(np.int32), mask=unknown)
    return pa.DictionaryArray.from_arrays(places, by_rank).cast(pa.string())


def key_texts(words: Words, layout: KeyLayout) -> pa.Array:
    """Writes the unique key of each row of words (contract/unique_key.py). Keys of digits need no Python object."""
    members = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), layout.width * 8)
    if len(layout.lengths) <= 1:
        return _texts(members, layout.lengths[0] if layout.lengths else 0)
    parts: list[pa.Array] = []
    places: list[Codes | npt.NDArray[np.intp]] = []
    for length in layout.lengths:
        rows = np.flatnonzero(words[:, -1] == np.uint64(length))
        parts.append(_texts(members[rows], length))
        places.append(rows)
    order = np.empty(len(words), np.int64)
    order[np.concatenate(places)] = np.arange(len(words))
    return pa.concat_arrays(parts).take(pa.array(order))


def _texts(members: npt.NDArray[np.uint8], length: int) -> pa.Array:
    if not DIGITS_BYTES_MIN <= length <= DIGITS_BYTES_MAX:
        return pa.array([key_of(row[:length].tobytes()) for row in members], pa.string())
    digits = _HEX[members[:, :length]]
    offsets = np.arange(len(members) + 1, dtype=np.int32) * (2 * length)
    return pa.StringArray.from_buffers(len(members), pa.py_buffer(offsets), pa.py_buffer(digits))
