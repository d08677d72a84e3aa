"""Figures of the report: volume by hour, outcomes, latencies, and the worst topics and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from reconciler.audit.report.charts import NARROW, WIDE, Spread, scale_header, share_bar, spread_line, volume_chart
from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.series import COLUMNS, SERIES, binned_volume, stack_of, words_of
from reconciler.audit.report.tables import Cell, Column, scrolling, table, table_row
from reconciler.audit.report.texts import Texts
from reconciler.audit.report.words import duration, moment, number, share
from reconciler.audit.result.classes import RULES
from reconciler.audit.result.values import LATENCIES, JudgedSubscription, JudgedWindow, Percentiles

#: Largest number of rows of a table. The files beside the report have all rows.
SUBSCRIPTIONS_MAX = 100
TOP_MAX = 10


def _latency_columns(texts: Texts) -> tuple[Column, ...]:
    percents = ((words, "n") for words in ("50 %", "90 %", "95 %", "99 %", "99.9 %"))
    return (
        (texts("column.subscription"), ""),
        (texts("column.messages"), "n"),
        (texts("column.smallest"), "n"),
        *percents,
        (texts("column.largest"), "n"),
        (texts("column.spread"), "bar"),
    )


def volume_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Draws the chart with its legend, and the same figures as a table."""
    volume = binned_volume(judged)
    bars, width = volume.bars(texts), volume.width(texts)
    if not any(sum(bar.stack.values()) for bar in bars):
        return tag("section", tag("h2", texts("section.volume")), tag("p", texts("volume.none")), id="volume")
    busiest = max(bars, key=lambda bar: sum(bar.stack.values()))
    troubled = sum(1 for bar in bars if bar.violations)
    most = number(sum(busiest.stack.values()))
    spoken = texts("volume.spoken", bars=len(bars), width=width, most=most, busiest=busiest.label, troubled=troubled)
    panels = (texts("volume.outcomes"), texts("volume.violations"))
    title = texts("volume.over-time")
    charts = [
        volume_chart(bars, size, bars_a_day=volume.bars_a_day, title=title, description=spoken, panels=panels)
        for size in (WIDE, NARROW)
    ]
    shown = [series for series in SERIES if any(bar.stack[series] for bar in bars)]
    columns = [(texts("column.from"), ""), *((texts(f"series.{series}"), "n") for series in shown)]
    rows = [
        table_row(columns, moment(start_ms), *(number(bar.stack[series]) for series in shown))
        for (start_ms, _), bar in zip(volume.bins, bars, strict=True)
        if any(bar.stack.values())
    ]
    return tag(
        "section",
        tag("h2", texts("section.volume")),
        tag("p", texts("volume.lead", width=width)),
        tag("figure", scrolling(join(charts), texts("volume.chart")), _legend(shown, texts)),
        tag(
            "details",
            tag("summary", texts("volume.as-table")),
            table(texts("volume.outcomes-by", width=width), columns, rows),
        ),
        id="volume",
    )


def outcome_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists the total of each class. Then lists groups of classes per subscription."""
    keys = sum(judged.classes.values())
    columns = (
        (texts("column.class"), ""),
        (texts("column.outcomes"), "n"),
        (texts("column.share"), "n"),
        (texts("column.meaning"), "words-of"),
    )
    rows = [
        table_row(
            columns,
            (f"{rule.number}. ", tag("code", rule.name)),
            Cell(number(count), "n bad") if rule.violation and count else number(count),
            share(count, keys) if count else "",
            texts(f"meaning.{rule.name}"),
            css="zero" if not count else None,
        )
        for rule in RULES
        for count in [judged.classes.get(rule.name, 0)]
    ]
    return tag(
        "section",
        tag("h2", texts("section.outcomes")),
        tag("p", texts("outcomes.lead")),
        table(texts("outcomes.by-class"), columns, rows),
        tag("h3", texts("outcomes.of-each")),
        _by_subscription(judged, texts),
        id="outcomes",
    )


def _by_subscription(judged: JudgedWindow, texts: Texts) -> Markup:
    ranked = sorted(judged.subscriptions, key=lambda one: (-stack_of(one.classes)["violation"], -one.keys, _id(one)))
    numbers = [(texts("column.messages"), "n"), *((texts(f"of-series.{series}"), "n") for series in COLUMNS)]
    columns = [
        (texts("column.subscription"), ""),
        (texts("column.window"), ""),
        *numbers,
        (texts("column.outcomes"), "bar"),
    ]
    rows = [_subscription_row(columns, one, texts) for one in ranked[:SUBSCRIPTIONS_MAX]]
    shown = table(texts("outcomes.by-subscription"), columns, rows, css="wide")
    return join([_legend(list(SERIES), texts), shown, _more(len(ranked), texts)])


def _subscription_row(columns: Sequence[Column], one: JudgedSubscription, texts: Texts) -> Markup:
    stack = stack_of(one.classes)
    return table_row(
        columns,
        _named(one),
        Cell(texts("window.closed"), "state yes") if one.closed else Cell(texts("window.open"), "state no"),
        number(one.keys),
        *(
            Cell(number(stack[series]), "n bad") if series == "violation" and stack[series] else number(stack[series])
            for series in COLUMNS
        ),
        share_bar(stack, text=words_of(stack, texts)),
    )


def latency_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists percentiles by latency and subscription.

    One table has all of them, so that a reader can compare columns.
    """
    groups: list[Markup] = []
    for latency in LATENCIES:
        having = [one for one in judged.subscriptions if latency in one.latencies]
        having.sort(key=lambda one: (-one.latencies[latency].p99_ms, _id(one)))
        if having:
            groups.append(_latency_group(latency, having, texts))
    if not groups:
        groups = [tag("tbody", tag("tr", tag("td", texts("latency.none"), colspan=10)))]
    *columns, (spread, _) = _latency_columns(texts)
    heads = [tag("th", words, scope="col", class_=css or None) for words, css in columns]
    scale = tag("th", tag("span", spread, class_="unseen"), scale_header(), scope="col", class_="bar")
    caption = tag("caption", texts("latency.caption"))
    shown = tag("table", caption, tag("thead", tag("tr", *heads, scale)), *groups, class_="wide")
    return tag(
        "section",
        tag("h2", texts("section.latency")),
        tag("p", texts("latency.lead")),
        scrolling(shown, texts("latency.all")),
        id="latency",
    )


def _latency_group(latency: str, having: list[JudgedSubscription], texts: Texts) -> Markup:
    named = tag("b", texts(f"latency-name.{latency}"))
    title = tag("th", texts.marked("latency.title", name=named, meaning=texts(f"latency-of.{latency}")), colspan=10)
    rows = [_latency_row(one, one.latencies[latency], texts) for one in having[:SUBSCRIPTIONS_MAX]]
    if (more := _more(len(having), texts)) is not None:
        rows.append(tag("tr", tag("td", more, colspan=10)))
    return tag("tbody", tag("tr", title, class_="group"), *rows)


def _latency_row(one: JudgedSubscription, found: Percentiles, texts: Texts) -> Markup:
    times = (
        found.smallest_ms, found.p50_ms, found.p90_ms, found.p95_ms, found.p99_ms, found.p999_ms, found.largest_ms,
    )  # fmt: skip
    spread = Spread(smallest=found.smallest_ms, middle=found.p50_ms, high=found.p99_ms, largest=found.largest_ms)
    text = texts("latency.spoken", median=duration(found.p50_ms), most=duration(found.p99_ms))
    return table_row(
        _latency_columns(texts),
        _named(one),
        number(found.count),
        *(duration(ms) for ms in times),
        spread_line(spread, text=text),
    )


def top_section(judged: JudgedWindow, texts: Texts) -> Markup:
    """Lists topics and groups. The most violations come first, and among equals the most outcomes."""
    tables: list[Markup] = []
    for title, part in ((texts("top.topics"), "topic"), (texts("top.groups"), "group")):
        classes: dict[str, Counter[str]] = {}
        for one in judged.subscriptions:
            classes.setdefault(getattr(one.subscription, part), Counter()).update(one.classes)
        tables.append(_top_table(title, {key: stack_of(found) for key, found in classes.items()}, texts))
    return tag("section", tag("h2", texts("section.top")), tag("div", *tables, class_="pair"), id="top")


def _top_table(title: str, stacks: Mapping[str, Mapping[str, int]], texts: Texts) -> Markup:
    ranked = sorted(stacks.items(), key=lambda item: (-item[1]["violation"], -sum(item[1].values()), item[0]))
    columns = (
        (texts("column.name"), ""),
        (texts("column.outcomes"), "n"),
        *((texts(f"of-series.{series}"), "n") for series in ("violation", "quarantined", "late")),
    )
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
    if len(ranked) > TOP_MAX:
        title = texts("top.first", title=title, shown=TOP_MAX, all=number(len(ranked)))
    return table(title, columns, rows)


def _legend(series: list[str], texts: Texts) -> Markup:
    items = (
        tag("li", tag("span", class_=f"swatch t-{one}", aria_hidden="true"), texts(f"series.{one}")) for one in series
    )
    return tag("ul", *items, class_="legend", aria_label=texts("colours"))


def _named(one: JudgedSubscription) -> tuple[Markup, Markup, Markup]:
    return name(one.subscription.topic), tag("span", " / ", class_="slash"), name(one.subscription.group)


def _id(one: JudgedSubscription) -> tuple[str, str]:
    return one.subscription.topic, one.subscription.group


def _more(count: int, texts: Texts) -> Markup | None:
    if count <= SUBSCRIPTIONS_MAX:
        return None
    whole = texts.counted(count, "subscription")
    return tag("p", texts("outcomes.first", shown=SUBSCRIPTIONS_MAX, subscriptions=whole))
