"""The report's lists: every violation with its key, rule, evidence and the command to look further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.audit.classes import BY_NAME, VIOLATIONS
from reconciler.audit.output.documents import sorted_findings
from reconciler.audit.report.figures import scrolling, table_head
from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.words import counted, duration, moment, number
from reconciler.audit.result import EvidenceValue, Finding, JudgedWindow

#: Violations that are shown one by one, in the order of the list of classes; all are in findings.json.
VIOLATIONS_MAX = 1_000
#: Quarantined and late ones.
OTHERS_MAX = 200
#: Times that people know as such; numbers outside are shown as they are.
_TIMES_MS = range(253_402_300_800_000)
#: Ten years: a longer one is a moment.
_DURATIONS_MS = 10 * 365 * 86_400_000


def violations_section(judged: JudgedWindow) -> Markup:
    """By class, each with its rule and what it means; a filter where scripts run."""
    found = _in_order(judged, violations=True)
    if not judged.violations:
        return tag("section", tag("h2", "Violations"), tag("p", "None found.", class_="fine"), id="violations")
    shown = found[:VIOLATIONS_MAX]
    beyond = judged.violations - len(shown)
    listed = judged.violations - sum(n for c, n in judged.findings_omitted.items() if c in VIOLATIONS)
    return tag(
        "section",
        tag("h2", f"Violations ({number(judged.violations)})"),
        _beyond(len(shown), beyond, listed) if beyond > 0 else None,
        _filter() if len(shown) > 1 else None,
        *_tables(shown, judged.classes),
        id="violations",
    )


def others_section(judged: JudgedWindow) -> Markup:
    """Quarantined and late keys: no violations, and yet somebody should look."""
    found = _in_order(judged, violations=False)
    if not found:
        return Markup("")
    shown: list[Finding] = []
    for class_name in dict.fromkeys(one.class_name for one in found):
        shown += [one for one in found if one.class_name == class_name][:OTHERS_MAX]
    return tag("section", tag("h2", "Also to be looked at"), *_tables(shown, judged.classes), id="others")


def _beyond(shown: int, beyond: int, listed: int) -> Markup:
    where = "findings.json" if listed >= shown + beyond else f"findings.json, which lists {number(listed)}"
    return tag("p", f"The first {number(shown)} are shown here; {number(beyond)} more are in {where}.", class_="warn")


def _filter() -> Markup:
    """Hidden until the script shows it: without scripts the page is complete and has no dead control."""
    return tag(
        "p",
        tag("label", "Show only ", for_="filter"),
        tag(
            "input", id="filter", type="search", autocomplete="off", spellcheck="false", placeholder="key, topic, group"
        ),
        " ",
        tag("output", for_="filter", id="filtered"),
        class_="filter",
        hidden=True,
    )


def _in_order(judged: JudgedWindow, *, violations: bool) -> list[Finding]:
    found = [one for one in sorted_findings(judged) if (one.class_name in VIOLATIONS) == violations]
    return sorted(found, key=lambda one: BY_NAME[one.class_name].number if one.class_name in BY_NAME else 99)


def _tables(findings: Sequence[Finding], counts: Mapping[str, int]) -> Iterable[Markup]:
    for class_name in dict.fromkeys(one.class_name for one in findings):
        mine = [one for one in findings if one.class_name == class_name]
        rule = BY_NAME.get(class_name)
        whole = counts.get(class_name, len(mine))
        shown = f" ({number(len(mine))} of {number(whole)} shown)" if whole > len(mine) else ""
        yield tag("h3", tag("code", class_name), f": {counted(whole, 'message')}{shown}")
        yield tag(
            "p",
            tag("b", "Rule " if rule is None else f"Rule {rule.number}: "),
            mine[0].rule if rule is None else f"{rule.rule}. {rule.meaning}",
            class_="rule",
        )
        head = table_head(("Key, and how to look further", ""), ("Topic / group", ""), ("Evidence", ""))
        caption = tag("caption", f"Messages in class {class_name}", class_="unseen")
        rows = tag("tbody", *(_row(one) for one in mine))
        yield scrolling(tag("table", caption, head, rows, class_="findings"), f"Messages in class {class_name}")


def _row(one: Finding) -> Markup:
    return tag(
        "tr",
        tag("th", tag("code", tag("span", "reconciler explain "), one.key, class_="command"), scope="row"),
        tag("td", name(one.topic), tag("span", " / ", class_="slash"), name(one.group)),
        tag("td", _evidence(one.evidence)),
    )


def _evidence(evidence: Mapping[str, EvidenceValue]) -> Markup:
    """Times first, in order, each with the time since the first one: they tell the story. Then what else is known."""
    times = sorted((ms, fact) for fact, value in evidence.items() if (ms := _time_ms(fact, value)) is not None)
    story = [tag("div", tag("dt", _words(fact)), tag("dd", moment(ms), _since(ms - times[0][0]))) for ms, fact in times]
    told = {fact for _, fact in times}
    facts = [
        tag("div", tag("dt", _words(fact)), " ", tag("dd", _value(fact, value)))
        for fact, value in sorted(evidence.items())
        if fact not in told
    ]
    lists = ((story, "story"), (facts, "known"))
    return join(tag("dl", *pairs, class_=css) for pairs, css in lists if pairs)


def _words(fact: str) -> str:
    return fact.removesuffix("_ms").replace("_", " ")


def _since(milliseconds: int) -> Markup | None:
    return tag("span", f" +{duration(milliseconds)}", class_="since") if milliseconds else None


def _time_ms(fact: str, value: EvidenceValue) -> int | None:
    """The value, if it is a moment: "..._at_ms", or milliseconds too many for a duration."""
    if not isinstance(value, int) or isinstance(value, bool) or value not in _TIMES_MS:
        return None
    is_moment = fact.endswith("_at_ms") or (fact.endswith("_ms") and value > _DURATIONS_MS)
    return value if is_moment else None


def _value(fact: str, value: EvidenceValue) -> Markup:
    if value is None:
        return tag("span", "unknown", class_="none")
    if isinstance(value, bool):
        return join(["yes" if value else "no"])
    if isinstance(value, int):
        return join([f"{number(value)} ms" if fact.endswith("_ms") else number(value)])
    return name(value)
