"""Where everything that is read over HTTP is asked for: names of the hostile world stand in the places of the paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode

from reconciler.web.acts.every import TOLD
from reconciler.web.console.assets import asset_path
from reconciler.web.route import Surface, WebRoute
from reconciler.web.routes import ROUTES
from tests.unit.web.audit_cases import HOSTILE_AUDITS
from tests.unit.web.hostile_ledger import ACT_KEY, hostile_name, job_ids
from tests.unit.web.ledger_of_cases import key

_JOBS = [(job_id,) for job_id in (*job_ids().values(), '"><img src=x onerror=alert(1)>\u202e')]
_AUDITS = [(name,) for name in (*HOSTILE_AUDITS, "..")]
_STYLE = tuple(asset_path("console.css").removeprefix("/static/").split("/", 1))
#: Path with places -> what stands in them, in order; each line is one address.
PLACES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "/messages/{name:path}": [(key(1),)],
    "/jobs/{job_id}": _JOBS,
    "/acts/{act}/{key}": [
        *((act, ACT_KEY) for act in TOLD),
        ("repair", "k2"),
        (hostile_name(1), "k1"),
    ],
    "/static/{digest}/{name:path}": [_STYLE],
    "/docs/{page:path}": [("runbooks/BreakerOpen.md",), ("how-to/install.md",), (hostile_name(1),)],
    "/audits/{name}": _AUDITS,
    "/audits/{name}/report": _AUDITS,
    "/api/v1/audits/{name}": _AUDITS,
    "/api/v1/jobs/{job_id}": _JOBS,
    "/api/v1/messages/{name:path}": [(key(1),), (hostile_name(3),), (hostile_name(4),)],
}
_SEARCH = {"topic": hostile_name(5), "group": hostile_name(6), "name": hostile_name(7), "by": hostile_name(8)}
#: Path -> what is asked for beside it; each is a further address.
QUERIES: Mapping[str, Sequence[Mapping[str, str]]] = {
    "/audits": [{"month": "2026-11"}, {"month": "1970-01"}, {"month": "2999-12"}, {"part": "now"}],
    "/losses": [{"loss": "all"}, _SEARCH],
    "/messages": [{"name": hostile_name(number)} for number in (3, 4)],
    "/health": [{"part": "findings"}],
    "/names": [{"keys": ",".join(map(key, range(1, 9)))}],
    f"/messages/{key(1)}": [{"part": "now"}],
    f"/jobs/{job_ids()['RUNNING']}": [{"part": "progress"}],
    "/view/set": [{"zone": "Asia/Shanghai", "back": "/view"}],
    "/login": [{"next": hostile_name(9)}],
    "/api/v1/candidates": [{"limit": "1000"}, {"topic": hostile_name(5), "group": hostile_name(6)}],
}
#: What another page includes, or what is no page.
_PARTS = re.compile(r"/overview/now|/overview/activity|/names.*|/static/.*|/audits/.*/report|.*[?&]part=.*")
_PLACE = re.compile(r"\{\w+(:path)?\}")


def addresses_of(route: WebRoute) -> Iterator[str]:
    """Below the prefix. Raises KeyError for a path whose places have no line in the table."""
    for path in paths_of(route, PLACES):
        yield path
        yield from (f"{path}?{urlencode(query)}" for query in QUERIES.get(path, ()))


def paths_of(route: WebRoute, places: Mapping[str, Sequence[tuple[str, ...]]]) -> Iterator[str]:
    """Below the prefix, with the places filled as in a table such as PLACES. Raises KeyError for a path of no line."""
    for parts in places[route.path] if "{" in route.path else [()]:
        path = route.path
        for place, part in zip(_PLACE.finditer(path), parts, strict=True):
            path = path.replace(place[0], quote(part, safe="/" if place[1] else ""))
        yield path


def addresses(surface: Surface) -> Sequence[str]:
    """Everything that is read."""
    routes = [route for route in ROUTES if (route.surface, route.method) == (surface, "GET")]
    return [address for route in routes for address in addresses_of(route)]


def page_addresses() -> Sequence[str]:
    """Of whole pages: what a browser opens."""
    return [address for address in addresses(Surface.PAGE) if not _PARTS.fullmatch(address)]
