"""OUT as a folder.

One audit at a time claims OUT, writes beside OUT, and puts the result in the place of OUT in one step. A run that dies
leaves the older output or no output, never an incomplete output. The next run removes the unfinished files.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.audit.errors import AuditError, unwritable
from reconciler.audit.output.lock import locked
from reconciler.audit.result.documents import RESULT_KIND

#: Flag of Linux's renameat2(2), since 3.15, that swaps two names in one step.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@dataclass(frozen=True, slots=True)
class ClaimedOutput:
    """OUT while only this process may write it."""

    path: Path

    @property
    def partial_prefix(self) -> str:
        """Beginning of the names of unfinished outputs beside OUT."""
        return f".{self.path.name}.partial-"


@contextmanager
def claim_output(out: Path | str) -> Iterator[ClaimedOutput]:
    """Claims OUT for this process, until the block ends or the process dies.

    The claim comes before the long work, so that a foreign folder or a second audit is refused at once. Raises
    AuditError("usage") if OUT holds something else, or if another audit is writing OUT. Raises AuditError("engine") for
    a full disk.
    """
    path = Path(os.path.abspath(out))
    _refuse_what_is_no_output(path)
    with ExitStack() as held:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            another = "another audit is writing it; wait for it to end, or name another folder"
            held.enter_context(locked(path.parent / f".{path.name}.lock", f"--out {path}: {another}"))
        except OSError as error:
            raise unwritable(f"--out {out}", error) from error
        claimed = ClaimedOutput(path)
        _refuse_what_is_no_output(path)  # again, because OUT may have changed before the lock was ours
        for rest in path.parent.glob(f"{_escaped(claimed.partial_prefix)}*"):
            shutil.rmtree(rest, ignore_errors=True)
        yield claimed


@dataclass(slots=True)
class OutputDraft:
    """Unfinished output. The names of files are relative to the draft's folder, with "/"."""

    folder: Path
    _files: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def write(self, name: str, data: bytes) -> None:
        """Writes one whole file."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
        self._files[name] = {"path": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    def described(self) -> list[Mapping[str, Any]]:
        """Lists path, bytes and SHA-256 of every file that was written so far, sorted by path."""
        return [self._files[name] for name in sorted(self._files)]

    def sync(self) -> None:
        """Syncs every byte and name to the disk. Moved evidence is synced, too."""
        for folder, _, names in os.walk(self.folder, topdown=False):
            for name in names:
                _sync(Path(folder) / name, os.O_RDONLY)
            _sync(Path(folder), os.O_RDONLY | os.O_DIRECTORY)


@contextmanager
def drafted_output(claimed: ClaimedOutput) -> Iterator[OutputDraft]:
    """Makes a draft beside OUT. At the regular end of the block the draft is made durable and replaces OUT.

    After an error the draft is removed, and the older output stays. Raises AuditError("engine") for errors of the disk.
    """
    out = claimed.path
    draft: OutputDraft | None = None
    try:
        draft = OutputDraft(Path(tempfile.mkdtemp(prefix=claimed.partial_prefix, dir=out.parent)))
        draft.folder.chmod(0o755)
        yield draft
        draft.sync()
        _take_the_place(draft.folder, out)
        _sync(out.parent, os.O_RDONLY | os.O_DIRECTORY)
    except BaseException as error:
        if draft is not None:
            shutil.rmtree(draft.folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise AuditError(
                "engine", f"cannot write {out}: {error.strerror or error}; mend it and run again: nothing new was kept"
            ) from error
        raise


def _refuse_what_is_no_output(path: Path) -> None:
    remedy = "name a folder that is new, empty, or an older audit's output"
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not path.is_dir():
        raise AuditError("usage", f"--out {path}: it is no folder; {remedy}")
    try:
        if not any(path.iterdir()):
            return
        document = json.loads((path / "result.json").read_bytes())
    except (OSError, ValueError):
        document = None
    if not isinstance(document, dict) or document.get("kind") != RESULT_KIND:
        raise AuditError("usage", f"--out {path}: it holds something that is no audit's output; {remedy}")


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_the_place(partial: Path, out: Path) -> None:
    """Puts `partial` in the place of OUT and removes an older OUT.

    Readers see either the older or the new OUT, never a mixture.
    """
    if not out.exists():
        partial.rename(out)
        return
    if _exchange(partial, out):
        shutil.rmtree(partial, ignore_errors=True)
        return
    # On a file system without an exchange, OUT is missing for a moment. OUT is never incomplete.
    older = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    out.rename(older / "older")
    partial.rename(out)
    shutil.rmtree(older, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names. False: the system or the file system cannot exchange names."""
    try:
        rename: Any = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code))


def _escaped(text: str) -> str:
    """Escapes a text for Path.glob, so that brackets and stars in a folder's name are no pattern."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in text)
