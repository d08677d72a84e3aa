"""What `reconciler doctor` says of the history's folders."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from reconciler.commands.diagnosis import Diagnosis
from reconciler.settings.schema import Settings
from reconciler.wiring.history import history_folders, read_overview
from reconciler.wiring.subscriptions import subscription_of


def check_history_folders(settings: Settings) -> Sequence[Diagnosis]:
    """Whether the history can be written where it is configured, and what its manifest says of itself."""
    if settings.history.path is None:
        return [Diagnosis(check="history", level="note", found="none is written", remedy="set history.path for audits")]
    root, spool = history_folders(settings)
    findings = [_folder("history", root), _folder("history spool", spool)]
    overview, problem = read_overview(settings, [subscription_of(settings, s) for s in settings.subscriptions])
    problems = [problem] if problem is not None else list(overview.problems if overview is not None else ())
    if problems:
        findings.append(
            Diagnosis(
                check="history manifest",
                level="fail",
                found="; ".join(problems[:3]),
                remedy="keep the folder as it is; docs/how-to/history.md says what the lines mean",
            )
        )
    elif overview is not None:
        found = f"{overview.entries} entries, {overview.files} files, {overview.rows} rows"
        findings.append(Diagnosis(check="history manifest", level="ok", found=found))
    return findings


def _folder(check: str, folder: Path) -> Diagnosis:
    """Whether the folder can be written: tries it with two temporary files in the nearest folder that exists."""
    existing = next(f for f in (folder, *folder.parents) if f.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".doctor-") as file:
            other = Path(f"{file.name}.link")
            os.link(file.name, other)
            other.unlink()
    except OSError as error:
        return Diagnosis(
            check=check,
            level="fail",
            found=f"{existing}: {error.strerror}",
            remedy="give `run` a folder that it may write, on a file system with hard links",
        )
    return Diagnosis(check=check, level="ok", found=f"{folder} can be written")
