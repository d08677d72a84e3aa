"""Errors from reading files of exports and of the history. Some of these errors may be gone at the next reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from reconciler.audit.errors import AuditError, SourceAwayError


@contextmanager
def reading_files(named: str, place: str, what: str = "cannot be read") -> Iterator[None]:
    """Translates errors of the block to AuditError.

    Raises SourceAwayError if an object store, or a file system of other hosts, does not answer.
    Raises AuditError("inputs") if a file is missing or damaged, or if a disk of this host fails.
    `named` is the option with the place that it names, without secrets.
    """
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"{named}: {what}: {error}"
        is_remote = "://" in place and not place.startswith("file:")
        if is_remote and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise SourceAwayError(named, message) from error
        raise AuditError("inputs", message) from error
