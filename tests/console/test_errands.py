"""Errands of the person on call, in a browser, over real processes. No test leaves a hold or `reconciler run`."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.watched_service import WatchedService
from tests.polling import eventually

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("browser"),
]

BULK = 200
#: No test lasts so long.
FAR_MS = 2**53


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedService]:
    with WatchedService(tmp_path_factory.mktemp("service")) as service:
        service.deployed.consume()
        yield service


def find(page: Page, name: str) -> None:
    """By the box in the head of every page."""
    page.get_by_role("searchbox", name="Unique key or business id").first.fill(name)
    page.get_by_role("search").get_by_role("button").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)


def open_life(page: Page, business_id: str) -> None:
    """The page of the one message of a business id, with everything that can be done with it."""
    find(page, business_id)
    page.get_by_role("article").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Unique key")


def test_the_half_of_a_message_is_told_before_it_is_dismissed(service: WatchedService, chromium: Browser) -> None:
    (lost,) = service.lose(1)
    with service.logged_in(chromium, "olga") as watched:
        page, main = watched.page, watched.page.get_by_role("main")
        service.open_losses()
        open_life(page, lost.business_id)
        expect(page.locator(".timeline")).to_contain_text("LOST_CONFIRM")
        before = service.record()
        page.get_by_role("button", name="Look at its half").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("What a dismissal would do")
        # This broker checks so often that it may have given the half up.
        expect(main).to_contain_text(
            re.compile(f"{lost.unique_key}: its (half is open on|broker has given the half up)")
        )
        expect(page.get_by_role("row", name=lost.unique_key)).to_contain_text("OPEN")
        assert service.record() == before


def test_a_repair_by_hand_is_not_followed_to_its_effect(service: WatchedService, chromium: Browser) -> None:
    (lost,) = service.lose(1)
    with service.logged_in(chromium, "olga") as watched:
        page, main = watched.page, watched.page.get_by_role("main")
        count = len(service.open_losses())
        expect(main).to_contain_text(f"See the messages that are lost and have not arrived yet: {count}")
        open_life(page, lost.business_id)
        expect(main).to_contain_text("END_TRANSACTION was lost")
        timeline = page.locator(".timeline")
        for told in ("recorded in the local transaction", "half message stored", "LOST_CONFIRM"):
            expect(timeline).to_contain_text(told)
        for witness, says in (("Outbox", "has it"), ("Inbox", "has nothing")):
            card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", level=4, name=witness))
            expect(card).to_contain_text(says)

        before = service.record()
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("What a repair would do")
        expect(page.get_by_role("row", name=lost.unique_key)).to_contain_text("would be sent")
        expect(page.get_by_role("row", name=lost.unique_key)).to_contain_text(lost.business_id)
        assert service.record() == before
        assert lost.unique_key not in service.deployed.effects()

        page.get_by_label("Reason").fill("INC-7")
        page.get_by_role("button", name="Repair").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("What came of the repair")
        outcome = page.get_by_role("row", name=lost.unique_key)
        expect(outcome).to_contain_text("sent")
        assert service.actions_of("olga") == [("repair", lost.unique_key, "INC-7")]
        outcome.get_by_role("link").click()
        expect(main).to_contain_text("pending, ")
        expect(page.get_by_text("This page keeps itself up to date.")).to_be_visible()
        page.evaluate("window.isTheSamePage = true")
        with service.running():
            expect(main).to_contain_text("left pending as SETTLED")
            expect(main).to_contain_text("done, the message took effect")
            expect(timeline).to_contain_text("repair verified for every group")
            expect(main).to_contain_text("Nothing is waited for")
            expect(page.get_by_text("This page keeps itself up to date.")).to_be_hidden()
        assert page.evaluate("window.isTheSamePage") is True
        assert not watched.troubles
    assert service.deployed.effects().count(lost.unique_key) == 1
    assert service.deployed.copies()[lost.unique_key] == 1


def test_a_hold_has_no_reason_or_is_not_seen_on_the_first_page(service: WatchedService, chromium: Browser) -> None:
    topic = service.deployed.topic
    with service.logged_in(chromium, "olga") as watched:
        page, main = watched.page, watched.page.get_by_role("main")
        page.get_by_role("link", name="Brakes").click()
        expect(main).to_contain_text("No topic is stopped")
        page.get_by_label("Topic").select_option(topic)
        page.get_by_label("Reason").fill("INC-8: billing is being mended")
        session = page.context.cookies()
        page.context.clear_cookies()  # as after an hour
        page.get_by_role("button", name="Hold repairs").click()
        expect(main).to_contain_text("Nothing was done")
        page.context.add_cookies([{**cookie} for cookie in session])  # type: ignore[typeddict-item]  # what it gave
        page.goto(f"{service.url}/brakes")
        page.get_by_label("Topic").select_option(topic)
        expect(page.get_by_label("Reason")).to_have_value("INC-8: billing is being mended")
        page.get_by_role("button", name="Hold repairs").click()
        expect(main).to_contain_text(f"Repairs of {topic} are on hold.")
        page.get_by_role("link", name="Overview").click()
        stopped = page.get_by_role("link", name=f"Repairs of {topic} are stopped by a person")
        stopped.click()
        card = page.get_by_role("listitem").filter(has_text=topic)
        expect(card).to_contain_text("web:olga")
        expect(card).to_contain_text("INC-8: billing is being mended")
        card.get_by_role("button", name="Let repairs go on").click()
        expect(main).to_contain_text(f"Repairs of {topic} go on.")
        page.get_by_role("link", name="Brakes").click()
        expect(main).to_contain_text("No topic is stopped")
        assert not watched.troubles
    assert [(command, detail) for command, _, detail in service.actions_of("olga")][-2:] == [
        ("hold", "INC-8: billing is being mended"),
        ("resume", ""),
    ]


def test_a_repair_needs_javascript(service: WatchedService, chromium: Browser) -> None:
    (lost,) = service.lose(1)
    with service.logged_in(chromium, "adam", scripts=False) as watched:
        page, main = watched.page, watched.page.get_by_role("main")
        open_life(page, lost.business_id)
        page.get_by_role("button", name="Dry run").click()
        expect(page.get_by_role("row", name=lost.unique_key)).to_contain_text("would be sent")
        page.get_by_role("button", name="Repair").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("What came of the repair")
        eventually(lambda: lost.unique_key in service.deployed.effects(), within_seconds=60)
        page.get_by_role("row", name=lost.unique_key).get_by_role("link").click()
        expect(main).to_contain_text("done, the message took effect")
        assert not watched.troubles
    assert service.deployed.copies()[lost.unique_key] == 1


@pytest.mark.parametrize("why", [pytest.param("viewer", marks=pytest.mark.nightly), "read_only"])
def test_who_only_looks_changes_something(service: WatchedService, chromium: Browser, why: str) -> None:
    (key,) = service.deployed.commit(1, producer=service.producer)
    topic, before = service.deployed.topic, service.record()
    by_hand = {
        "/repairs": {"keys": key},
        "/holds": {"topic": topic, "reason": "x"},
        f"/holds/{topic}/lift": {},
        "/dismissals": {"keys": key, "reason": "x"},
        "/rebuilds": {"since": "2026-01-01T00:00", "reason": "x", "confirmation": "rebuild"},
        f"/messages/{key}/body": {"reason": "x"},
    }
    with ExitStack() as stack:
        name, url = ("vera", service.url) if why == "viewer" else ("adam", stack.enter_context(service.only_looking()))
        watched = stack.enter_context(service.logged_in(chromium, name, url=url))
        page = watched.page
        for link in ("Losses", "Brakes", "Outages", "Jobs"):
            page.get_by_role("link", name=link, exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator("form.act button:enabled")).to_have_count(0)
        open_life(page, service.business_ids()[key])
        expect(page.locator(".timeline")).to_contain_text("recorded in the local transaction")
        expect(page.locator("form.act button:enabled")).to_have_count(0)
        assert {path: post_by_hand(page, url, path, fields) for path, fields in by_hand.items()} == dict.fromkeys(
            by_hand, HTTPStatus.FORBIDDEN
        )
        assert not watched.troubles
    assert service.record() == before
    with service.logged_in(chromium, "olga") as watched:  # the same request of somebody who may
        wanted = {"keys": key, "dry_run": "true"}
        assert post_by_hand(watched.page, service.url, "/repairs", wanted) == HTTPStatus.SEE_OTHER


def post_by_hand(page: Page, url: str, path: str, fields: Mapping[str, str]) -> int:
    """Sends what a form of this page would send if there were one; the status of the answer."""
    form: dict[str, str | float | bool] = {
        "csrf_token": page.locator("input[name=csrf_token]").first.input_value(),
        "act_key": uuid4().hex,
    }
    answer = page.request.post(f"{url}{path}", form=form | dict(fields), headers={"Origin": url}, max_redirects=0)
    return answer.status


@pytest.mark.nightly
def test_a_bulk_repair_ends_with_its_page_or_with_the_web_process(service: WatchedService, chromium: Browser) -> None:
    keys = {lost.unique_key for lost in service.lose(BULK)}
    number = len(service.open_losses() | keys)
    with service.logged_in(chromium, "adam") as watched:
        page, main = watched.page, watched.page.get_by_role("main")
        page.get_by_role("link", name="Losses").click()
        page.get_by_role("button", name="Preview all").click()
        expect(main).to_contain_text(f"the first 100 of {number} are judged here")
        assert keys.isdisjoint(service.deployed.effects())
        page.get_by_label("Reason").fill("INC-9")
        page.get_by_label(f"Type {number} to confirm").fill(f"{number}")
        page.get_by_role("button", name="Repair").click()
        page.wait_for_url(re.compile("/jobs/"))
        address = page.url
        assert not watched.troubles
    eventually(lambda: service.keys_done() >= 3, within_seconds=60)
    service.web.end(signal.SIGKILL)
    service.lease_job_until(FAR_MS)
    done = service.keys_done()
    assert 3 <= done < number, "killed in the middle"
    service.start_web()
    with service.logged_in(chromium, "adam") as watched:
        page, main = watched.page, watched.page.get_by_role("main")
        page.goto(address)
        expect(main).to_contain_text("running")
        expect(main).to_contain_text(f"{done} of {number} messages")
        service.lease_job_until(1)
        expect(main).to_contain_text(f"{number} of {number} messages")
        expect(main.locator(".mark")).to_have_text("done")
        assert not watched.troubles
    with service.running():  # ends the repair that was in the hands of the killed process
        eventually(lambda: keys <= set(service.deployed.effects()), within_seconds=120)
    took_effect, copies = Counter(service.deployed.effects()), service.deployed.copies()
    assert {key: (took_effect[key], copies[key]) for key in keys} == dict.fromkeys(keys, (1, 1))
    repaired = Counter(key for command, key, _ in service.actions_of("adam") if command == "repair")
    assert keys <= set(repaired)
    assert sum(repaired[key] for key in keys) <= BULK + 1, "the key in hand is on record twice, and no other"
