"""First page of the report: the verdict in one line, the judged window, the checked rules and the unchecked rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.series import stack_of, worst_first
from reconciler.audit.report.tables import Cell, table, table_row
from reconciler.audit.report.texts import Texts
from reconciler.audit.report.words import duration, in_zone, moment, number, share
from reconciler.audit.result.classes import BY_NAME, NAMES, RULES
from reconciler.audit.result.not_judged import LISTED_MAX, UnjudgedTotals
from reconciler.audit.result.values import EngineKind, JudgedWindow

#: Largest number of lines of a list. result.json has all lines. The list of rows that were not judged always fits.
LINES_MAX = LISTED_MAX + 2

_SIGNS = {"clean": "\N{CHECK MARK}", "violations": "\N{BALLOT X}", "no answer": "?"}


def verdict_section(judged: JudgedWindow, zone: str, engine: EngineKind, texts: Texts) -> Markup:
    """Makes the verdict's sign, headline and sentence, and the facts of the window."""
    verdict = judged.verdict
    headline, sentence = _headline(judged, texts)
    return tag(
        "header",
        tag("p", texts("eyebrow"), class_="eyebrow"),
        tag(
            "div",
            tag("span", _SIGNS[verdict], class_="sign", aria_hidden="true"),
            tag("div", tag("h1", headline), tag("p", *sentence, class_="lead")),
            class_="headline",
        ),
        _facts(judged, zone, engine, texts),
        class_=f"verdict {verdict.replace(' ', '-')}",
    )


def _headline(judged: JudgedWindow, texts: Texts) -> tuple[str, list[object]]:
    keys = sum(one.keys for one in judged.subscriptions)
    among = _among(judged, keys, texts)
    found = judged.violations
    if judged.no_answer is not None:
        if not judged.inputs:
            so_far = texts("so-far.nothing")
        elif found:
            so_far = texts("so-far.violations", violations=texts.counted(found, "violation"))
        else:
            so_far = texts("so-far.none-listed")
        why = tag("strong", f"{texts(f'reason.{judged.no_answer.reason}')} ")
        message = texts.quoted(judged.no_answer.message)
        stop = "" if judged.no_answer.message.endswith(".") else texts("stop")
        return title_of(judged, texts), [why, message, stop, f" {so_far}"]
    unchecked = f" {texts('some-unchecked')}" if judged.not_checked else ""
    subscriptions = texts.counted(len(judged.subscriptions), "subscription")
    if found:
        touched = sum(1 for one in judged.subscriptions if stack_of(one.classes)["violation"])
        classes = texts.listed(f"{number(count)} {name}" for name, count in worst_first(judged.classes))
        sentence = texts("found", classes=classes, touched=touched, subscriptions=subscriptions, among=among)
        return texts.counted(found, "violation"), [f"{sentence}{unchecked}"]
    of_halves = sum(one.subscription.of_halves for one in judged.subscriptions)
    told = texts.counted(of_halves, "subscription")
    unjudged = f" {texts('of-halves-too', subscriptions=told)}" if of_halves else ""
    if not keys:
        is_of_halves = of_halves == len(judged.subscriptions)
        empty = texts("empty-window.of-halves") if is_of_halves else texts("empty-window")
        return empty, [f"{texts('looked-at', subscriptions=subscriptions)}{unjudged}{unchecked}"]
    return title_of(judged, texts), [f"{texts('none-broke', among=among)}{unjudged}{unchecked}"]


def title_of(judged: JudgedWindow, texts: Texts) -> str:
    """Returns the title of the verdict. A clean window of halves has another title, because no commit was judged."""
    is_of_halves = bool(judged.subscriptions) and all(one.subscription.of_halves for one in judged.subscriptions)
    is_clean_of_halves = judged.verdict == "clean" and is_of_halves
    return texts("page-title.clean-of-halves") if is_clean_of_halves else texts(f"page-title.{judged.verdict}")


def _among(judged: JudgedWindow, outcomes: int, texts: Texts) -> str:
    """Says how many messages and outcomes were judged. A message has one outcome per subscription."""
    subscriptions = texts.counted(len(judged.subscriptions), "subscription")
    messages = sum(judged.messages.values())
    told = texts.counted(messages, "message")
    if messages == outcomes:
        return texts("messages-in", messages=told, subscriptions=subscriptions)
    of = texts.counted(outcomes, "outcome")
    return texts("messages-with", messages=told, outcomes=of, subscriptions=subscriptions)


def _facts(judged: JudgedWindow, zone: str, engine: EngineKind, texts: Texts) -> Markup:
    window = judged.window
    local_start, local_end = in_zone(window.start_ms, zone), in_zone(window.end_ms, zone)
    as_of = sorted({one.as_of_ms for one in judged.subscriptions})
    facts: list[tuple[str, object]] = [
        (texts("environment"), name(judged.environment)),
        (texts("column.window"), _span(moment(window.start_ms), moment(window.end_ms), "until-before", texts)),
        (texts("length"), duration(max(0, window.end_ms - window.start_ms))),
    ]
    if local_start and local_end:
        facts.append((texts("same-in", zone=zone), _span(local_start, local_end, "until-before", texts)))
    if as_of:
        last = moment(as_of[-1])
        facts.append((texts("as-of"), _span(moment(as_of[0]), last, "until", texts) if len(as_of) > 1 else last))
    facts.append((texts("collected"), moment(judged.collected_at_ms)))
    facts.append((texts("judged"), texts(f"engine.{engine}")))
    facts.append((texts("skew"), duration(judged.skew_bound_ms)))
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", value)) for term, value in facts), class_="facts")


def _span(start: str, end: str, until: str, texts: Texts) -> Markup:
    return join([tag("span", start, class_="line"), tag("span", texts(until, time=end), class_="line")], " ")


def figures_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Makes tiles with the numbers that people look for first."""
    stack = stack_of(judged.classes)
    keys = sum(stack.values())
    tiles = [(texts("tile.messages"), sum(judged.messages.values()), "", ""), (texts("tile.outcomes"), keys, "", "")]
    tiles += [
        (texts(f"tile.{series}"), stack[series], share(stack[series], keys) if stack[series] else "", series)
        for series in ("violation", "quarantined", "repaired", "late", "in-time", "pending")
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
        aria_label=texts("summary"),
    )


def checked_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists the rule of each violation class with the number of checked subscriptions and of findings.

    If some subscriptions were not checked, the reasons are listed, too.
    """
    whole = len(judged.subscriptions)
    columns = (
        (texts("column.rule"), ""),
        (texts("column.checked-for"), ""),
        (texts("column.found"), "n"),
        (texts("column.would-mean"), "words-of"),
    )
    rows: list[Markup] = []
    for rule in (rule for rule in RULES if rule.violation):
        skipped = {(n.topic, n.group): n.why for n in judged.not_checked if n.class_name == rule.name}
        found = judged.classes.get(rule.name, 0)
        state, css = texts("checked-for.all"), "yes"
        if skipped:
            state, css = texts("checked-for.some", number=whole - len(skipped), all=number(whole)), "part"
        if len(skipped) == whole:
            state, css = texts("checked-for.none"), "no"
        rows.append(
            table_row(
                columns,
                (f"{rule.number}. ", tag("code", rule.name)),
                Cell(state, f"state {css}"),
                Cell(number(found), "n bad") if found else "0",
                texts(f"meaning.{rule.name}"),
            )
        )
    return tag(
        "section",
        tag("h2", texts("section.checked")),
        table(texts("checked.caption"), columns, rows),
        _unchecked(judged, texts),
        _lines("lines.gaps", [_gap(gap, texts) for gap in judged.gaps], texts, css="lines warn"),
        _lines("lines.not-judged", _not_judged(judged.not_judged, texts), texts),
        _lines("lines.remarks", [texts.quoted(note) for note in judged.notes], texts),
        id="checked",
    )


def _unchecked(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists unchecked rules. The same reason for many subscriptions is shown once."""
    if not judged.not_checked:
        return tag("p", texts("checked.every"), class_="fine")
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in judged.not_checked:
        reasons.setdefault((one.class_name, one.why), []).append(f"{one.topic}/{one.group}")
    items: list[Markup] = []
    for (class_name, why), subscriptions in sorted(reasons.items(), key=lambda item: _order(item[0])):
        shown = join([name(one) for one in subscriptions[:10]], ", ")
        if len(subscriptions) > 10:
            shown = texts.marked("and-more", names=shown, number=number(len(subscriptions) - 10))
        code = tag("code", class_name)
        items.append(texts.marked("unchecked", rule=code, subscriptions=shown, why=texts.quoted(why)))
    return _lines("lines.unchecked", items, texts, css="lines warn")


def _order(reason: tuple[str, str]) -> tuple[int, str, str]:
    return (BY_NAME[reason[0]].number if reason[0] in BY_NAME else len(NAMES) + 1, *reason)


def _gap(gap: Any, texts: Texts) -> Markup:
    return texts.marked(
        "gap",
        subscription=name(f"{gap.topic}/{gap.group}"),
        shard=texts("gap.shards") if gap.shard < 0 else texts("gap.shard", shard=gap.shard),
        start=moment(gap.from_ms),
        end=moment(gap.to_ms),
        rows=texts("gap.rows") if gap.rows is None else texts.counted(gap.rows, "row"),
        stream=tag("code", gap.stream),
        why=texts.quoted(gap.why),
    )


def _not_judged(not_judged: UnjudgedTotals, texts: Texts) -> list[Markup]:
    """Makes one line per table, topic and group outside of the audit."""
    lines = []
    if not not_judged.sources_counted:
        lines.append(texts.marked("not-judged.uncounted"))
    for one in not_judged.listed:
        of, table_name = name(f"{one.topic}/{one.group}"), tag("code", one.table)
        rows = texts.counted(one.rows, "row")
        lines.append(texts.marked("not-judged.listed", rows=rows, table=table_name, subscription=of))
    if not_judged.omitted_rows:
        lines.append(texts.marked("not-judged.omitted", rows=texts.counted(not_judged.omitted_rows, "row")))
    return lines


def _lines(title: str, lines: Iterable[object], texts: Texts, *, css: str = "lines") -> Markup:
    shown = list(lines)
    if not shown:
        return Markup("")
    items = [tag("li", line) for line in shown[:LINES_MAX]]
    if len(shown) > LINES_MAX:
        items.append(tag("li", texts("lines.more", number=number(len(shown) - LINES_MAX))))
    return tag("div", tag("h3", texts(title)), tag("ul", *items), class_=css)
