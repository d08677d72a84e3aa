"""The report's figures: volume by hour, outcomes, latencies, the topics and groups with most violations and keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from reconciler.audit.report.charts import NARROW, WIDE, Spread, scale_header, share_bar, spread_line, volume_chart
from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.series import COLUMNS, SERIES, binned_volume, stack_of, words_of
from reconciler.audit.report.tables import Cell, Column, scrolling, table, table_row
from reconciler.audit.report.words import counted, duration, moment, number, share
from reconciler.audit.result.classes import RULES
from reconciler.audit.result.values import LATENCIES, JudgedSubscription, JudgedWindow, Percentiles

#: Rows of a table; the rest is in the files beside the report.
SUBSCRIPTIONS_MAX = 100
TOP_MAX = 10

_LATENCY_NAMES = {
    "commit_to_announced": "commit to announced",
    "announced_to_consumed": "announced to consumed",
    "commit_to_effect": "commit to effect",
    "commit_to_detected": "commit to detected as lost",
    "detected_to_repaired": "detected to repaired",
}
_LATENCY_COLUMNS: tuple[Column, ...] = (
    ("Topic / group", ""),
    *((words, "n") for words in ("Messages", "Smallest", "50 %", "90 %", "95 %", "99 %", "99.9 %", "Largest")),
    ("Spread", "bar"),
)


def volume_section(judged: JudgedWindow) -> Markup:
    """The chart, its legend, and the same figures as a table."""
    volume = binned_volume(judged)
    bars = volume.bars()
    if not any(sum(bar.stack.values()) for bar in bars):
        return tag("section", tag("h2", "Volume"), tag("p", "No message fell into this window."), id="volume")
    busiest = max(bars, key=lambda bar: sum(bar.stack.values()))
    troubled = sum(1 for bar in bars if bar.violations)
    spoken = (
        f"{len(bars)} bars of {volume.width} each. Most outcomes: {number(sum(busiest.stack.values()))} from "
        f"{busiest.label} UTC. Bars with violations: {troubled}. The table below the chart has every figure."
    )
    charts = [
        volume_chart(bars, size, bars_a_day=volume.bars_a_day, title="Outcomes over time", description=spoken)
        for size in (WIDE, NARROW)
    ]
    shown = [series for series in SERIES if any(bar.stack[series] for bar in bars)]
    columns = [("From", ""), *((SERIES[series][0], "n") for series in shown)]
    rows = [
        table_row(columns, moment(start_ms), *(number(bar.stack[series]) for series in shown))
        for (start_ms, _), bar in zip(volume.bins, bars, strict=True)
        if any(bar.stack.values())
    ]
    return tag(
        "section",
        tag("h2", "Volume"),
        tag("p", f"By the time of the commit (UTC), {volume.width} a bar, each message once a subscription."),
        tag("figure", scrolling(join(charts), "Volume chart"), _legend(shown)),
        tag("details", tag("summary", "The figures as a table"), table(f"Outcomes by {volume.width}", columns, rows)),
        id="volume",
    )


def outcome_section(judged: JudgedWindow) -> Markup:
    """All fifteen classes in total, then the seven groups a subscription."""
    keys = sum(judged.classes.values())
    columns = (("Class", ""), ("Outcomes", "n"), ("Share", "n"), ("Meaning", "words-of"))
    rows = [
        table_row(
            columns,
            (f"{rule.number}. ", tag("code", rule.name)),
            Cell(number(count), "n bad") if rule.violation and count else number(count),
            share(count, keys) if count else "",
            rule.meaning,
            css="zero" if not count else None,
        )
        for rule in RULES
        for count in [judged.classes.get(rule.name, 0)]
    ]
    return tag(
        "section",
        tag("h2", "Outcomes"),
        tag("p", "A message has one outcome a subscription: the first class whose rule matches."),
        table("Outcomes by class", columns, rows),
        tag("h3", "By subscription"),
        _by_subscription(judged),
        id="outcomes",
    )


def _by_subscription(judged: JudgedWindow) -> Markup:
    ranked = sorted(judged.subscriptions, key=lambda one: (-stack_of(one.classes)["violation"], -one.keys, _id(one)))
    numbers = [("Messages", "n"), *((words, "n") for words in COLUMNS.values())]
    columns = [("Topic / group", ""), ("Window", ""), *numbers, ("Outcomes", "bar")]
    rows = [_subscription_row(columns, one) for one in ranked[:SUBSCRIPTIONS_MAX]]
    shown = table("Outcomes by subscription", columns, rows, css="wide")
    return join([_legend(list(SERIES)), shown, _more(len(ranked))])


def _subscription_row(columns: Sequence[Column], one: JudgedSubscription) -> Markup:
    stack = stack_of(one.classes)
    return table_row(
        columns,
        _named(one),
        Cell("closed", "state yes") if one.closed else Cell("open", "state no"),
        number(one.keys),
        *(
            Cell(number(stack[series]), "n bad") if series == "violation" and stack[series] else number(stack[series])
            for series in COLUMNS
        ),
        share_bar(stack, text=words_of(stack)),
    )


def latency_section(judged: JudgedWindow) -> Markup:
    """Percentiles by latency and subscription in one table, so that columns compare; detection and repair too."""
    groups: list[Markup] = []
    for latency, meaning in LATENCIES.items():
        having = [one for one in judged.subscriptions if latency in one.latencies]
        having.sort(key=lambda one: (-one.latencies[latency].p99_ms, _id(one)))
        if having:
            groups.append(_latency_group(latency, meaning, having))
    if not groups:
        groups = [tag("tbody", tag("tr", tag("td", "No message has the two times that a latency needs.", colspan=10)))]
    heads = [tag("th", words, scope="col", class_=css or None) for words, css in _LATENCY_COLUMNS[:-1]]
    scale = tag("th", tag("span", "Spread", class_="unseen"), scale_header(), scope="col", class_="bar")
    caption = tag("caption", "Slowest first. Percentiles are at most 1/128 too large.")
    shown = tag("table", caption, tag("thead", tag("tr", *heads, scale)), *groups, class_="wide")
    return tag(
        "section",
        tag("h2", "Latency"),
        tag("p", "Line: smallest to largest; bar: median to 99 of 100; mark: median; the scale is logarithmic."),
        scrolling(shown, "Latencies"),
        id="latency",
    )


def _latency_group(latency: str, meaning: str, having: list[JudgedSubscription]) -> Markup:
    title = tag("th", tag("b", _LATENCY_NAMES.get(latency, latency).capitalize()), f": {meaning}", colspan=10)
    rows = [_latency_row(one, one.latencies[latency]) for one in having[:SUBSCRIPTIONS_MAX]]
    if (more := _more(len(having))) is not None:
        rows.append(tag("tr", tag("td", more, colspan=10)))
    return tag("tbody", tag("tr", title, class_="group"), *rows)


def _latency_row(one: JudgedSubscription, found: Percentiles) -> Markup:
    times = (
        found.smallest_ms, found.p50_ms, found.p90_ms, found.p95_ms, found.p99_ms, found.p999_ms, found.largest_ms,
    )  # fmt: skip
    spread = Spread(smallest=found.smallest_ms, middle=found.p50_ms, high=found.p99_ms, largest=found.largest_ms)
    text = f"median {duration(found.p50_ms)}, 99 of 100 within {duration(found.p99_ms)}"
    return table_row(
        _LATENCY_COLUMNS,
        _named(one),
        number(found.count),
        *(duration(ms) for ms in times),
        spread_line(spread, text=text),
    )


def top_section(judged: JudgedWindow) -> Markup:
    """Topics and groups with the most violations, then the most outcomes."""
    tables: list[Markup] = []
    for title, part in (("Topics", "topic"), ("Consumer groups", "group")):
        classes: dict[str, Counter[str]] = {}
        for one in judged.subscriptions:
            classes.setdefault(getattr(one.subscription, part), Counter()).update(one.classes)
        tables.append(_top_table(title, {key: stack_of(found) for key, found in classes.items()}))
    return tag("section", tag("h2", "Topics and groups"), tag("div", *tables, class_="pair"), id="top")


def _top_table(title: str, stacks: Mapping[str, Mapping[str, int]]) -> Markup:
    ranked = sorted(stacks.items(), key=lambda item: (-item[1]["violation"], -sum(item[1].values()), item[0]))
    columns = (("Name", ""), ("Outcomes", "n"), ("Violations", "n"), ("Quarantined", "n"), ("Late", "n"))
    rows = [
        table_row(
            columns,
            name(key),
            number(sum(stack.values())),
            Cell(number(stack["violation"]), "n bad") if stack["violation"] else "0",
            number(stack["quarantined"]),
            number(stack["late"]),
        )
        for key, stack in ranked[:TOP_MAX]
    ]
    more = f" (first {TOP_MAX} of {number(len(ranked))})" if len(ranked) > TOP_MAX else ""
    return table(title + more, columns, rows)


def _legend(series: list[str]) -> Markup:
    items = (tag("li", tag("span", class_=f"swatch t-{one}", aria_hidden="true"), SERIES[one][0]) for one in series)
    return tag("ul", *items, class_="legend", aria_label="Colours")


def _named(one: JudgedSubscription) -> tuple[Markup, Markup, Markup]:
    return name(one.subscription.topic), tag("span", " / ", class_="slash"), name(one.subscription.group)


def _id(one: JudgedSubscription) -> tuple[str, str]:
    return one.subscription.topic, one.subscription.group


def _more(count: int) -> Markup | None:
    if count <= SUBSCRIPTIONS_MAX:
        return None
    return tag("p", f"First {SUBSCRIPTIONS_MAX} of {counted(count, 'subscription')}; all are in the files beside.")
