"""The report's figures: volume by hour, outcomes, latencies, the topics and groups with most to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from reconciler.audit.classes import RULES
from reconciler.audit.report.charts import Spread, scale_header, share_bar, spread_line, volume_chart
from reconciler.audit.report.markup import Markup, join, name, tag
from reconciler.audit.report.series import COLUMNS, SERIES, binned_volume, stack_of, words_of
from reconciler.audit.report.words import counted, duration, moment, number, share
from reconciler.audit.result import LATENCIES, JudgedSubscription, JudgedWindow, Percentiles

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


def volume_section(judged: JudgedWindow) -> Markup:
    """The chart, its legend, and the same figures as a table."""
    volume = binned_volume(judged)
    bars = volume.bars()
    if not any(sum(bar.stack.values()) for bar in bars):
        return tag("section", tag("h2", "Volume"), tag("p", "No message fell into this window."), id="volume")
    busiest = max(bars, key=lambda bar: sum(bar.stack.values()))
    troubled = sum(1 for bar in bars if bar.violations)
    spoken = (
        f"{len(bars)} bars of {volume.width} each. Most messages: {number(sum(busiest.stack.values()))} from "
        f"{busiest.label} UTC. Bars with violations: {troubled}. The table below the chart has every figure."
    )
    chart = volume_chart(bars, bars_a_day=volume.bars_a_day, title="Messages over time, by outcome", description=spoken)
    shown = [series for series in SERIES if any(bar.stack[series] for bar in bars)]
    rows = [
        tag(
            "tr",
            tag("th", moment(start_ms), scope="row"),
            *(tag("td", number(bar.stack[series]), class_="n") for series in shown),
        )
        for (start_ms, _), bar in zip(volume.bins, bars, strict=True)
        if any(bar.stack.values())
    ]
    columns = [("From", ""), *((SERIES[series][0], "n") for series in shown)]
    table = tag("table", tag("caption", f"Messages by {volume.width}"), table_head(*columns), tag("tbody", *rows))
    return tag(
        "section",
        tag("h2", "Volume"),
        tag("p", f"By the time of the commit (UTC), {volume.width} a bar, each message once a subscription."),
        tag("figure", scrolling(chart, "Volume chart"), _legend(shown)),
        tag("details", tag("summary", "The figures as a table"), scrolling(table, "Volume as a table")),
        id="volume",
    )


def outcome_section(judged: JudgedWindow) -> Markup:
    """All fifteen classes in total, then the seven groups a subscription."""
    keys = sum(judged.classes.values())
    rows = [
        tag(
            "tr",
            tag("th", f"{rule.number}. ", tag("code", rule.name), scope="row"),
            tag("td", number(count), class_="n" + (" bad" if rule.violation and count else "")),
            tag("td", share(count, keys) if count else "", class_="n"),
            tag("td", rule.meaning, class_="words-of"),
            class_="zero" if not count else None,
        )
        for rule in RULES
        for count in [judged.classes.get(rule.name, 0)]
    ]
    head = table_head(("Class", ""), ("Messages", "n"), ("Share", "n"), ("Meaning", "words-of"))
    caption = tag("caption", "Every message is in the first class whose rule matches")
    return tag(
        "section",
        tag("h2", "Outcomes"),
        scrolling(tag("table", caption, head, tag("tbody", *rows)), "Outcomes by class"),
        tag("h3", "By subscription"),
        _by_subscription(judged),
        id="outcomes",
    )


def _by_subscription(judged: JudgedWindow) -> Markup:
    ranked = sorted(judged.subscriptions, key=lambda one: (-stack_of(one.classes)["violation"], -one.keys, _id(one)))
    rows = [_subscription_row(one) for one in ranked[:SUBSCRIPTIONS_MAX]]
    numbers = [("Messages", "n"), *((words, "n") for words in COLUMNS.values())]
    head = table_head(("Topic / group", ""), ("Window", ""), *numbers, ("Outcomes", "bar"))
    table = tag("table", tag("caption", "Outcomes by subscription"), head, tag("tbody", *rows), class_="wide")
    return join([_legend(list(SERIES)), scrolling(table, "Outcomes by subscription"), _more(len(ranked))])


def _subscription_row(one: JudgedSubscription) -> Markup:
    stack = stack_of(one.classes)
    return tag(
        "tr",
        tag("th", *_named(one), scope="row"),
        tag("td", "closed" if one.closed else "open", class_="state " + ("yes" if one.closed else "no")),
        tag("td", number(one.keys), class_="n"),
        *(
            tag("td", number(stack[series]), class_="n" + (" bad" if series == "violation" and stack[series] else ""))
            for series in COLUMNS
        ),
        tag("td", share_bar(stack, text=words_of(stack)), class_="bar"),
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
    columns = ("Messages", "Smallest", "50 %", "90 %", "95 %", "99 %", "99.9 %", "Largest")
    heads = [tag("th", "Topic / group", scope="col"), *(tag("th", words, scope="col", class_="n") for words in columns)]
    scale = tag("th", tag("span", "Spread", class_="unseen"), scale_header(), scope="col", class_="bar")
    caption = tag("caption", "Slowest first. Percentiles are at most 1/128 too large.")
    table = tag("table", caption, tag("thead", tag("tr", *heads, scale)), *groups, class_="wide latencies")
    return tag(
        "section",
        tag("h2", "Latency"),
        tag("p", "Line: smallest to largest; bar: median to 99 of 100; mark: median; the scale is logarithmic."),
        scrolling(table, "Latencies"),
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
    return tag(
        "tr",
        tag("th", *_named(one), scope="row"),
        tag("td", number(found.count), class_="n"),
        *(tag("td", duration(ms), class_="n") for ms in times),
        tag("td", spread_line(spread, text=text), class_="bar"),
    )


def top_section(judged: JudgedWindow) -> Markup:
    """Topics and groups with the most violations, then the most messages."""
    tables: list[Markup] = []
    for title, part in (("Topics", "topic"), ("Consumer groups", "group")):
        classes: dict[str, Counter[str]] = {}
        for one in judged.subscriptions:
            classes.setdefault(getattr(one.subscription, part), Counter()).update(one.classes)
        tables.append(_top_table(title, {key: stack_of(found) for key, found in classes.items()}))
    return tag("section", tag("h2", "Topics and groups"), tag("div", *tables, class_="pair"), id="top")


def _top_table(title: str, stacks: Mapping[str, Mapping[str, int]]) -> Markup:
    ranked = sorted(stacks.items(), key=lambda item: (-item[1]["violation"], -sum(item[1].values()), item[0]))
    rows = [
        tag(
            "tr",
            tag("th", name(key), scope="row"),
            tag("td", number(sum(stack.values())), class_="n"),
            tag("td", number(stack["violation"]), class_="n" + (" bad" if stack["violation"] else "")),
            tag("td", number(stack["quarantined"]), class_="n"),
            tag("td", number(stack["late"]), class_="n"),
        )
        for key, stack in ranked[:TOP_MAX]
    ]
    head = table_head(("Name", ""), ("Messages", "n"), ("Violations", "n"), ("Quarantined", "n"), ("Late", "n"))
    more = f" (first {TOP_MAX} of {number(len(ranked))})" if len(ranked) > TOP_MAX else ""
    return scrolling(tag("table", tag("caption", title + more), head, tag("tbody", *rows)), title)


def table_head(*columns: tuple[str, str]) -> Markup:
    """Column headers: words and CSS class."""
    return tag("thead", tag("tr", *(tag("th", words, scope="col", class_=css or None) for words, css in columns)))


def scrolling(content: Markup, label: str) -> Markup:
    """Wide content scrolls in itself on a narrow screen, also by keyboard."""
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


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
