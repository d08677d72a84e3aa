"""Standard output and standard error, which may be files on a full disk: neither makes the exit code a wrong one.

Python by itself would end with 1, which means violations, or with 120.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TextIO

from reconciler.contract.visible_text import visible, visible_json, visible_line

#: The same number as in every command's JSON.
SCHEMA_VERSION = 1


def remark(text: str) -> None:
    """Lines for people, on standard error; lost where it cannot be written."""
    try:
        sys.stderr.write(f"{visible_line(text)}\n")
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def answer(text: str) -> bool:
    """The answer, on standard output; False where not all of it could be written, and standard error says so."""
    try:
        sys.stdout.write(visible(text))
        sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout)
        remark(f"reconciler: no answer (engine): standard output cannot be written: {error.strerror or error}\n")
        return False
    return True


def lines(parts: Iterable[str]) -> str:
    """An answer for people, in which each part stays one line: line breaks inside of it are made visible."""
    return "".join(f"{visible_line(part)}\n" for part in parts)


def json_line(document: Mapping[str, Any]) -> str:
    """One object on one line."""
    return visible_json(json.dumps({"schema_version": SCHEMA_VERSION, **document}, ensure_ascii=False)) + "\n"


def no_answer(reason: str, message: str) -> dict[str, Any]:
    """The JSON object of an audit that judged nothing (docs/reference/audit.md)."""
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
    """Discards buffered text: at its end Python would try to write it again, fail, and exit with 120."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
