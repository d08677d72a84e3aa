"""Where a page leads to when it was told by a request."""

from __future__ import annotations

import re

#: Below the prefix, with its query. Neither `//host` nor `/\\host`, which browsers take for another site.
_OWN_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@%?-][A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?")
_CHARACTERS_MAX = 2_000


def own_path(wanted: str) -> str:
    """A path of this console; the overview for what could lead anywhere else."""
    return wanted if len(wanted) <= _CHARACTERS_MAX and _OWN_PATH.fullmatch(wanted) else "/"
