"""The target of a page when a request names it."""

from __future__ import annotations

import re

#: A path below the prefix, with its query. Neither `//host` nor `/\\host`, which browsers take for another site.
_OWN_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@%?-][A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?")
_CHARACTERS_MAX = 2_000


def own_path(wanted: str) -> str:
    """Returns a path of this console; the overview if the wanted path could lead elsewhere."""
    return wanted if len(wanted) <= _CHARACTERS_MAX and _OWN_PATH.fullmatch(wanted) else "/"
