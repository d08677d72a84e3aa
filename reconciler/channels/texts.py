"""The text of a notice in each language, as plain lines. Each channel escapes the lines for its own format.

Topic, group and detail come from outside. This module makes single lines of limited length from topic, group and
detail. Every character of such a line is visible, and clients find no address to link. A channel escapes the characters
that are markup in its format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote
from zoneinfo import ZoneInfo

from reconciler.channels.links import console_link, runbook_link
from reconciler.clock import utc_text
from reconciler.contract.tables import NoticeKind
from reconciler.contract.visible_text import visible
from reconciler.telling.conversations import COUNTED_TROUBLES_MAX, STANDING_TROUBLES_MAX
from reconciler.telling.ports.notices import Notice
from reconciler.words import said, sentences

#: RocketMQ's own limits (TopicValidator and Validators). No name is longer.
TOPIC_CHARACTERS_MAX = 127
GROUP_CHARACTERS_MAX = 160
#: Maximum number of characters of the detail. With this limit, the longest notice fits into 4096 bytes, WeCom's limit,
#: however its characters are escaped.
DETAIL_CHARACTERS_MAX = 200
#: Maximum number of characters of all links together.
LINK_CHARACTERS_MAX = 500
#: Kind of notice -> the page that says what to do first.
RUNBOOKS: Mapping[NoticeKind, str] = {
    NoticeKind.LOSS_PROVED: "docs/runbooks/LostMessages.md",
    NoticeKind.QUARANTINED: "docs/runbooks/Quarantined.md",
    NoticeKind.REPAIR_FAILED: "docs/runbooks/RepairFailing.md",
    NoticeKind.BREAKER_OPEN: "docs/runbooks/BreakerOpen.md",
    NoticeKind.OUTAGE: "docs/runbooks/RedisDown.md",
    NoticeKind.AUDIT_VIOLATION: "docs/reference/audit-classes.md",
    NoticeKind.ROUNDS_STALE: "docs/runbooks/RoundStale.md",
    NoticeKind.ACCOUNTED_UNTIL_STALE: "docs/runbooks/AccountedUntilStale.md",
    NoticeKind.LEDGER_AWAY: "docs/runbooks/AccountedUntilStale.md",
    NoticeKind.BROKER_AWAY: "docs/runbooks/AccountedUntilStale.md",
    NoticeKind.DATABASE_AWAY: "docs/runbooks/AccountedUntilStale.md",
}
#: Texts of which clients make a link: any scheme, and the usual name of a web server.
_SCHEME = re.compile(r":(?=[/\\]{2})|(?<=\bmailto):", re.IGNORECASE)
_WEB = re.compile(r"\b(www)\.", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeText:
    """A notice as plain single lines without markup. A line that does not apply is empty."""

    #: One of LANGUAGES.
    language: str
    title: str
    what: str
    #: "Since: 2026-11-25 03:12:05+08:00", "Topic: ORDERS", ...
    facts: tuple[str, ...]
    next_step: str
    #: "Runbook: docs/runbooks/LostMessages.md", "Notice: 01JDHQZX8M4T6W2C9V3B5N7K1R"
    references: tuple[str, ...]
    #: Links as (label, http(s) URL): the console's page about the notice, and the console's page of its runbook. No
    #: character of a URL ends a link in any format. Empty: there is no console.
    links: Sequence[tuple[str, str]]

    @property
    def lines(self) -> tuple[str, ...]:
        """All lines below the title, without links."""
        return tuple(line for line in (self.what, *self.facts, self.next_step, *self.references) if line)


class NoticeTexts:
    """Makes the texts of notices. Immutable."""

    def __init__(self, language: str, *, zone: str = "UTC", console_url: str | None = None) -> None:
        """`language`: one of LANGUAGES. `zone`: the IANA name of the time zone in notices."""
        self._language = language
        self._texts = sentences(language)
        self._zone = ZoneInfo(zone)
        self._console_url = console_url

    def text(self, key: str, /, **values: object) -> str:
        """Fills the placeholders of one text of the catalogue. Raises KeyError for an unknown key."""
        return self._texts[key].format(**values)

    def of(self, notice: Notice) -> NoticeText:
        """Makes the text of a notice."""
        family = _family(notice)
        title = self.text(f"{family}.title", count=self._count(notice))
        next_step = self._texts.get(f"{family}.next", "")
        return NoticeText(
            language=self._language,
            title=self.text("notice.form.title", environment=self._shown(notice.environment, 64), title=title),
            what=self.text(f"{family}.what"),
            facts=() if notice.is_test else tuple(self._facts(notice)),
            next_step=self.text("notice.form.next", next=next_step) if next_step else "",
            references=tuple(self._references(notice)),
            links=() if notice.is_test else self._links(notice),
        )

    def _runbook(self, kind: NoticeKind) -> str:
        return RUNBOOKS[kind].replace("docs/", self.text("notice.form.docs"), 1)

    def _count(self, notice: Notice) -> str:
        counted = COUNTED_TROUBLES_MAX if notice.kind is NoticeKind.LOSS_PROVED else STANDING_TROUBLES_MAX
        return str(notice.count) if notice.count <= counted else self.text("words.more-than", number=counted)

    def _links(self, notice: Notice) -> Sequence[tuple[str, str]]:
        """Returns links whose lengths together are within the limit. If an address is too long, the console's first
        page replaces it."""
        if self._console_url is None:
            return ()
        page, runbook = console_link(self._console_url, notice), runbook_link(self._console_url, RUNBOOKS[notice.kind])
        labels = (self.text("notice.form.console"), self.text("notice.label.runbook"))
        for links in ((page, runbook), (self._console_url, runbook), (self._console_url,)):
            safe = [safe_link(link) for link in links]
            if sum(map(len, safe)) <= LINK_CHARACTERS_MAX:
                return tuple(zip(labels, safe, strict=False))
        return ()

    def _facts(self, notice: Notice) -> Iterator[str]:
        yield self._fact("notice.label.since", self._moment(notice.since_ms))
        if notice.until_ms is not None:
            until = "notice.label.until" if notice.is_over else "notice.label.accounted_until"
            yield self._fact(until, self._moment(notice.until_ms))
        if notice.kind is NoticeKind.OUTAGE and notice.count > 1:
            yield self._fact("notice.label.outages", self._count(notice))
        detail = notice.detail if notice.cause is None else said(notice.cause, self._language)
        for label, value, longest in (
            ("notice.label.topic", notice.topic or "", TOPIC_CHARACTERS_MAX),
            ("notice.label.group", notice.group or "", GROUP_CHARACTERS_MAX),
            (f"notice.detail.{notice.kind}", detail, DETAIL_CHARACTERS_MAX),
            ("notice.label.business_id", notice.business_id, DETAIL_CHARACTERS_MAX),
        ):
            if shown := self._shown(value, longest):
                yield self._fact(label, shown)

    def _references(self, notice: Notice) -> Iterator[str]:
        if not notice.is_test:
            yield self._fact("notice.label.runbook", self._runbook(notice.kind))
        if shown := self._shown(notice.notice_id, 64):
            yield self._fact("notice.label.notice", shown)

    def _fact(self, label: str, value: str) -> str:
        return self.text("notice.form.fact", label=self._texts[label], value=value)

    def _moment(self, at_ms: int) -> str:
        try:
            seen = datetime.fromtimestamp(at_ms // 1000, tz=UTC).astimezone(self._zone)
        except (OverflowError, ValueError, OSError):
            return utc_text(at_ms)
        return seen.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")

    def _shown(self, text: str, characters_max: int) -> str:
        """Makes one visible line of limited length from a text from outside. The line has no address of which clients
        would make a link."""
        line = " ".join(visible(text[: 2 * characters_max]).split())
        line = _WEB.sub(r"\1[.]", _SCHEME.sub("[:]", line))
        if len(text) <= characters_max and len(line) <= characters_max:
            return line
        return self.text("notice.form.cut", text=line[:characters_max], number=len(text))


def _family(notice: Notice) -> str:
    """Returns the beginning of the keys of a notice's texts."""
    if notice.is_test:
        return "notice.test"
    if notice.kind is NoticeKind.LOSS_PROVED and notice.is_over and notice.count:
        return "notice.settled.LOSS_PROVED"
    if notice.kind is NoticeKind.LOSS_PROVED and not notice.is_over and not notice.count:
        return "notice.goes_on.LOSS_PROVED"
    return f"notice.{'ends' if notice.is_over else 'begins'}.{notice.kind}"


def safe_link(url: str) -> str:
    """Quotes a URL. The result leads to the same place, and none of its characters ends a link of Markdown, mrkdwn or
    HTML."""
    return quote(url, safe=":/?#[]@&=+;,%-._~")
