"""Files of the history that the reconciler has compacted or retired since an audit. Such files are missing on purpose.

Only some manifest entries are believed: they must follow, link by link, the entry that the statement names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.audit.statement.confined import DOCUMENT_BYTES_MAX, suspect_json
from reconciler.audit.statement.inputs import HISTORY_PREFIX, InputFolder, digest
from reconciler.contract.manifest import entry_name

_ENTRY = re.compile(rf"({HISTORY_PREFIX}manifest/environment=[^/]*)/(\d{{12}})\.json")


def retired_files(listed: Sequence[Mapping[str, Any]], inputs: InputFolder) -> dict[str, str]:
    """Maps a missing history file to the reason for its absence. Raises no error.

    An entry that cannot be read explains no absence.
    """
    gone: dict[str, str] = {}
    heads = [(found, one) for one in listed if (found := _ENTRY.fullmatch(str(one.get("path"))))]
    for found, head in heads:
        folder, sequence, before = found[1], int(found[2]), head.get("sha256")
        while True:
            sequence += 1
            try:
                data = inputs.read(f"{folder}/{entry_name(sequence)}", DOCUMENT_BYTES_MAX)
                entry = suspect_json(data)
            except (OSError, ValueError):
                break
            if not isinstance(entry, dict) or entry.get("previous") != before:
                break
            before = digest(data)
            removed = entry.get("removed")
            for path in removed if isinstance(removed, list) else []:
                why = f"removed by manifest entry {sequence} ({entry.get('action')}) after the audit"
                gone[f"{HISTORY_PREFIX}{path}"] = f"{why}: not compared"
    return gone
