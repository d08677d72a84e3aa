"""Files of exports and of the history: which of the errors that they give may be gone when they are read again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from reconciler.audit.errors import AuditError, SourceAwayError


@contextmanager
def reading_files(named: str, place: str, what: str = "cannot be read") -> Iterator[None]:
    """Raises AuditError for what goes wrong in the block: SourceAwayError where an object store or a file system of
    other hosts does not answer, "inputs" for a file that is missing or damaged, and for a disk of this host.

    `named`: the option and its place, without secrets.
    """
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        message = f"{named}: {what}: {error}"
        is_remote = "://" in place and not place.startswith("file:")
        if is_remote and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise SourceAwayError(named, message) from error
        raise AuditError("inputs", message) from error
