"""Lists of the report. Every violation has the key, the rule, the evidence and the command to look further."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.series import worst_first
from reconciler.audit.report.tables import scrolling, table, table_head, table_row
from reconciler.audit.report.texts import Texts
from reconciler.audit.report.words import duration, moment, number, share
from reconciler.audit.result.classes import BY_NAME, RULES
from reconciler.audit.result.documents import sorted_findings
from reconciler.audit.result.values import BUSINESS_ID, EvidenceValue, Finding, JudgedWindow

#: Largest number of violations that are shown one by one, for all classes together. Each class has a share of these
#: rows.
VIOLATIONS_MAX = 1_000
#: Largest number of quarantined keys, and of late keys, that are shown one by one.
OTHERS_MAX = 200
_Who = TypeVar("_Who")
#: Milliseconds that can be shown as a time, until the year 9999. Other numbers are shown as numbers.
_TIMES_MS = range(253_402_300_800_000)
#: Longest duration, ten years. A larger number is a moment.
_DURATIONS_MS = 10 * 365 * 86_400_000


def violations_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists violations by class with number and share. The largest class comes first.

    A filter works in browsers that run scripts.
    """
    counts = dict(worst_first(judged.classes))
    if not counts:
        none = tag("p", texts("violations.none"), class_="fine")
        return tag("section", tag("h2", texts("section.violations")), none, id="violations")
    found = _by_class(judged)
    shown = fair_shares({one: len(found.get(one, ())) for one in counts}, VIOLATIONS_MAX)
    return tag(
        "section",
        tag("h2", texts("violations.title", number=number(judged.violations))),
        _overview(judged, counts, shown, texts) if len(counts) > 1 else None,
        _filter(texts) if sum(shown.values()) > 1 else None,
        *(part for one in counts for part in _class(judged, one, found.get(one, []), shown[one], texts)),
        id="violations",
    )


def others_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists quarantined and late keys. Such keys are no violations, but need a person."""
    found = _by_class(judged)
    others = [str(rule.name) for rule in RULES if not rule.violation and found.get(rule.name)]
    if not others:
        return Markup("")
    parts = (part for one in others for part in _class(judged, one, found[one], OTHERS_MAX, texts))
    return tag("section", tag("h2", texts("others.title")), *parts, id="others")


def fair_shares(wanted: Mapping[_Who, int], rows_max: int) -> dict[_Who, int]:
    """Divides rows evenly between classes or subscriptions. Rows that one of them does not need go to the others."""
    shares: dict[_Who, int] = {}
    left = rows_max
    for place, (one, rows) in enumerate(sorted(wanted.items(), key=lambda item: item[1])):
        shares[one] = min(rows, left // (len(wanted) - place))
        left -= shares[one]
    return shares


def _of_each_subscription(found: Sequence[Finding], rows_max: int) -> list[Finding]:
    """Takes the first findings of each subscription, so that one subscription of a class does not crowd out another."""
    by_subscription: dict[tuple[str, str], list[Finding]] = {}
    for one in found:
        by_subscription.setdefault((one.topic, one.group), []).append(one)
    shares = fair_shares({subscription: len(of) for subscription, of in by_subscription.items()}, rows_max)
    return [one for subscription, of in by_subscription.items() for one in of[: shares[subscription]]]


def _by_class(judged: JudgedWindow) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for one in sorted_findings(judged):
        found.setdefault(one.class_name, []).append(one)
    return found


def _overview(judged: JudgedWindow, counts: Mapping[str, int], shown: Mapping[str, int], texts: Texts) -> Markup:
    columns = (
        (texts("column.class"), ""),
        (texts("of-series.violation"), "n"),
        (texts("column.share"), "n"),
        (texts("column.of-all"), "n"),
        (texts("column.shown-here"), "n"),
    )
    whole = sum(judged.classes.values())
    rows = [
        table_row(
            columns,
            tag("a", tag("code", one), href=f"#{_anchor(one)}"),
            number(count),
            share(count, judged.violations),
            share(count, whole),
            number(shown[one]),
        )
        for one, count in counts.items()
    ]
    return table(texts("violations.most-first"), columns, rows)


def _anchor(class_name: str) -> str:
    return class_name.lower().replace("_", "-")


def _filter(texts: Texts) -> Markup:
    """Makes the filter.

    The filter is hidden until the script shows it, because a page without scripts must have no dead control.
    """
    return tag(
        "p",
        tag("label", texts("filter.label"), " ", for_="filter"),
        tag(
            "input",
            id="filter",
            type="search",
            autocomplete="off",
            spellcheck="false",
            placeholder=texts("filter.example"),
        ),
        " ",
        tag("output", for_="filter", id="filtered"),
        class_="filter",
        hidden=True,
    )


def _class(
    judged: JudgedWindow, class_name: str, found: Sequence[Finding], rows_max: int, texts: Texts
) -> Iterable[Markup]:
    """Yields the parts of a class: heading, rule, the place where further findings are, and rows."""
    rule, whole = BY_NAME[class_name], judged.classes[class_name]
    shown = _of_each_subscription(found, rows_max)
    part = share(whole, sum(judged.classes.values()))
    title = texts.marked("class.title", name=tag("code", class_name), number=number(whole), part=part)
    yield tag("h3", title, id=_anchor(class_name))
    numbered = tag("b", texts("class.rule", number=rule.number), " ")
    told = texts("class.means", rule=texts(f"rule.{class_name}"), meaning=texts(f"meaning.{class_name}"))
    yield tag("p", numbered, told, class_="rule")
    if whole > len(shown):
        yield _rest(class_name, len(shown), whole - len(shown), judged.findings_omitted.get(class_name, 0), texts)
    if shown:
        titles = (texts("column.key"), texts("column.subscription"), texts("column.evidence"))
        head = table_head(*((one, "") for one in titles))
        words = texts("class.caption", name=class_name)
        caption = tag("caption", words, class_="unseen")
        rows = tag("tbody", *(_row(one, texts) for one in shown))
        yield scrolling(tag("table", caption, head, rows, class_="findings"), words)


def _rest(class_name: str, shown: int, beyond: int, omitted: int, texts: Texts) -> Markup:
    parts: list[Markup] = [texts.marked("rest.shown", number=number(shown))]
    if beyond > omitted:
        files = {"json": tag("code", "findings.json"), "parquet": tag("code", "findings.parquet")}
        parts.append(texts.marked("rest.in-files", number=number(beyond - omitted), name=class_name, **files))
    last = texts.marked("rest.omitted", number=number(omitted)) if omitted else ""
    return tag("p", join([*parts, last], " "), class_="warn")


def _row(one: Finding, texts: Texts) -> Markup:
    facts = dict(one.evidence)
    business_id = facts.pop(BUSINESS_ID, None)
    named = None if business_id is None else texts.marked("business-id", name=name(business_id))
    return tag(
        "tr",
        tag(
            "th",
            tag("code", tag("span", "reconciler explain "), one.key, class_="command"),
            None if named is None else tag("div", named, class_="business"),
            scope="row",
        ),
        tag("td", name(one.topic), tag("span", " / ", class_="slash"), name(one.group)),
        tag("td", _evidence(facts, texts)),
    )


def _evidence(evidence: Mapping[str, EvidenceValue], texts: Texts) -> Markup:
    """Lists the sorted times of a finding, then the other facts. Each time has the duration since the first time."""
    times = sorted((ms, fact) for fact, value in evidence.items() if (ms := _time_ms(fact, value)) is not None)
    story = [
        tag("div", tag("dt", texts.fact(fact)), tag("dd", moment(ms), _since(ms - times[0][0]))) for ms, fact in times
    ]
    dated = {fact for _, fact in times}
    facts = [
        tag("div", tag("dt", texts.fact(fact)), " ", tag("dd", _value(fact, value, texts)))
        for fact, value in sorted(evidence.items())
        if fact not in dated
    ]
    lists = ((story, "story"), (facts, "known"))
    return join(tag("dl", *pairs, class_=css) for pairs, css in lists if pairs)


def _since(milliseconds: int) -> Markup | None:
    return tag("span", f" +{duration(milliseconds)}", class_="since") if milliseconds else None


def _time_ms(fact: str, value: EvidenceValue) -> int | None:
    """Returns the milliseconds of a moment. A moment has a name with "_at_ms", or is larger than any duration.

    None: the value is no moment.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value not in _TIMES_MS:
        return None
    is_moment = fact.endswith("_at_ms") or (fact.endswith("_ms") and value > _DURATIONS_MS)
    return value if is_moment else None


def _value(fact: str, value: EvidenceValue, texts: Texts) -> Markup:
    if value is None:
        return tag("span", texts("value.unknown"), class_="none")
    if isinstance(value, bool):
        return join([texts("value.yes") if value else texts("value.no")])
    if isinstance(value, int):
        return join([f"{number(value)} ms" if fact.endswith("_ms") else number(value)])
    return name(value)
