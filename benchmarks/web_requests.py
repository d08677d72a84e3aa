"""What the worst request costs that is read at all: processor time of it, as a ratio to an ordinary one's.

Whatever is read before anybody is let in is read for strangers, and on the one event loop. So each bound is filled: a
query of 500 names in 16 KiB, 100 headers, 8 KiB of cookies in the form that is dearest to read, a path, the form of a
login with 10,000 fields in 32 KiB. The ordinary one is what a browser sends for the page of the login. All go through
the whole application, without a socket; the cheapest round of each counts. Fails unless each stays below its limit.

    python -m benchmarks.web_requests [--requests 20] [--rounds 15]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.load.figures import at_most, report
from reconciler.clock import SystemClock
from reconciler.settings.file import load_settings
from reconciler.web.application import (
    COOKIE_BYTES_MAX,
    HEADERS_MAX,
    QUERY_BYTES_MAX,
    QUERY_FIELDS_MAX,
    STRANGERS_BODY_BYTES_MAX,
    build_application,
)
from reconciler.web.exchange import FIELDS_MAX, FORM
from reconciler.web.services import build_services
from reconciler.wiring.connections import Connections

ROOT = Path(__file__).parents[1]
#: Of a request without a body to the ordinary one.
RATIO_MAX = 10.0
#: Of the largest form, which a thread reads, to the ordinary one.
FORM_RATIO_MAX = 20.0
Headers = list[tuple[bytes, bytes]]
#: What a browser sends.
ORDINARY: Headers = [
    (b"host", b"127.0.0.1:8378"),
    (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (b"accept-language", b"en-US,en;q=0.5"),
    (b"accept-encoding", b"gzip, deflate, br"),
    (b"cookie", b"reconciler-production=" + b"a" * 43),
    (b"sec-fetch-site", b"same-origin"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstRequest:
    """One request."""

    path: str = "/login"
    query: bytes = b""
    headers: Headers
    body: bytes = b""


def candidates() -> Mapping[str, WorstRequest]:
    """Each fills one bound; `all` fills those of a request without a body together."""
    name_bytes = QUERY_BYTES_MAX // QUERY_FIELDS_MAX - 1
    names = b"&".join((b"%%41%d" % number).ljust(name_bytes, b"+") for number in range(QUERY_FIELDS_MAX))
    many: Headers = [(b"x-%d" % number, b"1" * 200) for number in range(HEADERS_MAX - len(ORDINARY))]
    cookies = b'a="' + b"\\" * (COOKIE_BYTES_MAX - 50) + b'"'
    others = [one for one in ORDINARY if one[0] != b"cookie"]
    form = b"&".join([b"a="] * (FIELDS_MAX - 1)) + b"&b="
    form += b"%41" * ((STRANGERS_BODY_BYTES_MAX - len(form)) // 3)
    typed = [*ORDINARY, (b"content-type", FORM.encode()), (b"content-length", b"%d" % len(form))]
    return {
        "query": WorstRequest(query=names, headers=ORDINARY),
        "headers": WorstRequest(headers=[*ORDINARY, *many]),
        "cookies": WorstRequest(headers=[*others, (b"cookie", cookies)]),
        "many cookies": WorstRequest(headers=[*others, (b"cookie", b"a;" * (COOKIE_BYTES_MAX // 2 - 1))]),
        "path": WorstRequest(path="/messages" + "/" * 30_000, headers=ORDINARY),
        "all": WorstRequest(path="/" * 30_000, query=names, headers=[*others, (b"cookie", cookies), *many]),
        "form": WorstRequest(headers=typed, body=form),
    }


async def ask(application: Any, asked: WorstRequest) -> int:
    """The status of the answer."""
    answered: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": asked.body, "more_body": False}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answered.append(message["status"])

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST" if asked.body else "GET",
        "scheme": "http",
        "path": asked.path,
        "raw_path": asked.path.encode(),
        "root_path": "",
        "query_string": asked.query,
        "headers": asked.headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8378),
        "state": {},
    }
    await application(scope, receive, send)
    return answered[0]


async def cheapest_round(application: Any, asked: WorstRequest, *, requests: int, rounds: int) -> float:
    """Processor time of one request, in seconds; threads included."""
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(requests):
            status = await ask(application, asked)
            assert status not in {413, 414, 431, 500}, f"{status}: this one is not legal"
        found.append((time.process_time() - began) / requests)
    return min(found)


async def measured(application: Any, options: argparse.Namespace) -> dict[str, float]:
    """Candidate -> seconds, `ordinary` among them."""
    asked = {"ordinary": WorstRequest(headers=ORDINARY), **candidates()}
    times = {"requests": options.requests, "rounds": options.rounds}
    return {name: await cheapest_round(application, one, **times) for name, one in asked.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=20, help="of a round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    clock = SystemClock()
    with TemporaryDirectory() as folder:
        users = Path(folder) / "users.json"
        users.write_text('{"schema_version": 1}')
        variables = {
            "RECONCILER_LEDGER__URL": f"sqlite:///{folder}/none.db",
            "RECONCILER_WEB__USERS_FILE": str(users),
        }
        settings = load_settings(ROOT / "config" / "reconciler.toml", variables)
        with Connections(settings, clock=clock) as connections:
            application = build_application(build_services(settings, connections, clock=clock))
            seconds = asyncio.run(measured(application, options))
    ordinary = seconds["ordinary"]
    ratios = {name: round(found / ordinary, 2) for name, found in seconds.items() if name != "ordinary"}
    bare = {name: ratio for name, ratio in ratios.items() if name != "form"}
    worst = max(bare, key=lambda name: bare[name])
    goals = [
        at_most(f"worst request without a body ({worst}), of the ordinary one", bare[worst], RATIO_MAX),
        at_most("largest form of a stranger, of the ordinary request", ratios["form"], FORM_RATIO_MAX),
    ]
    figures = {"ordinary_microseconds": round(ordinary * 1e6), "ratios": ratios}
    return report("web_requests", figures, goals, options.out)


if __name__ == "__main__":
    sys.exit(main())
