"""What `reconciler doctor` says about the folders of the history."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reconciler.commands.diagnosis import Diagnosis, as_told
from reconciler.commands.doctor.areas import area
from reconciler.contract.facts import Code, Fact, Field
from reconciler.settings.schema import Settings
from reconciler.wiring.history import history_folders, read_overview
from reconciler.wiring.subscriptions import subscription_of

HISTORY_SPOOL = Code("doctor.history-spool")
HISTORY_MANIFEST = Code("doctor.history-manifest")
HISTORY_NOT_WRITTEN = Code("doctor.history-not-written")
SET_HISTORY_PATH = Code("doctor.set-history-path")
FOLDER_WRITABLE = Code("doctor.folder-writable", folder=Field.NAME)
FOLDER_UNWRITABLE = Code("doctor.folder-unwritable", folder=Field.NAME, why=Field.TEXT)
GIVE_FOLDER = Code("doctor.give-folder")
MAKE_ROOM = Code("doctor.make-room")
HISTORY_ENTRIES = Code("doctor.history-entries", entries=Field.NUMBER, files=Field.NUMBER, rows=Field.NUMBER)
KEEP_HISTORY_FOLDER = Code("doctor.keep-history-folder")

#: Size of the temporary file that tests whether the disk has room. A few rounds need as much.
ROOM_BYTES = 1024**2
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def check_history_folders(settings: Settings) -> Sequence[Diagnosis]:
    """Checks whether the history can be written to its folder, and what the manifest says about the history."""
    check = area("history")
    if settings.history.path is None:
        return [Diagnosis(check=check, level="note", found=HISTORY_NOT_WRITTEN(), remedy=SET_HISTORY_PATH())]
    root, spool = history_folders(settings)
    findings = [_folder(check, root), _folder(HISTORY_SPOOL(), spool)]
    overview, problem = read_overview(settings, [subscription_of(settings, s) for s in settings.subscriptions])
    problems = [problem] if problem is not None else list(overview.problems if overview is not None else ())
    manifest = HISTORY_MANIFEST()
    if problems:
        told = as_told("; ".join(problems[:3]))
        findings.append(Diagnosis(check=manifest, level="fail", found=told, remedy=KEEP_HISTORY_FOLDER()))
    elif overview is not None:
        entries = HISTORY_ENTRIES(entries=overview.entries, files=overview.files, rows=overview.rows)
        findings.append(Diagnosis(check=manifest, level="ok", found=entries))
    return findings


def _folder(check: Fact, folder: Path) -> Diagnosis:
    """Checks whether the folder can be written and has room.

    The check writes a temporary file with two names into the nearest existing folder.
    """
    try:
        # A link into nothing counts: nobody can make a folder under its name.
        existing = next(f for f in (folder, *folder.parents) if f.is_symlink() or f.exists())
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-") as file:
            other = Path(f"{file.name}.link")
            os.link(file.name, other)
            other.unlink()
            file.write(os.urandom(ROOM_BYTES))  # zeros may need no room
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        found = FOLDER_UNWRITABLE(folder=str(folder), why=error.strerror or str(error))
        remedy = MAKE_ROOM() if error.errno in _NO_ROOM else GIVE_FOLDER()
        return Diagnosis(check=check, level="fail", found=found, remedy=remedy)
    return Diagnosis(check=check, level="ok", found=FOLDER_WRITABLE(folder=str(folder)))
