"""Every address of the console, from the table of routes: a page that is new is among them by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from urllib.parse import quote

from reconciler.web.routes import ROUTES, Surface

_PLACE = re.compile(r"{(\w+)}")


def paths_of_pages(samples: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """(name of the route, path below the prefix) of each GET of a page; parts of pages and redirects, too, files not.

    `samples`: place in a path -> what stands there, each in turn. Raises KeyError for a place without any.
    """
    for route in ROUTES:
        if route.surface is not Surface.PAGE or route.method != "GET" or route.name == "static":
            continue
        places = _PLACE.findall(route.path)
        for values in product(*(samples[place] for place in places)):
            path = route.path
            for place, value in zip(places, values, strict=True):
                path = path.replace(f"{{{place}}}", quote(value, safe=""))
            yield route.name, path
