"""Where Python finds the packages of a checkout, for processes that are started without an installation."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]


def import_path(checkout: Path = ROOT) -> str:
    """The value of PYTHONPATH: the checkout, and the folders that its plug-ins lie in."""
    homes = [checkout / top for top in ("producers", "consumers")]
    return os.pathsep.join(
        map(str, [checkout, *(home for home in homes if (home / f"checkback_{home.name}").is_dir())])
    )
