"""Files that only the server should read."""

from __future__ import annotations

import logging
from pathlib import Path

logger = logging.getLogger(__name__)


def warn_if_open(path: Path) -> None:
    """Logs a warning if every login of this machine may read or change the file."""
    if path.stat().st_mode & 0o007:
        logger.warning("web_file_open: every login of this machine may read or change %s: chmod o= %s", path, path)
