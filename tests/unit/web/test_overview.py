"""The first page says what `status` says, in every language, and what to press; nothing on it is obeyed."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.commands.acts.acknowledgement import ACKNOWLEDGED
from reconciler.commands.status.report import StatusReport
from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import Verdict
from reconciler.policy.ports.rounds import PendingKey
from reconciler.telling.account import Link, account_of, rounds_link, verdicts_link
from reconciler.telling.lag import Lag
from reconciler.telling.ports.activity import Activity, ActivityBucket
from reconciler.web.console.next_steps import NextStep, next_steps
from reconciler.web.console.overview import CALM_CARDS_MAX, INCIDENT_LINES_MAX, activity_document, severity
from reconciler.web.services import WebServices
from reconciler.words import LANGUAGES, said
from tests.unit.web.console_world import HOSTILE, asked, page_of, services_of, settings_of
from tests.unit.web.reports import (
    FAILED,
    HELD,
    LOST,
    NOW_MS,
    OPEN,
    ORDERS,
    QUARANTINED,
    REPAIRED,
    REPORTS,
    fact_of,
    facts_of,
    report_of,
    status_of,
)

BUCKET = ActivityBucket(
    from_ms=NOW_MS, announced=7, matched=5, losses=2, repairs=1, detection_mean_ms=1_500, detection_max_ms=2_000
)
UNREAD = ActivityBucket(
    from_ms=NOW_MS - 60_000,
    announced=None,
    matched=None,
    losses=0,
    repairs=0,
    detection_mean_ms=None,
    detection_max_ms=None,
)


class Shown:
    """Services whose status and activity are given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
        self.services = services_of(settings_of(folder, **variables))
        self._monkeypatch = monkeypatch
        self.activity(Activity(width_ms=60_000, buckets=[UNREAD, BUCKET]))

    def status(self, report: StatusReport) -> None:
        self._monkeypatch.setattr(WebServices, "newest_status", lambda _services: report)

    def activity(self, found: Activity | None) -> None:
        for reading in self.services.activities.values():
            self._monkeypatch.setattr(type(reading), "get", lambda _reading, _interval_seconds=None: found)

    def page(self, address: str = "/", *, language: str = "en") -> str:
        return page_of(self.services, address, language)


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    return Shown(tmp_path, monkeypatch)


@pytest.mark.parametrize(("language", "more"), [("en", "more than 100000"), ("zh", "超过 100000")])
def test_rows_that_were_not_all_counted_are_told_by_an_exact_number(shown: Shown, language: str, more: str) -> None:
    report = REPORTS["a person is needed for more than are counted"]
    shown.status(report)
    text = re.sub(r"<[^>]+>", "", shown.page(language=language))
    assert len(re.findall(rf"{more}(?!\d)", text)) == 13, "the incident and its cause, too"
    assert not re.search(r"10000[1-9]", text)
    rows = {title: [list(map(str, row)) for row in rows] for title, _, rows in report.tables()}
    assert all("more than 100000" in row for row in rows["Verdicts"])
    assert [row[-1] for row in rows["Repairs"]] == ["100000", "7"]


def sentence_on(page: str) -> str:
    """The text of the first line, each time as it is in the datetime attribute, commands as status marks them."""
    (found,) = re.findall(r'<h[12] id="sentence">(.*?)</h[12]>', page, re.DOTALL)
    times = re.sub(r'<time datetime="([^"]+)">[^<]+</time>', r"\1", found)
    return html.unescape(re.sub(r"</?span[^>]*>", "", re.sub(r"</?code>", "`", times)))


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_says_what_the_command_says(shown: Shown, name: str) -> None:
    shown.status(REPORTS[name])
    assert sentence_on(shown.page()) == said(REPORTS[name].summary)


@pytest.mark.parametrize("name", REPORTS)
def test_the_sentence_of_every_language_has_the_same_values(shown: Shown, name: str) -> None:
    shown.status(REPORTS[name])
    english, chinese = sentence_on(shown.page()), sentence_on(shown.page(language="zh"))
    assert english != chinese
    values = r"[0-9T:Z-]{2,}|\b\d+\b|ORDERS(?:/billing)?|PAYMENTS|`[^`]+`|nobody reads it"
    assert sorted(re.findall(values, chinese)) == sorted(re.findall(values, english))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("calm", "good"),
        ("losses on their way back", "notice"),
        ("held", "notice"),
        ("nothing yet", "notice"),
        ("a person is needed", "warn"),
        ("damaged", "warn"),
        ("away", "bad"),
        ("late", "bad"),
        ("a loss without a repair", "bad"),
    ],
)
def test_an_alarm_looks_like_none_of_the_others_and_not_by_colour_alone(shown: Shown, name: str, expected: str) -> None:
    shown.status(REPORTS[name])
    assert severity(REPORTS[name]) == expected
    words = {"good": "All is well", "notice": "To be noted", "warn": "A person is needed", "bad": "Alarm"}
    mark = re.search(r'<p class="mark">(.*?)</p>', shown.page(), re.DOTALL)
    assert mark
    assert words[expected] in mark[1]


def test_each_trouble_leads_to_the_page_that_ends_it_and_calm_to_none() -> None:
    assert not list(next_steps(report_of()))
    found = report_of(
        status_of(late=("nobody reads it",), lag=Lag(subscription=ORDERS, waiting=1, since_ms=1)),
        away=facts_of("Redis"),
        verdicts=(QUARANTINED, LOST, REPAIRED),
        repairs=(FAILED,),
        holds=(HELD, OPEN),
        undecided=facts_of("one"),
        damaged=facts_of("one"),
        handed_out=facts_of("one"),
    )
    assert [step.name for step in next_steps(found)] == [
        "away", "late", "quarantined", "failed", "breaker", "lost", "undecided", "damaged", "lagging", "handed_out",
        "held",
    ]  # fmt: skip
    assert {step.name: step.count for step in next_steps(found) if step.count} == {
        "quarantined": 3,
        "failed": 2,
        "lost": 3,
    }
    runbooks = Path(__file__).parents[3] / "docs/runbooks"
    assert all((runbooks / f"{step.runbook}.md").is_file() for step in next_steps(found) if step.runbook)


def test_rounds_that_stand_still_lead_to_a_page_that_says_nothing_of_them() -> None:
    def first_step(*links: Link) -> NextStep:
        account = account_of(ORDERS, links, asked_ms=NOW_MS, within_ms=1, is_given=True)
        return next(next_steps(report_of(status_of(accounted=account))))

    never = rounds_link([], shards=1, asked_ms=NOW_MS)
    unjudged = verdicts_link(PendingKey(unique_key="K", first_seen_ms=1), asked_ms=NOW_MS)
    swept = Link(until_ms=2, cause=fact_of("no sweep"))
    for link in (never, unjudged):
        step = first_step(swept, link)
        assert (step.path, step.query) == ("/rounds", {"topic": "ORDERS", "group": "billing"})
    unswept = Link(until_ms=None, cause=fact_of("no sweep"))
    assert first_step(unswept, unjudged).path == "/health", "as the sentence says"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("address", ["/", "/overview/now", "/overview/activity?hours=72"])
def test_names_and_causes_from_outside_are_shown_and_not_obeyed(shown: Shown, address: str, language: str) -> None:
    of = Subscription(environment="e", topic=HOSTILE, group=HOSTILE)
    shown.status(
        report_of(
            status_of(of, late=(HOSTILE,), weaker=facts_of(HOSTILE)),
            away=facts_of(HOSTILE),
            holds=(HELD, OPEN),
            damaged=facts_of(HOSTILE),
            rejected=facts_of(HOSTILE),
        )
    )
    page = shown.page(address, language=language)
    assert "<script>" not in page
    assert not set(page) & {"\x1b", "\u202e"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_card_tells_what_is_lost_and_since_when(shown: Shown, language: str) -> None:
    shown.status(report_of(verdicts=(QUARANTINED, LOST, REPAIRED)))
    page = shown.page(language=language)
    assert re.search(r"<strong><a [^>]+state=OPEN[^>]*>3</a></strong>", page)
    assert '<time datetime="2023-11-14T21:13:20Z">' in page


@pytest.mark.parametrize("hours", ["1", "4", "24", "72"])
def test_charts_and_their_table_have_the_same_figures(shown: Shown, hours: str) -> None:
    under_way = replace(BUCKET, from_ms=NOW_MS + 60_000, announced=1)
    shown.activity(Activity(width_ms=60_000, buckets=[UNREAD, BUCKET, under_way]))
    document: dict[str, Any] = json.loads(asked(shown.services, f"/overview/activity.json?hours={hours}").body)
    assert document == {
        "at_seconds": [NOW_MS / 1000 - 60, NOW_MS / 1000],
        "announced": [None, 7],
        "matched": [None, 5],
        "losses": [0, 2],
        "repairs": [0, 1],
        "detection_mean_seconds": [None, 1.5],
        "detection_max_seconds": [None, 2.0],
    }
    table = shown.page(f"/overview/activity?hours={hours}")
    cells = re.findall(r'<td data-name="[^"]+" class="number">(.*?)</td>', table)
    assert cells[6:] == ["7", "5", "2", "1", "1 s", "2 s", "?", "?", "0", "0", "—", "—"]


@pytest.mark.parametrize(("language", "unit"), [("en", "in seconds"), ("zh", "秒")])
def test_an_axis_of_time_has_no_unit(shown: Shown, language: str, unit: str) -> None:
    shown.status(report_of())
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", shown.page(language=language))
    assert [unit in caption for caption in captions] == [False, False, True]


def test_every_series_of_the_page_is_one_of_the_document(shown: Shown) -> None:
    shown.status(report_of())
    drawn = re.findall(r'data-series="([\w]+)"', shown.page())
    assert set(drawn) == activity_document(Activity(width_ms=1, buckets=[])).keys() - {"at_seconds"}


def test_a_ledger_that_cannot_be_read_draws_no_calm(shown: Shown) -> None:
    shown.activity(None)
    shown.status(report_of())
    assert "The ledger has not answered yet" in shown.page()
    assert asked(shown.services, "/overview/activity.json").status == 503


@pytest.mark.parametrize("hours", ["0", "5", "x", "-1", "1" * 400])
def test_hours_that_there_are_not_are_refused(shown: Shown, hours: str) -> None:
    shown.status(report_of())
    for address in ("/", "/overview/activity", "/overview/activity.json"):
        assert asked(shown.services, f"{address}?hours={hours}").status == 422


def test_a_paused_page_asks_nothing(shown: Shown) -> None:
    shown.status(report_of())
    paused = asked(shown.services, "/", cookies={"reconciler_view": "paused=1"}).body.decode()
    assert "hx-trigger" in shown.page()
    assert "hx-trigger" not in paused
    assert "data-every-seconds" not in paused


def test_the_figures_say_how_much_is_missing_since_when_and_what_stands_still(shown: Shown) -> None:
    lost = replace(LOST, count=7, oldest_ms=NOW_MS - 7_200_000)
    shown.status(report_of(verdicts=(lost, QUARANTINED), repairs=(FAILED,), holds=(OPEN,)))
    figures = re.sub(r"<[^>]+>|\s+", " ", shown.page().partition('<dl class="figures">')[2].partition("</dl>")[0])
    told = " ".join(html.unescape(figures).split())
    assert told.startswith("Lost, not arrived 7 since 2023-11-14 20:13:20Z , 2 h ago Wait for a person 5 ")
    assert "3 quarantined · 2 repairs failed" in told
    assert "Topics without repairs 1 ORDERS" in told


def named(number: int) -> list[Subscription]:
    """So many subscriptions."""
    return [Subscription(environment="production", topic=f"T{n:03}", group="billing") for n in range(number)]


def cards_on(page: str) -> list[tuple[str, str]]:
    """Class and topic of each card, as they stand."""
    return re.findall(r'<li class="card marked (\w+)">\s*<h3><bdi>(\w+)</bdi>', page)


def test_who_needs_somebody_stands_before_who_does_not(shown: Shown) -> None:
    late, lost, *calm = named(5)
    shown.status(report_of(*map(status_of, calm), status_of(lost), status_of(late, late=("no sweep",)),
                           verdicts=(replace(LOST, subscription=lost),)))  # fmt: skip
    assert cards_on(shown.page()) == [("bad", "T000"), ("warn", "T001"), *(("good", of.topic) for of in calm)]


@pytest.mark.parametrize(("language", "line"), [("en", "that need nobody: 499"), ("zh", "499 个订阅无需处理")])
def test_many_who_need_nobody_are_one_line_until_somebody_asks_for_each(shown: Shown, language: str, line: str) -> None:
    lost, *calm = named(500)
    behind = replace(status_of(calm[7]).accounted, until_ms=NOW_MS - 61_000)
    statuses = [status_of(of) for of in calm]
    statuses[7] = replace(statuses[7], accounted=behind)
    shown.status(report_of(*statuses, status_of(lost), verdicts=(replace(LOST, subscription=lost),)))
    page = shown.page(language=language)
    assert cards_on(page) == [("warn", "T000")]
    told = html.unescape(re.sub(r"<[^>]+>", "", page.partition('id="subscriptions"')[2]))
    assert line in told
    assert told.index("T000") < told.index(line) < told.index("2023-11-14 22:12:19")
    assert 'href="/reconciler/?calm=each#subscriptions"' in page
    each = shown.page("/?calm=each", language=language)
    assert len(cards_on(each)) == 500
    assert 'hx-get="/reconciler/overview/now?calm=each"' in each, "it stays so when it is read again"
    assert len(cards_on(shown.page("/overview/now?calm=each", language=language))) == 500


def test_few_who_need_nobody_have_a_card_each(shown: Shown) -> None:
    shown.status(report_of(*map(status_of, named(CALM_CARDS_MAX))))
    assert len(cards_on(shown.page())) == CALM_CARDS_MAX
    shown.status(report_of(*map(status_of, named(CALM_CARDS_MAX + 1))))
    assert cards_on(shown.page()) == []


def test_a_page_of_five_hundred_who_need_nobody_is_hardly_larger_than_one_of_ten(shown: Shown) -> None:
    sizes = []
    for number in (10, 500):
        shown.status(report_of(*map(status_of, named(number))))
        sizes.append(len(shown.page()))
    assert sizes[1] < sizes[0] + 100


def incident_on(page: str) -> str:
    """The text of the card, which stands before everything else; empty: there is none."""
    card = re.search(r'<section class="verdict incident.*?</section>', page, re.DOTALL)
    if card is None:
        return ""
    assert page.index("<h1") == page.index('<h1 id="incident">')
    return " ".join(html.unescape(re.sub(r"<[^>]+>|\s+", " ", card[0])).split())


def test_what_is_lost_is_told_before_what_may_be_and_by_cause_and_group(shown: Shown) -> None:
    other = Subscription(environment="production", topic="ORDERS", group="warehouse")
    parked = replace(LOST, verdict=Verdict.PARKED, subscription=other, count=30, oldest_ms=NOW_MS - 7_200_000)
    late = status_of(Subscription(environment="production", topic="PAYMENTS", group="ledger"), late=("no sweep",))
    shown.status(report_of(status_of(), late, verdicts=(LOST, replace(LOST, loss_verdict=Verdict.EXPIRED), parked)))
    told = incident_on(shown.page())
    assert told.startswith("36 messages are lost since 2023-11-14 20:13:20Z , 2 h ago Nobody has it yet. I have it")
    assert "Nothing: what is lost is repaired by itself" in told
    causes = told.partition("By cause and group")[2]
    assert re.findall(r"→ (\w+) (\d+ messages) : ([a-z ]+) ([A-Z_]+) since", causes) == [
        ("warehouse", "30 messages", "the broker gave up asking", "PARKED"),
        ("billing", "6 messages", "the confirmation was lost", "LOST_CONFIRM"),
    ]
    shown.status(report_of(verdicts=(replace(LOST, count=1), REPAIRED)))
    assert incident_on(shown.page()).startswith("1 message is lost")
    shown.status(report_of(late, verdicts=(REPAIRED, QUARANTINED)))
    assert not incident_on(shown.page())


def test_of_many_causes_the_greatest_are_shown_and_the_others_counted(shown: Shown) -> None:
    many = [
        replace(LOST, count=number, subscription=replace(ORDERS, group=f"g{number}"))
        for number in range(1, INCIDENT_LINES_MAX + 4)
    ]
    shown.status(report_of(verdicts=tuple(many)))
    told = incident_on(shown.page())
    assert told.count("messages :") == INCIDENT_LINES_MAX
    assert told.endswith(f"Of other causes and groups: {1 + 2 + 3}")


def test_what_holds_repairs_back_is_told_of_topics_that_have_losses(shown: Shown) -> None:
    holds = (OPEN, HELD, replace(HELD, topic="PAYMENTS", reason="another"))
    never = account_of(
        ORDERS, [rounds_link([], shards=1, asked_ms=NOW_MS)], asked_ms=NOW_MS, within_ms=1, is_given=True
    )
    shown.status(report_of(status_of(accounted=never), verdicts=(LOST,), holds=holds))
    told = incident_on(shown.page())
    assert "ORDERS : Held by a person · ann, since 2023-11-14 22:13:20Z · release" in told
    assert "ORDERS : The circuit breaker is open" in told
    assert "ORDERS → billing : rounds stand still" in told
    assert "another" not in told
    assert "Nothing: " not in told


def test_a_topic_in_shadow_mode_is_told_beside_its_losses_and_another_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "RECONCILER_PRODUCERS__0__TOPICS": '["ORDERS", "PAYMENTS"]',
        "RECONCILER_REPAIRS__TOPICS": '{"ORDERS": false, "PAYMENTS": false}',
    }
    shown = Shown(tmp_path, monkeypatch, **settings)
    shown.status(report_of(status_of(), verdicts=(LOST,)))
    assert "nothing is ever sent, for ORDERS." in incident_on(shown.page())
    assert "Topics without repairs 1 ORDERS" in " ".join(re.sub(r"<[^>]+>|\s+", " ", shown.page()).split())


def test_the_act_of_a_cause_begins_with_a_preview_of_it_alone(shown: Shown) -> None:
    shown.status(report_of(verdicts=(LOST,)))
    form = shown.page().partition('action="/reconciler/repairs"')[2].partition("</form>")[0]
    sent = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    sent = {name: value for name, value in sent.items() if name not in ("csrf_token", "act_key")}
    asked_for = {"topic": "ORDERS", "group": "billing", "verdict": "LOST_CONFIRM"}
    assert sent == {"all": "true", "dry_run": "true", **asked_for}


def test_who_has_it_is_told_once_and_in_place_of_nobody(shown: Shown) -> None:
    who = ACKNOWLEDGED(by="olga", at_ms=NOW_MS, until_ms=NOW_MS + 7_200_000)
    shown.status(report_of(verdicts=(LOST,), acknowledged=(who,)))
    page = shown.page()
    assert "olga has it since 2023-11-14 22:13:20Z" in incident_on(page)
    assert "Nobody has it" not in page
    assert page.count("has it since") == 1


def test_a_loss_whose_topic_is_stopped_is_not_called_on_its_way_back(shown: Shown) -> None:
    shown.status(report_of(verdicts=(LOST,)))
    assert "Lost messages are on their way back" in shown.page()
    shown.status(report_of(verdicts=(LOST,), holds=(OPEN,)))
    assert "Lost messages wait: repairs are stopped" in shown.page()


def test_the_only_cause_is_told_in_the_sentence_and_not_again_below(shown: Shown) -> None:
    shown.status(report_of(status_of(late=("nobody reads it",))))
    assert shown.page().count("nobody reads it") == 1
    shown.status(report_of(status_of(late=("nobody reads it", "no sweep"))))
    assert shown.page().count("nobody reads it") == 2
