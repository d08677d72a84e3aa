"""Names what was altered: the rows of a file by their signed checksums, the fields of a statement by its outputs."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedIOBase
from typing import Any

import numpy as np

from reconciler.audit.statement.checksums import Checksums, Rows, json_leaves, marks_of, rows_of
from reconciler.audit.statement.confined import suspect_json
from reconciler.audit.statement.verification import VerifyReport

#: Rows of one file that are named; more are counted.
ROWS_NAMED_MAX = 20
#: Rows of a larger file are not named: it is in memory while they are.
NAMED_BYTES_MAX = 512 * 1024**2

_Named = Iterator[tuple[str, str]]
#: Marks of keys (checksums.py) -> the keys, in hex, that have them in other files; those that nobody has are left out.
FindKeys = Callable[[frozenset[int]], Mapping[int, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class SignedRows:
    """Checksums of one file's rows, and whether their upper halves are marks of keys."""

    words: Checksums
    has_marks: bool = False


@dataclass(frozen=True, slots=True)
class SignedChecksums:
    """row-checksums.bin and its index, both found to be as signed."""

    words: Checksums
    #: (where, path) -> first row, count, and whether the checksums hold marks.
    places: Mapping[tuple[str, str], tuple[int, int, bool]]

    def of(self, where: str, path: str) -> SignedRows | None:
        """The file's checksums; None if none were kept."""
        place = self.places.get((where, path))
        return None if place is None else SignedRows(self.words[place[0] : place[0] + place[1]], place[2])


def read_checksums(binary: BufferedIOBase, index: bytes) -> SignedChecksums:
    """Maps the file, which has 8 bytes for every row that was judged. Raises ValueError, KeyError, TypeError,
    ArithmeticError, OSError for a bad index."""
    places = {
        (str(one["where"]), str(one["path"])): (int(one["offset"]), int(one["rows"]), bool(one.get("marks")))
        for one in suspect_json(index)
    }
    if sum(rows for _, rows, _ in places.values()) * 8 != os.fstat(binary.fileno()).st_size:
        raise ValueError("the index does not fit the checksums")
    words: Checksums = np.memmap(binary, dtype="<u8", mode="r")
    return SignedChecksums(words, places)


def tell_altered(
    report: VerifyReport,
    shown: str,
    path: str,
    read: Callable[[str, int], bytes],
    signed: SignedRows | None,
    find_keys: FindKeys | None = None,
) -> None:
    """Adds what is known of a file whose SHA-256 is not the signed one. `read`: bytes of a path, up to a bound."""
    try:
        data = read(path, NAMED_BYTES_MAX)
    except FileNotFoundError:
        report.differ(shown, "missing")
    except OSError as error:
        report.differ(shown, error.strerror or str(error))
    else:
        for row, message in altered_rows(path, data, signed, find_keys):
            report.differ(shown, message, row)


def altered_rows(path: str, data: bytes, signed: SignedRows | None, find_keys: FindKeys | None = None) -> _Named:
    """(row, what happened) of a file whose SHA-256 is not the signed one; ("", why) where no row can be named.

    `find_keys` looks for the keys of rows that are gone.
    """
    if signed is None:
        yield "", "altered; its rows cannot be named, since no checksums were kept of it"
        return
    try:
        rows = rows_of(path, data, marks=signed.has_marks)
        if len(rows.checksums) == len(signed.words):
            found = list(_same_count(rows, signed.words))
        else:
            found = list(_other_count(rows, signed, find_keys))
    except Exception as error:  # noqa: BLE001 - a broken file makes its reader raise anything; it is told, not hidden
        yield "", f"altered, and cannot be read any more: {str(error)[:200].strip()}"
        return
    if not found:
        yield "", f"altered in its layout or metadata; its {len(signed.words)} rows are equal"
        return
    yield from found[:ROWS_NAMED_MAX]
    if len(found) > ROWS_NAMED_MAX:
        yield "", f"altered in {len(found) - ROWS_NAMED_MAX} more rows"


def _same_count(rows: Rows, signed: Checksums) -> _Named:
    changed = np.flatnonzero(rows.checksums != signed)
    for number, index in enumerate(changed):
        yield (rows.name(int(index)) if number < ROWS_NAMED_MAX else ""), "altered"


def _other_count(rows: Rows, signed: SignedRows, find_keys: FindKeys | None) -> _Named:
    """Rows that came or went. Of a row that went the place is known, and a mark by which other files know its key."""
    added, removed = _surplus(rows.checksums, signed.words), _surplus(signed.words, rows.checksums)
    keys = _keys_of(signed, removed[:ROWS_NAMED_MAX], find_keys)
    for number, index in enumerate(added):
        yield (rows.name(index) if number < ROWS_NAMED_MAX else ""), "added or altered"
    # The rows before it that are still there are as many as before, if nothing was added before it.
    for number, index in enumerate(removed):
        before = index - number - 1 + sum(1 for one in added if one <= index - number)
        neighbour = ""
        if number < ROWS_NAMED_MAX and 0 <= before < len(rows.checksums):
            neighbour = f", which followed {rows.name(before)}"
        yield f"row {index + 1} of the signed file{keys.get(index, '')}{neighbour}", "missing or altered"


def _keys_of(signed: SignedRows, removed: Sequence[int], find_keys: FindKeys | None) -> Mapping[int, str]:
    """By row: its key as the message says it."""
    if not signed.has_marks or find_keys is None or not removed:
        return {}
    marks = {index: int(marks_of(signed.words[index : index + 1])[0]) for index in removed}
    known = find_keys(frozenset(marks.values()))
    nowhere = ", whose key is in no other file of the evidence"
    return {index: f", key {' or '.join(known[mark])}" if known.get(mark) else nowhere for index, mark in marks.items()}


def _surplus(many: Checksums, few: Checksums) -> list[int]:
    """Indexes of the rows of `many` that `few` has not as often, the last ones of equal rows."""
    # Only rows that differ in number matter: in big files nearly all cancel out at once.
    suspects = np.flatnonzero(~np.isin(many, few))
    if len(suspects) >= len(many) - len(few) and len(np.unique(many)) == len(many):
        return [int(index) for index in suspects]
    left = Counter(few.tolist())
    found: list[int] = []
    for index, word in enumerate(many.tolist()):
        if left[word] > 0:
            left[word] -= 1
        else:
            found.append(index)
    return found


def altered_fields(written: Mapping[str, Any], expected: Mapping[str, Any]) -> _Named:
    """(path, what it says and should say) of every value in which two documents differ."""
    have, want = dict(json_leaves(written)), dict(json_leaves(expected))
    for path in sorted(have.keys() | want.keys()):
        if path not in want:
            yield path, f"says {_shown(have[path])}, which the outputs do not say"
        elif path not in have:
            yield path, f"is missing; the outputs say {_shown(want[path])}"
        elif have[path] != want[path] or type(have[path]) is not type(want[path]):
            yield path, f"says {_shown(have[path])}, the outputs say {_shown(want[path])}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
