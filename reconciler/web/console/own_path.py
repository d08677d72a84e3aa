"""The path to which a page leads when a request names the path."""

from __future__ import annotations

import re

#: A path below the prefix, with its query. `//host` and `/\\host` do not match, because browsers take them for another
#: site.
_OWN_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@%?-][A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?")
_CHARACTERS_MAX = 2_000


def own_path(wanted: str) -> str:
    """Returns a path of this console. If the wanted path could lead elsewhere, returns the path of the overview."""
    return wanted if len(wanted) <= _CHARACTERS_MAX and _OWN_PATH.fullmatch(wanted) else "/"
