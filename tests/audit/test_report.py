"""The report: complete, escaped, bounded, readable by machines that read to people, and nothing in it leads outside."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from typing import get_args

import pytest

from reconciler.audit.errors import ReasonWithheld
from reconciler.audit.report.findings import VIOLATIONS_MAX, fair_shares
from reconciler.audit.report.markup import join, tag
from reconciler.audit.report.page import report_html
from reconciler.audit.report.series import BARS_MAX, SERIES, binned_volume
from reconciler.audit.report.words import duration, in_zone, share
from reconciler.audit.result.classes import BY_NAME, RULES, VIOLATIONS
from reconciler.audit.result.values import JudgedWindow, NoAnswer
from reconciler.contract.visible_text import visible
from tests.audit import judged_samples

#: What a page is made of: a name that no browser knows has no look and is no heading, cell or caption to a reader.
_HTML = (
    "a b bdi body caption code dd details div dl dt figure footer h1 h2 h3 head header html input label li link main "
    "meta nav output p script section span strong style summary table tbody td th thead title tr ul"
)
_SVG = "desc g line rect svg text title"
_VOID = {"meta", "link", "input", "br", "hr", "col"}


@dataclass
class Element:
    name: str
    attributes: dict[str, str | None]
    content: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        return [one for one in self.content if isinstance(one, Element)]

    def all(self, name: str) -> list[Element]:
        found = [self] if self.name == name else []
        return found + [one for child in self.children for one in child.all(name)]

    @property
    def text(self) -> str:
        return "".join(one if isinstance(one, str) else one.text for one in self.content)


class Page(HTMLParser):
    """Builds the tree and fails at the first tag that is not closed where it should be."""

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]
        self.feed(data.decode("utf-8"))
        self.close()
        assert [one.name for one in self.open] == [""], "tags that are never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        assert len(element.attributes) == len(attrs), f"doubled attribute in <{tag}>"
        self.open[-1].content.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().name == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)

    def all(self, name: str) -> list[Element]:
        return self.root.all(name)

    @property
    def elements(self) -> list[Element]:
        def below(one: Element) -> list[Element]:
            return [one, *(each for child in one.children for each in below(child))]

        return below(self.root)


@cache
def raw(name: str) -> bytes:
    return report_html(judged_samples.SAMPLES[name](), zone="Asia/Shanghai")


@cache
def page(name: str) -> Page:
    return Page(raw(name))


every_sample = pytest.mark.parametrize("name", list(judged_samples.SAMPLES))


@every_sample
def test_nothing_in_the_page_leads_outside(name: str) -> None:
    for element in page(name).elements:
        for attribute, value in element.attributes.items():
            assert attribute not in {"src", "srcset", "action", "formaction", "data", "poster", "style", "background"}
            assert not attribute.startswith("on"), attribute
            if attribute in {"href", "xlink:href"}:
                assert value == "data:," or re.fullmatch(r"#[a-z-]+", value or ""), value
    assert {one.name for one in page(name).elements}.isdisjoint({"iframe", "object", "embed", "img", "base", "form"})
    text = raw(name).decode()
    style = page(name).all("style")[0].text
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"(https?:)?//[a-z]", re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL))


@every_sample
def test_the_policy_allows_the_page_s_own_style_and_script_and_nothing_else(name: str) -> None:
    (policy,) = [
        str(meta.attributes["content"])
        for meta in page(name).all("meta")
        if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for kind in ("style", "script"):
        (element,) = page(name).all(kind)
        digest = base64.b64encode(hashlib.sha256(element.text.encode()).digest()).decode()
        assert rules.pop(f"{kind}-src") == f"'sha256-{digest}'"
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_hostile_names_stay_names() -> None:
    text = raw("hostile").decode()
    shown = page("hostile").root.text
    assert len(page("hostile").all("script")) == 1
    for name in judged_samples.HOSTILE_NAMES:
        assert visible(name) in shown, name
    assert not set(text) & set("\x00\x1b\u202e\u202c")


def test_what_cannot_be_seen_is_shown_as_its_number() -> None:
    assert visible("a\u202eb\x00c\u200bd\ud800") == "a\\u{202E}b\\u{0000}c\\u{200B}d\\u{D800}"
    assert visible("\u0645\u062f\u0641 Zürich 支付") == "\u0645\u062f\u0641 Zürich 支付"
    assert tag("p", "<&\"'>", title="\"'<") == '<p title="&quot;&#x27;&lt;">&lt;&amp;&quot;&#x27;&gt;</p>'
    assert join(["<", None, tag("b", 1)], "&") == "&lt;&amp;<b>1</b>"


@pytest.mark.parametrize("name", ["violations", "no-answer", "hostile"])
def test_every_violation_has_key_rule_evidence_and_command(name: str) -> None:
    judged = judged_samples.SAMPLES[name]()
    section = violations_of(name)
    rows = rows_of(section)
    wanted = [one for one in judged.findings if one.class_name in VIOLATIONS]
    assert len(rows) == len(wanted) > 0
    for one in wanted:
        (row,) = [
            row
            for row in rows
            if f"reconciler explain {one.key}" in row.text and visible(f"{one.topic} / {one.group}") in row.text
        ]
        for fact, value in one.evidence.items():
            assert visible(fact.removesuffix("_ms").replace("_", " ")) in row.text
            if isinstance(value, str):
                assert visible(value) in row.text
        assert BY_NAME[one.class_name].rule in section.text


def test_times_of_evidence_are_moments_and_stand_in_their_order() -> None:
    rows = [row.text for row in page("violations").all("tr") if "outbox digest" in row.text]
    assert "created at2026-11-20 10:00:00 UTC" in rows[0]
    assert "applied at2026-11-20 10:00:00.740 UTC +740 ms" in rows[0]
    assert rows[0].index("created at") < rows[0].index("applied at") < rows[0].index("first sent at")
    assert "late by 99,260 ms" in rows[0]
    assert "loss verdict unknown" in rows[0]


def violations_of(name: str) -> Element:
    (section,) = [one for one in page(name).all("section") if one.attributes.get("id") == "violations"]
    return section


def rows_of(section: Element) -> list[Element]:
    tables = [table for table in section.all("table") if table.attributes.get("class") == "findings"]
    return [row for table in tables for row in table.all("tbody")[0].all("tr")]


def test_more_violations_than_a_page_holds_are_counted_and_not_dropped_in_silence() -> None:
    section = violations_of("huge")
    beyond = judged_samples.huge().violations - VIOLATIONS_MAX
    assert len(rows_of(section)) == VIOLATIONS_MAX
    assert f"1,000 are shown here. {beyond:,} more are in findings.json and findings.parquet" in section.text
    assert len(raw("huge")) < 3_000_000


def test_on_a_bad_day_no_class_hides_another() -> None:
    section = violations_of("bad-day")
    assert [one.text for one in section.all("h3")] == [
        "LOST: 9,000, 3.08 % of all outcomes",
        "DOUBLE_EFFECT: 4,000, 1.37 % of all outcomes",
        "EFFECT_WITHOUT_COMMIT: 3,000, 1.03 % of all outcomes",
    ]
    tables = [table for table in section.all("table") if table.attributes.get("class") == "findings"]
    assert [len(table.all("tbody")[0].all("tr")) for table in tables] == [334, 333, 333]
    groups = [{row.all("td")[0].text for row in table.all("tbody")[0].all("tr")} for table in tables]
    assert groups == [{"ORDERS / billing", "ORDERS / stock"}, {"ORDERS / stock"}, {"ORDERS / billing"}]
    for more, name in (("8,666", "LOST"), ("3,667", "DOUBLE_EFFECT"), ("2,667", "EFFECT_WITHOUT_COMMIT")):
        assert f"{more} more are in findings.json and findings.parquet (class {name})" in section.text
    overview = [row.text for row in section.all("table")[0].all("tbody")[0].all("tr")]
    assert overview[0] == "LOST9,00056.25 %3.08 %334"
    (verdict,) = page("bad-day").all("header")
    assert "9,000 LOST, 4,000 DOUBLE_EFFECT, 3,000 EFFECT_WITHOUT_COMMIT." in verdict.text
    (others,) = [one for one in page("bad-day").all("section") if one.attributes.get("id") == "others"]
    assert "200 are shown here. 100 more are in findings.json" in others.text


def test_a_class_of_which_nothing_is_listed_has_its_heading_and_says_so() -> None:
    judged = judged_samples.bad_day()
    kept = tuple(one for one in judged.findings if one.class_name != "LOST")
    judged = replace(judged, findings=kept, findings_omitted={"LOST": 9_000})
    shown = Page(report_html(judged)).root.text
    assert "LOST: 9,000, 3.08 % of all outcomes" in shown
    assert "0 are shown here. 9,000 are counted and listed nowhere: audit a shorter window" in shown


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        ({"a": 3_000, "b": 4_000, "c": 9_000}, {"a": 333, "b": 333, "c": 334}),
        ({"a": 1, "b": 5_000, "c": 5_000}, {"a": 1, "b": 499, "c": 500}),
        ({"a": 0, "b": 7}, {"a": 0, "b": 7}),
        ({}, {}),
    ],
)
def test_rows_are_shared_fairly(wanted: dict[str, int], shares: dict[str, int]) -> None:
    assert fair_shares(wanted, 1_000) == shares


@pytest.mark.parametrize(("zone", "more"), [("UTC", []), ("Asia/Shanghai", ["The same in Asia/Shanghai"])])
def test_what_the_audit_covers_and_rests_on_is_told_at_the_top(zone: str, more: list[str]) -> None:
    found = Page(report_html(judged_samples.SAMPLES["clean"](), zone=zone))
    assert [one.text for one in found.root.all("dt")][: 7 + len(more)] == [
        *("Environment", "Window", "Length"),
        *more,
        *("Ages as of", "Evidence collected", "Judged", "Clocks may differ by"),
    ]


def test_messages_and_their_outcomes_in_several_subscriptions_are_told_apart() -> None:
    (verdict,) = page("violations").all("header")
    assert "among 192,675 messages with 376,898 outcomes in 3 subscriptions" in verdict.text
    tiles = [one.text for one in page("violations").all("li") if "tile" in str(one.attributes.get("class"))]
    assert tiles[:2] == ["192,675messages", "376,898outcomes: messages a subscription"]
    one = judged_samples.judged_window([judged_samples.judged_subscription("T", "g", {"EFFECT_IN_TIME": 5})], [])
    assert "5 messages in 1 subscription judged" in Page(report_html(one)).root.text


def test_what_the_business_calls_a_message_stands_beside_its_key() -> None:
    (header,) = [one for one in violations_of("violations").all("th") if "ORDER-2026-004711" in one.text]
    assert f"reconciler explain {judged_samples.key_of(7, 32)}" in header.text
    shown = violations_of("hostile")
    for text in judged_samples.HOSTILE_NAMES:
        assert any(f"business id {visible(text)} of business" in one.text for one in shown.all("th"))


def test_no_answer_never_looks_clean() -> None:
    (headline,) = page("no-answer").all("h1")
    (verdict,) = page("no-answer").all("header")
    assert headline.text == "No answer"
    assert "no-answer" in str(verdict.attributes["class"])
    assert "The history lacks rows of ORDERS/billing; audit another window. Among what could be judged" in verdict.text
    assert "the disk was full" in page("no-answer").root.text
    assert "No violation" not in page("no-answer").root.text


@pytest.mark.parametrize("reason", get_args(ReasonWithheld))
def test_why_there_is_no_answer_stands_before_what_is_to_be_done(reason: ReasonWithheld) -> None:
    no_answer = NoAnswer(reason=reason, message="audit another")
    withheld = replace(judged_samples.SAMPLES["no-answer"](), no_answer=no_answer)
    (header,) = Page(report_html(withheld, zone="UTC")).all("header")
    why = {
        "inputs": "Evidence is missing, unreadable or altered",
        "gap": "The history lacks rows of this window",
        "window": "The window is not closed yet",
        "configuration": "Settings or packages are not as they must be",
        "engine": "The audit did not come to its end",
    }
    assert f"{why[reason]}. audit another. Among what could be judged" in header.text


@pytest.mark.parametrize(
    ("name", "headline"),
    [
        ("clean", "No violation"),
        ("violations", "8 violations"),
        ("empty", "No violation: no message fell into this window"),
    ],
)
def test_the_headline_says_what_was_found(name: str, headline: str) -> None:
    assert [one.text for one in page(name).all("h1")] == [headline]


def of_halves(name: str, *places: int) -> JudgedWindow:
    """The sample, with subscriptions whose half messages announce."""
    judged = judged_samples.SAMPLES[name]()
    subscriptions = tuple(
        replace(one, subscription=replace(one.subscription, of_halves=place in places))
        for place, one in enumerate(judged.subscriptions)
    )
    return replace(judged, subscriptions=subscriptions)


@pytest.mark.parametrize(
    ("name", "places", "headline", "said"),
    [
        ("clean", (0, 1), "No violation among the halves of the window", "Of 2 subscriptions the halves"),
        ("clean", (1,), "No violation", "Of 1 subscription the halves of the window that were read were judged"),
        ("empty", (0,), "Nothing to judge: no half message of this window was read", "Of 1 subscription the halves"),
        ("violations", (0, 1, 2, 3, 4, 5), "8 violations", "Found in"),
    ],
)
def test_a_headline_says_where_halves_were_judged_and_no_commits(
    name: str, places: tuple[int, ...], headline: str, said: str
) -> None:
    shown = Page(report_html(of_halves(name, *places), zone="UTC"))
    (header,) = shown.all("header")
    assert [one.text for one in shown.all("h1")] == [headline]
    assert said in header.text
    title = shown.all("head")[0].all("title")[0]
    whole = {"clean": headline, "empty": "No violation among the halves", "violations": "Violations: audit"}[name]
    assert title.text.startswith(whole)


def test_what_was_not_checked_stands_beside_what_was() -> None:
    (section,) = [one for one in page("violations").all("section") if one.attributes.get("id") == "checked"]
    rows = {row.all("code")[0].text: row.text for row in section.all("tbody")[0].all("tr")}
    assert set(rows) == VIOLATIONS
    assert "DOUBLE_EFFECTnone0The message" in rows["DOUBLE_EFFECT"]
    assert "EFFECT_WITHOUT_COMMIT2 of 31A consumer" in rows["EFFECT_WITHOUT_COMMIT"]
    assert "LOSTall4A committed" in rows["LOST"]
    assert "the outbox of producer group refunds was not given" in section.text
    (verdict,) = page("violations").all("header")
    assert "Not every rule could be checked" in verdict.text


@every_sample
def test_tables_and_charts_can_be_read_aloud(name: str) -> None:
    ids = Counter(one.attributes["id"] for one in page(name).elements if "id" in one.attributes)
    assert max(ids.values()) == 1
    for table in page(name).all("table"):
        assert len(table.all("caption")) == 1
        assert all(
            one.attributes.get("scope") in {"col", "row"} or "colspan" in one.attributes for one in table.all("th")
        )
    for chart in page(name).all("svg"):
        labelled = [str(one) for one in str(chart.attributes.get("aria-labelledby", "")).split()]
        assert chart.attributes.get("aria-hidden") == "true" or (
            chart.attributes.get("role") == "img" and (chart.attributes.get("aria-label") or labelled)
        )
        assert all(ids[one] == 1 for one in labelled)
    for link in page(name).all("a"):
        assert ids[str(link.attributes["href"])[1:]] == 1
    assert [one.attributes.get("lang") for one in page(name).all("html")] == ["en"]


def test_every_element_is_one_of_html_or_svg_and_every_class_has_a_style() -> None:
    elements = [one for name in judged_samples.SAMPLES for one in page(name).elements if one.name]
    assert {one.name for one in elements} == {*_HTML.split(), *_SVG.split()}
    (style,) = {one.text for one in elements if one.name == "style"}
    given = {css for one in elements for css in (one.attributes.get("class") or "").split()}
    assert given == set(re.findall(r"\.([a-z][\w-]*)", style))


def test_without_scripts_there_is_no_dead_control() -> None:
    (field_,) = [one for one in page("violations").all("p") if one.attributes.get("class") == "filter"]
    assert "hidden" in field_.attributes


def test_every_class_of_the_list_is_in_exactly_one_series() -> None:
    members = [name for classes in SERIES.values() for name in classes]
    assert sorted(members) == sorted(rule.name for rule in RULES)


@pytest.mark.parametrize("hours", [1, 23, 24, 120, 121, 25 * 24, 366 * 24, 20 * 366 * 24])
def test_any_window_fits_into_the_chart_without_losing_a_message(hours: int) -> None:
    one = judged_samples.judged_subscription("T", "g", {"LOST": 3, "EFFECT_IN_TIME": 900}, hours=min(hours, 1000))
    volume = binned_volume(judged_samples.judged_window([one], [], hours=hours))
    assert len(volume.bins) <= BARS_MAX
    assert sum(sum(classes.values()) for _, classes in volume.bins) == 903
    starts = [start for start, _ in volume.bins]
    assert all(b - a == volume.bin_hours * 3_600_000 for a, b in pairwise(starts))


def test_words_are_never_rounded_into_something_else() -> None:
    assert [share(*pair) for pair in ((0, 0), (0, 9), (9, 9), (1, 10**6), (10**6 - 1, 10**6), (1, 3))] == [
        "-", "0 %", "100 %", "< 0.01 %", "> 99.99 %", "33.33 %",
    ]  # fmt: skip
    assert [duration(ms) for ms in (0, 999, 1_250, 59_990, 60_000, 3_599_000, 7_500_000, 90_000_000)] == [
        "0 ms", "999 ms", "1.25 s", "59.99 s", "1 min", "59 min 59 s", "2 h 5 min", "1 d 1 h",
    ]  # fmt: skip
    assert in_zone(judged_samples.START_MS, "Asia/Kolkata") == "2026-11-20 05:30:00 +05:30"
    assert in_zone(judged_samples.START_MS, "No/Where") is None
