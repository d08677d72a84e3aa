"""One message on one page: what every witness says, what none says, what comes next; and no body, ever."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from reconciler.clock import ManualClock
from reconciler.commands import explain
from reconciler.commands.asking.business_ids import BusinessMessages
from reconciler.commands.explain import Explanation
from reconciler.contract.facts import Code, Fact, FieldValue
from reconciler.contract.reasons import TAG_COMPARED
from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import MEANINGS, Verdict
from reconciler.policy.evidence import Lookup
from reconciler.policy.ports.rounds import KeyPlaces
from reconciler.telling.life_story import (
    DISMISSED,
    DISMISSED_BY,
    EFFECT_AFTER_DISMISSAL,
    EFFECT_OF_ANOTHER,
    GOES_ON,
    IS_DISMISSED,
    NOT_REPAIRED,
    PERSON_MUST_LOOK,
    SETTLED_AS,
    HalfEffect,
    LifeStory,
    life_story_of,
)
from reconciler.web.console import messages
from reconciler.web.console.catalogue import catalogue_of
from reconciler.web.console.messages import can_change, weight
from reconciler.web.exchange import WebRequest
from reconciler.web.roles import Visitor, WebRole
from reconciler.web.services import WebServices
from reconciler.wiring import rounds
from reconciler.wiring.connections import Connections
from reconciler.words import LANGUAGES, said
from tests.unit.service.test_life_story import BILLING, JUDGED, KEY, SHIPPING
from tests.unit.web.console_world import HOSTILE, PREFIX, page_of, route_of, services_of, settings_of
from tests.unit.web.reports import facts_of
from tests.unit.web.stories import NEXT_MS, story_of

Asking = Callable[[Explanation], list[str]]
AT_REST = replace(story_of(), away=(), silent=(), upcoming=(), unjudged=())


@pytest.fixture
def services(tmp_path: Path) -> WebServices:
    return services_of(settings_of(tmp_path))


@pytest.fixture
def explains(monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Gives the answer to every name; returns the names that are asked for."""

    def explain(found: Explanation) -> list[str]:
        names: list[str] = []

        def life_stories(_connections: object, name: str) -> Explanation:
            names.append(name)
            return found

        monkeypatch.setattr(messages, "life_stories", life_stories)
        return names

    return explain


@pytest.mark.parametrize("language", LANGUAGES)
def test_half_an_effect_is_told_with_the_commands_that_end_it(
    services: WebServices, explains: Asking, language: str
) -> None:
    effects = (
        HalfEffect(subscription=BILLING, unique_key=KEY),
        HalfEffect(subscription=replace(SHIPPING, group=HOSTILE), unique_key=KEY),
    )
    explains(Explanation(stories=(replace(story_of(), incomplete=effects),)))
    page = page_of(services, f"/messages/{KEY}", language)
    assert "<script>" not in page
    shown = unescape(page)
    of = f"--topic {BILLING.topic} --group {BILLING.group} --url @FILE"
    for wanted in (f"accept {KEY}", f"delete {KEY}", "accept --all", "delete --all"):
        assert f"reconciler incomplete {wanted} {of}" in shown
    assert shown.count("--url @FILE") == 8
    assert 'action="/incomplete' not in page, "the login of inbox_url only reads"


@pytest.mark.parametrize(
    ("late_minutes", "told"), [(0, "asked about again at "), (9, "due 9 min ago: rounds stand still")]
)
def test_a_time_that_has_passed_is_what_comes_next(
    tmp_path: Path, explains: Asking, late_minutes: int, told: str
) -> None:
    services = services_of(settings_of(tmp_path), clock=ManualClock(NEXT_MS + late_minutes * 60_000))
    explains(Explanation(stories=(story_of(),)))
    page = page_of(services, f"/messages/{KEY}")
    assert told in unescape(page)
    assert ("Repair of" in page and "a brake holds it" in page) is (late_minutes > 0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_values_of_every_witness_are_shown_and_not_obeyed(
    services: WebServices, explains: Asking, language: str
) -> None:
    explains(Explanation(stories=(story_of(),), notes=facts_of(HOSTILE)))
    page = page_of(services, f"/messages/{KEY}", language)
    assert "<script>" not in page
    assert not set(page) & {"\x1b", "\u202e"}
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10


def test_reasons_and_answers_are_told_in_the_language_of_the_page(services: WebServices, explains: Asking) -> None:
    explains(Explanation(stories=(story_of(),)))
    of_page = {language: page_of(services, f"/messages/{KEY}", language) for language in LANGUAGES}
    assert of_page["en"].count("damaged in") == of_page["zh"].count("次读取都已损坏") == 2, "and of what it took back"
    assert "damaged in" not in of_page["zh"]
    assert of_page["en"].count("(no row)") == of_page["zh"].count("没有记录") == 2, "and what witnesses answer"
    assert "(no row)" not in of_page["zh"]
    assert not any("crc32" in page for page in of_page.values())


def test_what_is_known_and_what_is_not_stand_side_by_side(services: WebServices, explains: Asking) -> None:
    explains(Explanation(stories=(story_of(),)))
    page = page_of(services, f"/messages/{KEY}")
    told = re.findall(r'<h4>(.*?)</h4>\s*<dl class="answers">(.*?)</dl>', page, re.DOTALL)
    seen = {witness: re.findall(r'<span class="tag \w+">(.*?)</span>', answers) for witness, answers in told}
    assert seen == {
        "Outbox": ["has it"],
        "Announcement": ["has it"],
        "Redis": ["has it", "not known"],
        "Broker": ["has it", "has nothing"],
        "Inbox": ["has nothing", "not known"],
    }


def test_a_witness_says_nothing_of_why(services: WebServices, explains: Asking) -> None:
    retired = life_story_of(
        KEY,
        outbox=Lookup.unknown("outbox", "no topic is configured"),
        copies={},
        inboxes={},
        ledger=JUDGED,
    )
    for story in (story_of(), retired):
        explains(Explanation(stories=(story,)))
        page = page_of(services, f"/messages/{KEY}")
        cards = re.findall(r'<h4>.*?</h4>\s*<dl class="answers">(.*?)</dl>', page, re.DOTALL)
        assert len(cards) == 5
        for card in cards:
            assert "<dd" in card
            assert '<span lang="en"></span>' not in card
    assert page.count("not asked: no [[subscriptions]] section has its topic") == 3


def test_what_comes_next_has_its_time(services: WebServices, explains: Asking) -> None:
    explains(Explanation(stories=(story_of(),)))
    page = page_of(services, f"/messages/{KEY}")
    at = '<time datetime="2023-11-14T22:14:20Z">2023-11-14 22:14:20Z</time>'
    assert f"ORDERS/billing: asked about again at {at}" in page
    assert f"Repair of every group: gone on with at {at}" in page


def test_a_story_that_may_be_incomplete_does_not_look_complete(services: WebServices, explains: Asking) -> None:
    story = story_of()
    assert weight(story) == "notice"
    assert weight(replace(story, away=(), silent=(), upcoming=())) == "notice", "nobody has judged it for SHIPPING"
    assert weight(AT_REST) == "good"
    assert (
        weight(
            replace(story, outlook=(EFFECT_OF_ANOTHER(subscription="x", why=TAG_COMPARED(), ending=TAG_COMPARED()),))
        )
        == "warn"
    )
    explains(Explanation(stories=(story,)))
    assert "Who gave no answer" in page_of(services, f"/messages/{KEY}")
    assert "every witness has answered" not in page_of(services, f"/messages/{KEY}")
    explains(Explanation(stories=(AT_REST,)))
    assert "every witness has answered" in page_of(services, f"/messages/{KEY}")


def _judged(code: Code, verdict: Verdict) -> Fact:
    return code(subscription="x", verdict=verdict.value, meaning=MEANINGS[verdict]())


@pytest.mark.parametrize(
    ("outlook", "runbook"),
    [
        (EFFECT_OF_ANOTHER(subscription="x", why=TAG_COMPARED(), ending=TAG_COMPARED()), ["Quarantined"]),
        (
            PERSON_MUST_LOOK(
                subscription="x", verdict="COLLISION", meaning=MEANINGS[Verdict.COLLISION](), ending=TAG_COMPARED()
            ),
            ["Quarantined"],
        ),
        (
            PERSON_MUST_LOOK(
                subscription="x", verdict="PARKED", meaning=MEANINGS[Verdict.PARKED](), ending=TAG_COMPARED()
            ),
            ["RepairFailing"],
        ),
        (
            GOES_ON(
                subscription="x",
                verdict="LOST_CONFIRM",
                meaning=MEANINGS[Verdict.LOST_CONFIRM](),
                ending=TAG_COMPARED(),
            ),
            ["LostMessages"],
        ),
        (
            GOES_ON(subscription="x", verdict="UNKNOWN", meaning=MEANINGS[Verdict.UNKNOWN](), ending=TAG_COMPARED()),
            ["LookupsUnknown"],
        ),
        (SETTLED_AS(subscription="x", verdict="CONSUMED"), []),
    ],
)
def test_a_verdict_leads_to_its_runbook(
    services: WebServices, explains: Asking, outlook: Fact, runbook: list[str]
) -> None:
    explains(Explanation(stories=(replace(story_of(), outlook=(outlook, outlook)),)))
    page = page_of(services, f"/messages/{KEY}")
    assert re.findall(rf'href="{PREFIX}/docs/runbooks/(\w+)\.md"', page) == runbook


def test_a_page_asks_after_the_end_or_stands_still_before(services: WebServices, explains: Asking) -> None:
    name = quote("a/b & c", safe="")
    explains(Explanation(stories=(story_of(),)))
    again = f'hx-get="{PREFIX}/messages?name={quote_plus("a/b & c")}&amp;part=now&amp;shown={KEY}"'
    assert again in page_of(services, f"/messages?name={name}")
    part = page_of(services, f"/messages?name={name}&part=now")
    assert again in part
    assert not re.search("<html|<form|<h1", part), "what a person types is not taken away"
    explains(Explanation(stories=(AT_REST,)))
    for address in (f"/messages?name={name}", f"/messages?name={name}&part=now"):
        assert "hx-get" not in page_of(services, address)


def test_what_is_to_be_pressed_stands_behind_a_long_time_line(services: WebServices, explains: Asking) -> None:
    explains(Explanation(stories=(story_of(),)))
    page = page_of(services, f"/messages/{KEY}")
    order = ("How far it is", "What you can do", "Witnesses side by side", "Time line")
    places = [page.index(f">{title}</h3>") for title in order[1:]]
    assert [page.index(order[0]), *places] == sorted([page.index(order[0]), *places])


def test_a_message_of_a_business_id_cannot_be_acted_on_where_it_is_seen(
    services: WebServices, explains: Asking
) -> None:
    other = "7F000002" + "0" * 24
    done = replace(story_of(other), away=(), silent=(), upcoming=(), unjudged=())
    explains(Explanation(stories=(story_of(), done), business=BusinessMessages(business_id="o-7")))
    whole = page_of(services, "/messages/o-7")
    lost, arrived = re.findall("<article.*?</article>", whole, re.DOTALL)
    assert "What you can do" in lost
    assert f'>Repair<span class="unseen">: {KEY}</span></button>' in lost
    told = re.findall(r'href="#story-(\w+)">\w+</a> <span class="quiet">([^<]+)<', whole.partition("<article")[0])
    assert told == [(KEY, "not done yet"), (other, "nothing is left to do")], "which one is looked for, at the top"
    explains(Explanation(stories=(done,)))
    for part in (arrived, page_of(services, f"/messages/{other}")):
        buttons = re.findall("<button[^>]*>([^<]+)<", part.partition("What you can do")[2])
        assert buttons == ["Open the body"], "the same on both pages"


def of_operator(services: WebServices, part: str) -> str:
    """The page of the message, or what of it is asked for again, for who may act."""
    request = WebRequest(
        method="GET",
        path=f"/messages/{KEY}",
        headers={"accept-language": "en"},
        request_id="r-1",
        parts={"name": KEY},
        query={"part": [part]},
        visitor=Visitor(name="ann", role=WebRole.OPERATOR),
    )
    return messages.show(services, request).body.decode()


BY_ANN = DISMISSED_BY(group="billing", by="ann", at_ms=NEXT_MS, verdict="QUARANTINED", why="a person must look")


@pytest.mark.parametrize(
    ("line", "is_offered"),
    [
        (IS_DISMISSED(subscription="ORDERS/billing", dismissal=BY_ANN), True),
        (IS_DISMISSED(subscription="ORDERS/billing", dismissal=DISMISSED(verdict="QUARANTINED")), True),
        (EFFECT_AFTER_DISMISSAL(subscription="ORDERS/billing", dismissal=BY_ANN, ending=BY_ANN), False),
        (SETTLED_AS(subscription="ORDERS/billing", verdict="CONSUMED"), False),
    ],
)
def test_a_dismissal_by_mistake_is_taken_back_on_the_page_of_its_message(
    services: WebServices, explains: Asking, line: Fact, is_offered: bool
) -> None:
    dismissed = replace(AT_REST, unique_key=KEY, outlook=(line,), seen="a" * 32)
    assert can_change(dismissed) is (line.code is EFFECT_AFTER_DISMISSAL)
    explains(Explanation(stories=(dismissed,)))
    told = of_operator(services, "all").partition("What you can do")[2]
    assert (">Take the dismissal back</button>" in told) is is_offered
    again = of_operator(services, "now")
    assert (f'id="seen-take-back-{KEY}" name="seen" value="{KEY}={"a" * 32}"' in again) is is_offered
    if is_offered:
        form = told[told.index('<input type="hidden" name="take_back" value="true">') :].partition("</form>")[0]
        assert f'name="seen" value="{KEY}={"a" * 32}"' in form
        assert 'name="reason" maxlength="500" autocomplete="off" required' in form


def test_a_part_that_is_asked_for_again_has_no_place_on_the_page(services: WebServices, explains: Asking) -> None:
    explains(Explanation(stories=(story_of(), story_of("7F000002" + "0" * 24))))
    page, part = page_of(services, "/messages/o-7"), page_of(services, "/messages/o-7?part=now")
    again = re.findall(r'<\w+ id="([\w-]+)"[^>]*(?: hx-swap-oob="true"| hx-swap="outerHTML")>', part)
    assert len(again) == 7
    for name in again:
        assert page.count(f'id="{name}"') == 1
    assert "hx-swap-oob" not in page


def test_a_message_that_comes_while_the_page_is_open_is_not_told_of(services: WebServices, explains: Asking) -> None:
    business = BusinessMessages(business_id="o-7")
    explains(Explanation(stories=(story_of(),), business=business))
    told = "There are newer messages of this business id."
    assert told not in page_of(services, "/messages/o-7") + page_of(services, f"/messages/o-7?part=now&shown={KEY}")
    explains(Explanation(stories=(story_of("7F000002" + "0" * 24), story_of()), business=business))
    part = page_of(services, f"/messages/o-7?part=now&shown={KEY}")
    assert told in part
    assert f"shown={KEY}" in part, "until it is loaded again"
    assert "outlook-7F000002" not in part, "it has no place on the page"
    assert told not in page_of(services, "/messages/o-7")


def test_a_name_that_no_witness_knows_is_told_as_unknown(services: WebServices, explains: Asking) -> None:
    nobody = LifeStory(unique_key=KEY, events=(), silent=(), away=(), outlook=())
    explains(Explanation(stories=(nobody,)))
    page = page_of(services, f"/messages/{KEY}")
    assert f"no witness knows {KEY}" in page
    assert "This does not tell that nothing was lost." in page
    assert "Time line" not in page


def test_every_message_of_a_business_id_is_told(services: WebServices, explains: Asking) -> None:
    other = "7F000002" + "0" * 24
    explains(Explanation(stories=(story_of(), story_of(other)), business=BusinessMessages(business_id=HOSTILE)))
    page = page_of(services, "/messages?name=o-7")
    assert page.count('<ol class="timeline">') == 2
    for key in (KEY, other):
        assert f'href="{PREFIX}/messages/{key}"' in page


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/messages/o-7", "o-7"),
        ("/messages?name=a/b", "a/b"),
        ("/messages?name=..", ".."),
        ("/messages?name=%20a%20", "a"),
        ("/messages?name=%E8%AE%A2%E5%8D%95", "订单"),
    ],
)
def test_a_business_id_of_any_characters_is_asked_for_as_it_is(
    services: WebServices, explains: Asking, address: str, name: str
) -> None:
    names = explains(Explanation(stories=(story_of(),)))
    page_of(services, address)
    assert names == [name]


def test_nothing_is_asked_where_nothing_is_named(services: WebServices, explains: Asking) -> None:
    names = explains(Explanation(stories=(story_of(),)))
    for address in ("/messages", "/messages?name=", "/messages?name=%20"):
        assert "Type a unique key" in page_of(services, address)
    assert names == []


def test_a_redis_that_is_away_is_waited_for_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_about: list[str] = []

    def key_in_redis(connections: Connections, subscription: Subscription, unique_key: str) -> Lookup[KeyPlaces]:
        asked_about.append(unique_key)
        return rounds.key_in_redis(connections, subscription, unique_key)

    monkeypatch.setattr(explain, "key_in_redis", key_in_redis)
    nobody_listens = settings_of(tmp_path, RECONCILER_REDIS__URL="redis://127.0.0.1:1")
    with services_of(nobody_listens).connections as connections:
        witnesses = explain._Witnesses(connections)
        for subscription in (BILLING, SHIPPING):
            found = witnesses._places(subscription, KEY)
            assert found.is_unknown
            assert "redis" in said(found.reason).lower()
    assert asked_about == [KEY]


def test_what_is_held_back_leads_to_what_holds_it(services: WebServices, explains: Asking) -> None:
    of: dict[str, FieldValue] = {
        "subscription": "ORDERS/billing",
        "verdict": "PARKED",
        "topic": "ORDERS",
        "brakes": ("BREAKER",),
    }
    held = NOT_REPAIRED(**of, meaning=MEANINGS[Verdict.PARKED]())
    explains(Explanation(stories=(replace(story_of(), outlook=(held,)),)))
    leads = f'<a href="{PREFIX}/brakes">What holds it, and who may end that</a>'
    assert leads in page_of(services, f"/messages/{KEY}")
    explains(Explanation(stories=(story_of(),)))
    assert leads not in page_of(services, f"/messages/{KEY}")


def test_every_page_has_the_box_that_leads_here(services: WebServices) -> None:
    page = page_of(services, "/view")
    (action,) = re.findall(r'<form class="search" action="([^"]+)"', page)
    assert route_of(action.removeprefix(PREFIX))[0].name == "messages"


def test_words_for_every_witness_of_a_story() -> None:
    kinds = {event.witness for event in story_of().events} | {one.witness for one in story_of().testimonies}
    known = {key.rpartition(".")[2] for key in catalogue_of("en").texts if key.startswith("message.witness.")}
    assert kinds | {"history"} == known
