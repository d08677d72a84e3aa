"""Writes to standard output and standard error. If the disk of an output is full, the exit code stays right.

On a full disk, Python would end with exit code 1, which means violations, or with 120.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from reconciler.contract.visible_text import visible, visible_json, visible_line

#: Version of the JSON of every command.
SCHEMA_VERSION = 1


def remark(text: str) -> None:
    """Writes lines for people to standard error. The lines are lost if standard error cannot be written."""
    try:
        sys.stderr.write(f"{visible_line(text)}\n")
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def answer(text: str) -> bool:
    """Writes the answer to standard output. False: a part of the answer was not written, and standard error says so."""
    try:
        sys.stdout.write(visible(text))
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        remark(f"reconciler: no answer (engine): standard output cannot be written: {error.strerror or error}\n")
        return False
    return True


def lines(parts: Iterable[str]) -> str:
    """Makes an answer for people, one line per part. Line breaks inside of a part are made visible."""
    return "".join(f"{visible_line(part)}\n" for part in parts)


def json_line(document: Mapping[str, Any]) -> str:
    """Writes one object on one line."""
    return visible_json(json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False)) + "\n"


def no_answer(reason: str, message: str) -> dict[str, Any]:
    """Makes the JSON object of an audit that judged nothing (docs/reference/audit.md)."""
    return {
        "verdict": "no answer",
        "reason": reason,
        "message": message,
        "classes": {},
        "violations": 0,
        "gaps": 0,
        "not_judged": 0,
        "rows": 0,
        "seconds": 0.0,
        "engine": None,
    }


def _give_up(stream: TextIO) -> None:
    """Discards buffered text. Python would try to write the text again at exit, fail, and end with exit code 120."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
