"""Writes the audit as two files for spark-submit: a zip for --py-files, and the script to run.

The zip holds every module of this project that an audit loads. Only the driver reads settings. So of the settings the
zip holds only the parsing.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import reconciler
from reconciler.audit.errors import unwritable

ZIP_NAME = "reconciler_audit.zip"
SCRIPT_NAME = "reconciler_audit.py"
_FOLDERS = ("audit", "contract", "words")
_FILES = (
    "__init__.py",
    "clock.py",
    "errors.py",
    "settings/__init__.py",
    "settings/file.py",
    "settings/secret_settings.py",
)
#: Constant time of the files in the zip, so that the same code makes the same bytes.
_TIME = (2020, 1, 1, 0, 0, 0)
_SCRIPT = '''"""Driver of `spark-submit --py-files reconciler_audit.zip reconciler_audit.py audit ...`."""

import sys

from reconciler.audit.__main__ import run

if __name__ == "__main__":
    sys.exit(run())
'''


def write_package(folder: Path) -> tuple[Path, Path]:
    """Writes zip and script, and returns both paths. Raises AuditError if the folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / SCRIPT_NAME
        script.write_text(_SCRIPT, encoding="utf-8")
        return write_zip(folder / ZIP_NAME), script
    except OSError as error:
        raise unwritable(str(folder), error) from error


def write_zip(path: Path) -> Path:
    """Writes the package in the form that Spark's executors import."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _entries():
            archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED)
    return path


def _entries() -> Iterator[tuple[str, bytes]]:
    # Code that runs from such a zip cannot write another zip, and need not do so.
    root = Path(str(reconciler.__file__)).parent
    for name in _FILES:
        yield f"reconciler/{name}", (root / name).read_bytes()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"reconciler/{path.relative_to(root).as_posix()}", path.read_bytes()
