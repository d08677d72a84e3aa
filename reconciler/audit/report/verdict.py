"""The report's first page: the verdict in one line, what it covers, what was checked and what was not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.audit.errors import ReasonWithheld
from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.series import stack_of, worst_first
from reconciler.audit.report.tables import Cell, table, table_row
from reconciler.audit.report.words import counted, duration, in_zone, moment, number, share
from reconciler.audit.result.classes import BY_NAME, NAMES, RULES
from reconciler.audit.result.not_judged import LISTED_MAX, UnjudgedTotals
from reconciler.audit.result.values import EngineKind, JudgedWindow

#: Remarks, gaps and unchecked rules that are shown; all are in result.json. Beyond what is listed as not judged.
LINES_MAX = LISTED_MAX + 2

_SIGNS = {"clean": "\N{CHECK MARK}", "violations": "\N{BALLOT X}", "no answer": "?"}
_REASONS: Mapping[ReasonWithheld, str] = {
    "inputs": "evidence is missing, unreadable or altered",
    "gap": "the history lacks rows of this window",
    "window": "the window is not closed yet",
    "configuration": "settings or packages are not as they must be",
    "engine": "the audit did not come to its end",
}
#: Both apply the same rules by the same code.
_ENGINES: Mapping[EngineKind, str] = {"spark": "on Spark", "here": "in one process (--engine here)"}


def verdict_section(judged: JudgedWindow, zone: str, engine: EngineKind) -> Markup:
    """Sign, headline, sentence, and the facts of the window."""
    verdict = judged.verdict
    headline, sentence = _headline(judged)
    return tag(
        "header",
        tag("p", "Audit of transactional messages", class_="eyebrow"),
        tag(
            "div",
            tag("span", _SIGNS[verdict], class_="sign", aria_hidden="true"),
            tag("div", tag("h1", headline), tag("p", *sentence, class_="lead")),
            class_="headline",
        ),
        _facts(judged, zone, engine),
        class_=f"verdict {verdict.replace(' ', '-')}",
    )


def _headline(judged: JudgedWindow) -> tuple[str, list[object]]:
    keys = sum(one.keys for one in judged.subscriptions)
    among = _among(judged, keys)
    found = judged.violations
    touched = sum(1 for one in judged.subscriptions if stack_of(one.classes)["violation"])
    if judged.no_answer is not None:
        so_far = (
            " Nothing was judged."
            if not judged.inputs
            else f" Among what could be judged, {counted(found, 'violation')} are proved already."
            if found
            else " That no violation is listed below does not mean that there is none."
        )
        why = tag("strong", f"{_REASONS[judged.no_answer.reason].capitalize()}. ")
        return "No answer", [why, f"{judged.no_answer.message.rstrip('.')}.", so_far]
    unchecked = " Not every rule could be checked; see below." if judged.not_checked else ""
    if found:
        where = f"in {touched} of {counted(len(judged.subscriptions), 'subscription')}"
        classes = ", ".join(f"{number(count)} {name}" for name, count in worst_first(judged.classes))
        return counted(found, "violation"), [f"{classes}. Found {where}, among {among}.{unchecked}"]
    if not keys:
        return "No violation: no message fell into this window", [
            f"{counted(len(judged.subscriptions), 'subscription')} looked at, nothing to judge.{unchecked}"
        ]
    return "No violation", [f"{among} judged; none broke a rule that was checked.{unchecked}"]


def _among(judged: JudgedWindow, outcomes: int) -> str:
    """A message has one outcome a subscription: two numbers, unless they are the same."""
    subscriptions = counted(len(judged.subscriptions), "subscription")
    messages = sum(judged.messages.values())
    if messages == outcomes:
        return f"{counted(messages, 'message')} in {subscriptions}"
    return f"{counted(messages, 'message')} with {counted(outcomes, 'outcome')} in {subscriptions}"


def _facts(judged: JudgedWindow, zone: str, engine: EngineKind) -> Markup:
    window = judged.window
    local_start, local_end = in_zone(window.start_ms, zone), in_zone(window.end_ms, zone)
    as_of = sorted({one.as_of_ms for one in judged.subscriptions})
    facts: list[tuple[str, object]] = [
        ("Environment", name(judged.environment)),
        ("Window", _span(moment(window.start_ms), moment(window.end_ms))),
        ("Length", duration(max(0, window.end_ms - window.start_ms))),
    ]
    if local_start and local_end:
        facts.append((f"The same in {zone}", _span(local_start, local_end)))
    if as_of:
        last = moment(as_of[-1])
        facts.append(("Ages as of", _span(moment(as_of[0]), last, "to ") if len(as_of) > 1 else last))
    facts.append(("Evidence collected", moment(judged.collected_at_ms)))
    facts.append(("Judged", _ENGINES[engine]))
    facts.append(("Clocks may differ by", duration(judged.skew_bound_ms)))
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", value)) for term, value in facts), class_="facts")


def _span(start: object, end: object, until: str = "until before ") -> Markup:
    return join([tag("span", start, class_="line"), tag("span", until, end, class_="line")], " ")


def figures_section(judged: JudgedWindow) -> Markup:
    """The numbers that one looks for first."""
    stack = stack_of(judged.classes)
    keys = sum(stack.values())
    tiles = [("messages", sum(judged.messages.values()), "", ""), ("outcomes: messages a subscription", keys, "", "")]
    tiles += [
        (words, stack[series], share(stack[series], keys) if stack[series] else "", series)
        for series, words in (
            ("violation", "violations"),
            ("quarantined", "quarantined"),
            ("repaired", "repaired"),
            ("late", "late"),
            ("in-time", "in time"),
            ("pending", "too early to say"),
        )
    ]
    return tag(
        "ul",
        *(
            tag(
                "li",
                tag("span", number(value), class_="figure"),
                tag("span", words, class_="words"),
                tag("span", part, class_="portion") if part else None,
                class_=f"tile {f't-{series}' if series and value else ''}".strip(),
            )
            for words, value, part, series in tiles
        ),
        class_="tiles",
        aria_label="Summary",
    )


def checked_section(judged: JudgedWindow) -> Markup:
    """Each violation's rule: for how many subscriptions it was checked, what was found, why it was not checked."""
    whole = len(judged.subscriptions)
    columns = (("Rule", ""), ("Checked for", ""), ("Found", "n"), ("It would mean", "words-of"))
    rows: list[Markup] = []
    for rule in (rule for rule in RULES if rule.violation):
        skipped = {(n.topic, n.group): n.why for n in judged.not_checked if n.class_name == rule.name}
        found = judged.classes.get(rule.name, 0)
        state, css = (f"{whole - len(skipped)} of {number(whole)}", "part") if skipped else ("all", "yes")
        if len(skipped) == whole:
            state, css = "none", "no"
        rows.append(
            table_row(
                columns,
                (f"{rule.number}. ", tag("code", rule.name)),
                Cell(state, f"state {css}"),
                Cell(number(found), "n bad") if found else "0",
                rule.meaning,
            )
        )
    return tag(
        "section",
        tag("h2", "What was checked"),
        table("Rules whose breach is a violation", columns, rows),
        _unchecked(judged),
        _lines("Missing history", [_gap(gap) for gap in judged.gaps], css="lines warn"),
        _lines("Rows of the window that were not judged", _not_judged(judged.not_judged)),
        _lines("Remarks", judged.notes),
        id="checked",
    )


def _unchecked(judged: JudgedWindow) -> Markup:
    """The same reason for many subscriptions is shown once."""
    if not judged.not_checked:
        return tag("p", "Every rule was checked for every subscription.", class_="fine")
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in judged.not_checked:
        reasons.setdefault((one.class_name, one.why), []).append(f"{one.topic}/{one.group}")
    items: list[Markup] = []
    for (class_name, why), subscriptions in sorted(reasons.items(), key=lambda item: _order(item[0])):
        shown = join([name(one) for one in subscriptions[:10]], ", ")
        more = f" and {counted(len(subscriptions) - 10, 'more', 'more')}" if len(subscriptions) > 10 else ""
        items.append(join([tag("code", class_name), " for ", shown, more, ": ", why]))
    return _lines("Not checked", items, css="lines warn")


def _order(reason: tuple[str, str]) -> tuple[int, str, str]:
    return (BY_NAME[reason[0]].number if reason[0] in BY_NAME else len(NAMES) + 1, *reason)


def _gap(gap: Any) -> Markup:
    rows = "an unknown number of rows" if gap.rows is None else counted(gap.rows, "row")
    shard = "many shards" if gap.shard < 0 else f"shard {gap.shard}"
    return join(
        [
            name(f"{gap.topic}/{gap.group}"),
            f", {shard}, {moment(gap.from_ms)} to {moment(gap.to_ms)}: {rows} of ",
            tag("code", gap.stream),
            f": {gap.why}",
        ]
    )


def _not_judged(not_judged: UnjudgedTotals) -> list[Markup]:
    """One line a table, topic and group outside of the audit."""
    lines = []
    if not not_judged.sources_counted:
        lines.append(join(["Whose rows the databases hold is not known: only what lies in the evidence was counted."]))
    lines += [
        join([counted(one.rows, "row"), " of ", tag("code", one.table), " of ", name(f"{one.topic}/{one.group}")])
        for one in not_judged.listed
    ]
    if not_judged.omitted_rows:
        lines.append(join([counted(not_judged.omitted_rows, "row"), " of topics and groups that are not listed"]))
    return lines


def _lines(title: str, lines: Iterable[object], *, css: str = "lines") -> Markup:
    shown = list(lines)
    if not shown:
        return Markup("")
    items = [tag("li", line) for line in shown[:LINES_MAX]]
    if len(shown) > LINES_MAX:
        items.append(tag("li", f"{number(len(shown) - LINES_MAX)} more in result.json."))
    return tag("div", tag("h3", title), tag("ul", *items), class_=css)
