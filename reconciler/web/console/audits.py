"""Pages of audits. They show which days have a statement, what each statement says, whether its signature is valid, and
its report."""

from __future__ import annotations

import re
import shlex
from calendar import Calendar
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus

from reconciler.errors import DependencyAway, InvalidValue
from reconciler.web.audits.days import AuditCalendar, calendar_of
from reconciler.web.audits.folder import LINK
from reconciler.web.audits.found import find_audit
from reconciler.web.console.rendering import page
from reconciler.web.exchange import HTML, WebRefusal, WebRequest, WebResponse
from reconciler.web.few_at_once import few_at_once
from reconciler.web.services import WebServices

ROWS_A_PAGE = 50
#: Maximum number of statements of one audit on its page. A smaller limit holds for differences and for remarks. The API
#: has more.
STATEMENTS_SHOWN_MAX = 100
LINES_SHOWN_MAX = 40
#: Months whose previous and next months are also in the calendar.
_MONTH = re.compile(r"(?:19[7-9][0-9]|2[0-9]{3})-(?:0[1-9]|1[0-2])")
_PAGE = re.compile(r"[0-9]{1,4}")
#: A report is a file of another program. It runs no script, sends no form, loads nothing, and belongs to no site.
REPORT_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def show_all(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows one sentence, the days of a month, and one row per audit. `part=now`: only the part that changes during
    verification."""
    template = "audits_now.html" if request.asked("part") == "now" else "audits.html"
    if services.audits is None:
        return page(services, request, template, is_set=False, problem="", is_waiting=False)
    look = services.audits.look()
    if look.problem:
        return page(services, request, template, is_set=True, problem=look.problem, is_waiting=False)
    checks = services.audits.checks(look.entries)
    audits = list(zip(look.entries, checks, strict=True))
    today = datetime.fromtimestamp(services.clock.now_ms() / 1000, tz=UTC).date()
    found = calendar_of(
        # A link to the newest audit is not counted as an unverified audit.
        ((entry.name, check) for entry, check in audits if entry.problem != LINK),
        environment=services.settings.environment,
        configured={(one.topic, one.group) for one in services.settings.subscriptions},
        today=today,
    )
    chosen = _month(request, found, today)
    number = _page_number(request, len(audits))
    return page(
        services,
        request,
        template,
        is_set=True,
        problem="",
        found=found,
        is_waiting=bool(found.waiting),
        folder=services.audits.folder,
        left_out=look.left_out,
        weeks=Calendar().monthdatescalendar(chosen.year, chosen.month),
        month=chosen,
        months=_neighbours(chosen),
        missing=frozenset(found.missing),
        rows=audits[number * ROWS_A_PAGE : (number + 1) * ROWS_A_PAGE],
        of=len(audits),
        number=number,
        pages=_pages(len(audits)),
        is_addressable=is_addressable,
    )


def show_one(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the contents of an audit's statements, their signers, and the differences from the signed digests."""
    shelf, entry, check = find_audit(services.audits, request.parts["name"])
    is_part = request.asked("part") == "now"
    # Statements that a person must read come first.
    statements = sorted(check.statements, key=lambda one: (-one.violations, one.topic, one.group))
    return page(
        services,
        request,
        "audit_now.html" if is_part else "audit.html",
        name=entry.name,
        check=check,
        is_waiting=check.checked_at_ms is None and not entry.problem,
        statements=statements[:STATEMENTS_SHOWN_MAX],
        more_statements=check.more_statements + len(statements[STATEMENTS_SHOWN_MAX:]),
        lines_max=LINES_SHOWN_MAX,
        others=sorted({one.environment for one in check.statements} - {services.settings.environment})[:3],
        command=_command(services, f"{shelf.folder}/{entry.name}"),
    )


@few_at_once(4)
def show_report(services: WebServices, request: WebRequest) -> WebResponse:
    """Shows the signed report as the audit wrote it. Raises WebRefusal if the audit has no such report."""
    shelf, entry, check = find_audit(services.audits, request.parts["name"])
    try:
        body = shelf.report(entry.name, check)
    except OSError as error:
        raise DependencyAway(f"the report cannot be read: {error.strerror}") from error
    if body is None:
        detail = "no signature vouches for a report of this audit, or it is not verified yet"
        raise WebRefusal(HTTPStatus.NOT_FOUND, detail, kind="no-report")
    return WebResponse(content_type=HTML, body=body, headers=REPORT_HEADERS)


def _command(services: WebServices, folder: str) -> str:
    """Returns a command that can be pasted into a shell. Returns an empty text if the shell could not show the name."""
    key = services.settings.web.audits_public_key or ""
    command = shlex.join(["reconciler", "statement", "verify", folder, "--public-key", key])
    return command if command.isprintable() else ""


def is_addressable(name: str) -> bool:
    """Returns True if an address can contain the name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _month(request: WebRequest, found: AuditCalendar, today: date) -> date:
    """Returns the first day of the requested month. Without one, takes the month of the last day that an audit covers,
    or the present month."""
    asked = request.asked("month")
    if asked:
        if not _MONTH.fullmatch(asked):
            raise InvalidValue("month", asked[:20], "a month as 2026-11")
        return date(int(asked[:4]), int(asked[5:]), 1)
    return max((day for day in found.days if day <= today), default=today).replace(day=1)


def _neighbours(month: date) -> Mapping[str, str]:
    """Returns the previous and the next month, in the form that addresses use."""
    after = (month + timedelta(days=31)).replace(day=1)
    before = (month - timedelta(days=1)).replace(day=1)
    return {"before": f"{before:%Y-%m}", "after": f"{after:%Y-%m}"}


def _page_number(request: WebRequest, rows: int) -> int:
    asked = request.asked("page", "1")
    if not _PAGE.fullmatch(asked) or not 1 <= int(asked) <= _pages(rows):
        raise InvalidValue("page", asked[:20], f"a number from 1 to {_pages(rows)}")
    return int(asked) - 1


def _pages(rows: int) -> int:
    return max(1, -(-rows // ROWS_A_PAGE))
