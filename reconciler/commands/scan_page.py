"""The page of a scan: one HTML file in two languages, with a picture of the ages. A browser can open the page offline.

The page loads nothing from elsewhere, and has no script and no font. A radio button chooses the language.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from reconciler.clock import utc_text
from reconciler.commands.scan import HalfGroup, ScanReport, age_text, keys_text
from reconciler.contract.facts import Code, Fact, Field
from reconciler.contract.visible_text import visible
from reconciler.halves.values import Half, HalfFate
from reconciler.policy.commit_query import BusinessState
from reconciler.words import LANGUAGES, said

PAGE_TITLE = Code("scan.page-title")
PAGE_SCANNED = Code("scan.page-scanned", at_ms=Field.TIME)
PAGE_NOTES = Code("scan.page-notes")
PAGE_AGES = Code("scan.page-ages")
PAGE_GROUPS = Code("scan.page-groups")
PAGE_HALVES = Code("scan.page-halves")
PAGE_OTHERS = Code("scan.page-others")
PAGE_NONE = Code("scan.page-none")
PAGE_SHOWN = Code("scan.page-shown", shown=Field.NUMBER, number=Field.NUMBER)

#: What a state means to people.
FATES = {
    HalfFate.OPEN: Code("scan.fate-open"),
    HalfFate.GIVEN_UP: Code("scan.fate-given-up"),
    HalfFate.FRESH: Code("scan.fate-fresh"),
    HalfFate.DELIVERED: Code("scan.fate-delivered"),
    HalfFate.ENDED: Code("scan.fate-ended"),
    HalfFate.GIVEN_UP_DELIVERED: Code("scan.fate-given-up-delivered"),
}
#: What the tables of the business say.
BUSINESS = {
    BusinessState.COMMITTED: Code("scan.business-committed"),
    BusinessState.ROLLED_BACK: Code("scan.business-rolled-back"),
    BusinessState.NO_ROW: Code("scan.business-no-row"),
    BusinessState.UNKNOWN: Code("scan.business-unknown"),
}
#: Headings of columns.
HEADS = {
    "topic": Code("scan.head-topic"),
    "group": Code("scan.head-group"),
    "state": Code("scan.head-state"),
    "business": Code("scan.head-business"),
    "halves": Code("scan.head-halves"),
    "age": Code("scan.head-age"),
    "oldest": Code("scan.head-oldest"),
    "asked": Code("scan.head-asked"),
    "producers": Code("scan.head-producers"),
    "left": Code("scan.head-left"),
    "last": Code("scan.head-last"),
    "kept": Code("scan.head-kept"),
    "next": Code("scan.head-next"),
    "key": Code("scan.head-key"),
    "keys": Code("scan.head-keys"),
    "broker": Code("scan.head-broker"),
}
_GROUP_HEADS = (
    "topic", "group", "state", "business", "halves", "oldest", "asked", "producers", "left", "last", "kept", "next",
)  # fmt: skip
_HALF_HEADS = ("topic", "key", "keys", "state", "business", "age", "asked", "broker")
#: Maximum number of halves in the page's table.
HALVES_MAX = 1_000
#: Upper limit of a bar in seconds, and the text below the bar.
_AGES = (
    (60, "< 1 min"),
    (300, "1-5 min"),
    (900, "5-15 min"),
    (3_600, "15-60 min"),
    (21_600, "1-6 h"),
    (86_400, "6-24 h"),
    (None, "> 1 d"),
)
_BAR_WIDTH, _BAR_STEP, _BAR_HEIGHT, _HEAD_ROOM, _FOOT_ROOM = 64, 88, 150, 20, 24

_STYLE = """
:root{color-scheme:light dark;--ink:#1c2530;--paper:#fff;--rule:#d5dbe1;--open:#c2410c;
--given-up:#7f1d1d;--other:#94a3b8}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf0;--paper:#12181f;--rule:#34404c;--open:#fb923c;--given-up:#f87171}}
body{font:15px/1.5 system-ui,"PingFang SC","Microsoft YaHei",sans-serif;color:var(--ink);background:var(--paper);
margin:2rem auto;max-width:1200px;padding:0 1rem}
table{border-collapse:collapse;width:100%;font-size:13px}td,th{border-bottom:1px solid var(--rule);padding:.35rem .5rem;
text-align:left;vertical-align:top;overflow-wrap:break-word}.wide{overflow-x:auto}
.open{fill:var(--open)}.given-up{fill:var(--given-up)}.other{fill:var(--other)}text{fill:currentColor;font-size:12px}
.languages label{margin-right:1rem}section{display:none}
#en:checked~section[lang=en],#zh:checked~section[lang=zh]{display:block}
@media print{.languages{display:none}}
"""


def page_of(report: ScanReport) -> str:
    """Returns the whole page as one text."""
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        f"<title>reconciler scan</title><style>{_STYLE}</style></head><body>",
    ]
    for number, (code, name) in enumerate(LANGUAGES.items()):
        checked = "" if number else " checked"
        lines.append(f'<input type="radio" name="language" id="{code}"{checked}><label for="{code}">{name}</label>')
    for code in LANGUAGES:
        lines += [f'<section lang="{code}">', *_section(report, code), "</section>"]
    return "\n".join([*lines, "</body></html>"])


def _section(report: ScanReport, language: str) -> Iterator[str]:
    def tell(fact: Fact) -> str:
        return _told(said(fact, language))

    halves = report.halves
    yield f"<h1>{tell(PAGE_TITLE())}</h1><p>{tell(PAGE_SCANNED(at_ms=report.scanned_at_ms))}</p>"
    yield f"<p><strong>{tell(report.summary())}</strong></p>"
    if notes := list(report.notes()):
        yield f"<h2>{tell(PAGE_NOTES())}</h2><ul>{''.join(f'<li>{tell(note)}</li>' for note in notes)}</ul>"
    if not halves:
        yield f"<p>{tell(PAGE_NONE())}</p>"
        return
    heads = {name: tell(HEADS[name]()) for name in HEADS}
    fates = {fate: tell(FATES[fate]()) for fate in FATES}
    told = {state: tell(BUSINESS[state]()) for state in BUSINESS}
    is_asked = report.proved() is not None

    def states(fate: HalfFate, business: BusinessState | None) -> list[str]:
        return [fates[fate], *([told[business] if business else ""] if is_asked else [])]

    def headings(names: Sequence[str]) -> list[str]:
        return [heads[name] for name in names if is_asked or name != "business"]

    yield f"<h2>{tell(PAGE_AGES())}</h2>{_picture(report, fates, others=tell(PAGE_OTHERS()))}"
    yield f"<h2>{tell(PAGE_GROUPS())}</h2>"
    rows = (_group_cells(one, report, states(one.state, one.business), tell(one.next_step)) for one in report.groups)
    yield from _table(headings(_GROUP_HEADS), rows)
    yield f"<h2>{tell(PAGE_HALVES())}</h2>"
    shown = halves[:HALVES_MAX]
    cells = (_half_cells(half, report, states(half.state, half.business_state)) for half in shown)
    yield from _table(headings(_HALF_HEADS), cells)
    if len(shown) < len(halves):
        yield f"<p>{tell(PAGE_SHOWN(shown=len(shown), number=len(halves)))}</p>"


def _told(text: str) -> str:
    """Returns a stranger's text as harmless HTML: without markup, and without characters that hide or turn text."""
    return escape(visible(text))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f'<div class="wide"><table><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr></thead><tbody>'
    for row in rows:
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    yield "</tbody></table></div>"


def _group_cells(one: HalfGroup, report: ScanReport, states: Sequence[str], told: str) -> list[str]:
    fewest, most = one.asked
    times = [None if at is None else utc_text(at) for at in (one.asked_until_ms, one.kept_until_ms)]
    values = [
        age_text(report.scanned_at_ms - one.oldest_born_ms),
        fewest if fewest == most else f"{fewest}-{most}",
        one.producers,
        one.questions_left,
        *times,
    ]
    shown = ["" if value is None else str(value) for value in values]
    return [_told(one.topic), _told(one.producer_group), *states, str(one.keys), *shown, told]


def _half_cells(half: Half, report: ScanReport, states: Sequence[str]) -> list[str]:
    copy = half.copy
    age = age_text(report.scanned_at_ms - copy.born_ms)
    names = [_told(name) for name in (copy.topic, copy.unique_key, keys_text(half))]
    return [*names, *states, age, str(copy.asked), _told(copy.broker)]


def _picture(report: ScanReport, fates: Mapping[HalfFate, str], *, others: str) -> str:
    """Draws one bar for each range of ages. Undelivered halves are at the bottom of a bar, all other halves above."""
    kinds = {HalfFate.OPEN: "open", HalfFate.GIVEN_UP: "given-up"}
    counts = [dict.fromkeys((*kinds.values(), "other"), 0) for _ in _AGES]
    for half in report.halves:
        age = (report.scanned_at_ms - half.copy.born_ms) / 1000
        place = next(number for number, (limit, _) in enumerate(_AGES) if limit is None or age < limit)
        counts[place][kinds.get(half.state, "other")] += 1
    most = max(sum(bar.values()) for bar in counts)
    height, floor = _HEAD_ROOM + _BAR_HEIGHT + _FOOT_ROOM, _HEAD_ROOM + _BAR_HEIGHT
    drawn: list[str] = []
    for number, (bar, (_, label)) in enumerate(zip(counts, _AGES, strict=True)):
        left, top = number * _BAR_STEP + (_BAR_STEP - _BAR_WIDTH) // 2, float(floor)
        for kind, count in bar.items():
            tall = _BAR_HEIGHT * count / most
            top -= tall
            if count:
                drawn.append(
                    f'<rect class="{kind}" x="{left}" y="{top:.1f}" width="{_BAR_WIDTH}" height="{tall:.1f}"/>'
                )
        middle, total = left + _BAR_WIDTH // 2, sum(bar.values())
        if total:
            drawn.append(f'<text x="{middle}" y="{top - 5:.1f}" text-anchor="middle">{total}</text>')
        drawn.append(f'<text x="{middle}" y="{floor + 16}" text-anchor="middle">{escape(label)}</text>')
    width = _BAR_STEP * len(_AGES)
    legend = [*((kind, fates[fate]) for fate, kind in kinds.items()), ("other", others)]
    key = "".join(
        f'<svg width="12" height="12" aria-hidden="true"><rect class="{kind}" width="12" height="12"/></svg> '
        f"{name} &#160; "
        for kind, name in legend
    )
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" style="max-width:100%">'
        f"{''.join(drawn)}</svg><p>{key}</p>"
    )
