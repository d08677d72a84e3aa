"""What came of an act, or would come of it, as the console tells it: what of it goes into the form that follows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from reconciler.commands.acts.dismissed_halves import HalfLine
from reconciler.commands.acts.jobs import place_repair
from reconciler.commands.acts.repair import ManualRepairReport, RepairLine, digest_of
from reconciler.contract.kept_facts import ANSWERED_WITH
from reconciler.contract.outcomes import HELD_FIRST, JUDGED_FIRST, NOT_LOOKED_AT
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState
from reconciler.contract.verdicts import Verdict
from reconciler.policy.open_halves import HalfState
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.telling.ports.idempotency import KeyedRequest
from reconciler.telling.ports.jobs import JobChange
from reconciler.web.acts.act import WebAct
from reconciler.web.acts.dismissing import DISMISS
from reconciler.web.acts.once import kept_key
from reconciler.web.acts.repairing import REPAIR
from tests.unit.web.form_browser import HOSTILE, KEYS, Browser


def keep(browser: Browser, act: WebAct[Any], document: Mapping[str, object]) -> None:
    """As if it had been done under the key k1."""
    keys, environment = browser.world.connections.ledger.idempotency_keys, browser.world.settings.environment
    request = KeyedRequest(by="web:operator", key=kept_key(act, "k1"), digest=b"1" * 32)
    begun = keys.begin(environment, request, lease_seconds=9)
    assert keys.answer(environment, request, token=begun.token, status=200, answer=json.dumps(document))


def previewed(count: int, *, all_open: bool = False, lines: int | None = None) -> dict[str, object]:
    """What a dry run of messages says that are lost for two groups."""
    found = [
        {
            "topic": "ORDERS",
            "group": group,
            "unique_key": key,
            "verdict": "LOST_CONFIRM",
            "outcome": "held" if group == "billing" else "planned",
            "rung": "END",
            "reason": HOSTILE,
        }
        for group in ("billing", "shipping")
        for key in KEYS[:count]
    ]
    chosen = {"all": all_open, "topic": "ORDERS" if all_open else None, "group": None}
    return {"dry_run": True, "keys": found, "notes": [], "chosen": chosen, "lines": lines or len(found), "exit_code": 4}


def test_what_was_looked_at_is_not_what_is_repaired(browser: Browser) -> None:
    keep(browser, REPAIR, previewed(2) | {"seen": {KEYS[0]: "ab12"}})
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "What a repair would do" in told
    assert "On record" not in told, "a dry run is none"
    assert (told.count("held by a brake"), told.count("would be sent")) == (2, 2)
    assert told.count("What holds it, and who may end that</a>") == 2
    assert "Messages: 2 in 4 lines, one a group" in told
    assert "Messages to repair: 2." in told
    assert "<script>alert" not in told
    confirming = told[told.index('action="/repairs"') :]
    assert re.findall(r'name="keys" value="(\w+)"', confirming) == KEYS[:2], "each message once"
    assert re.findall(r'name="seen" value="([^"]+)"', confirming) == [f"{KEYS[0]}=ab12"]
    assert "confirmation" not in confirming
    assert "dry_run" not in confirming
    assert f'href="/messages/{KEYS[0]}"' in told


def test_a_bulk_is_confirmed_without_its_number_or_offered_to_who_may_not(browser: Browser) -> None:
    keep(browser, REPAIR, previewed(21))
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "Type 21 to confirm" in told
    assert " disabled" not in told


def test_what_a_long_preview_comes_to_stands_before_its_lines_with_the_way_to_its_button(browser: Browser) -> None:
    keep(browser, REPAIR, previewed(3))
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    before, _, behind = told.partition("<table")
    assert "<dt>would be sent</dt><dd>3</dd>" in before
    assert '<a id="to-act" href="#act">Repair these</a>' in before
    assert '<h2 id="act">Repair these</h2>' in behind


def test_all_open_losses_are_repaired_of_another_topic_than_was_looked_at(browser: Browser) -> None:
    seen = {f"{number:032X}": "ab12" for number in range(3000)}
    keep(browser, REPAIR, previewed(50, all_open=True, lines=3100) | {"seen": seen, "digest": digest_of(seen)})
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    confirming = told[told.index('action="/repairs"') :]
    for hidden in ('name="all" value="true"', 'name="number" value="3000"', 'name="topic" value="ORDERS"'):
        assert hidden in confirming
    assert "Type 3000 to confirm" in confirming
    assert f'name="digest" value="{digest_of(seen)}"' in confirming
    assert dict(re.findall(r'name="seen" value="(\w+)=(\w+)"', confirming)) == seen
    assert 'name="keys"' not in confirming
    assert " disabled" in confirming, "so many need an admin"
    assert "This needs the role admin." in confirming


def test_all_of_a_preview_that_shows_all_are_those_that_it_shows(browser: Browser) -> None:
    shown = previewed(2, all_open=True) | {"seen": {KEYS[0]: "ab12"}}
    shown["chosen"] = {"all": True, "topic": "ORDERS", "group": None, "verdict": "LOST_CONFIRM"}
    keep(browser, REPAIR, shown)
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    confirming = told[told.index('action="/repairs"') :]
    assert re.findall(r'name="(all|verdict|topic|keys|seen)" value="([^"]+)"', confirming) == [
        *(("keys", KEYS[0]), ("seen", f"{KEYS[0]}=ab12"), ("keys", KEYS[1]), ("topic", "ORDERS")),
    ]


def test_a_repair_that_was_sent_is_taken_for_one_that_arrived(browser: Browser) -> None:
    of = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "verdict": "LOST_CONFIRM"}
    sent = of | {"outcome": "sent", "rung": "END", "reason": "DONE 0"}
    done = of | {"outcome": "done", "rung": "END", "reason": "every inbox has it"}
    keep(browser, REPAIR, previewed(1) | {"dry_run": False, "keys": [sent, done]})
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "What is sent has not arrived yet." in told
    assert 'href="/repairs?state=SENT"' in told
    assert told.count("its effect is awaited. Answer: ") == 1
    assert ">no group lacked it<" in told
    assert 'href="/actions"' in told[told.index("On record as web:operator") :]


def test_a_finished_repair_offers_to_be_done_again(browser: Browser) -> None:
    document = previewed(1) | {"dry_run": False}
    keep(browser, REPAIR, document)
    told = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "What came of the repair" in told
    assert "On record as web:operator" in told
    assert 'action="/repairs"' not in told


def dismissal(half: Mapping[str, object], *, dry_run: bool) -> dict[str, object]:
    """What a dismissal of one message says, or its dry run."""
    line = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "outcome": "dismissed"}
    told = {"topic": "ORDERS", "unique_key": KEYS[0], "told": f"its half is {HOSTILE}", "until": None} | dict(half)
    chosen = {"topic": None, "group": "billing"}
    return {
        "keys": [line],
        "dry_run": dry_run,
        "halves": [told],
        "seen": {KEYS[0]: "ab12"},
        "chosen": chosen,
        "exit_code": 0,
    }


@pytest.mark.parametrize("can_be_closed", [True, False])
def test_the_preview_of_a_dismissal_offers_to_close_a_half_where_it_may(browser: Browser, can_be_closed: bool) -> None:
    half = {"state": "open", "can_be_closed": can_be_closed, "closed": False}
    keep(browser, DISMISS, dismissal(half, dry_run=True))
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "What a dismissal would do" in told
    assert "On record" not in told
    assert "its half is " in told
    assert "<script>alert" not in told
    confirming = told[told.index('action="/dismissals"') :]
    assert re.findall(r'name="(?:keys|seen|group)" value="([^"]+)"', confirming) == [
        KEYS[0],
        f"{KEYS[0]}=ab12",
        "billing",
    ]
    assert ('name="roll_back_half"' in confirming) == can_be_closed
    assert "dry_run" not in confirming


def test_the_preview_of_all_that_waits_confirms_what_it_has_counted(browser: Browser) -> None:
    seen = dict.fromkeys(KEYS[:30], "ab12")
    half = {"state": "open", "can_be_closed": True, "closed": False}
    chosen = {"all": True, "topic": None, "group": "billing", "verdict": "COLLISION"}
    counted = {"seen": seen, "digest": digest_of(seen), "messages": 40, "chosen": chosen}
    keep(browser, DISMISS, dismissal(half, dry_run=True) | counted)
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "Waiting messages: 40. This dismissal takes the first 30" in told
    confirming = told[told.index('action="/dismissals"') :]
    assert dict(re.findall(r'name="seen" value="(\w+)=(\w+)"', confirming)) == seen
    for hidden in ('name="all" value="true"', f'name="digest" value="{digest_of(seen)}"', 'value="COLLISION"'):
        assert hidden in confirming
    assert 'name="keys"' not in confirming
    assert "Type 30 to confirm" in confirming
    assert "roll_back_half" not in confirming, "halves of what was not looked at are not closed unseen"
    form = {"all": "true", "seen": [f"{key}=ab12" for key in seen], "reason": "x", "confirmation": "29"}
    assert browser.post("/dismissals", form, key="k2").status is HTTPStatus.UNPROCESSABLE_ENTITY


def test_what_came_of_a_dismissal_is_told_in_the_language_of_the_page(browser: Browser) -> None:
    half = HalfLine(topic="ORDERS", unique_key=KEYS[0], state=HalfState.NONE, told=NOT_LOOKED_AT(error=HOSTILE))
    kept = dismissal(half.as_dict(), dry_run=True)
    keep(browser, DISMISS, kept)
    browser.language = "zh"
    page = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "没有查询它的半消息" in page
    assert ("将会核销" in page, "已核销" in page) == (True, False), "a preview dismisses nothing"
    assert "its half was not looked at" not in page
    assert ">dismissed" not in page
    assert "<script>alert" not in page


def test_what_came_of_repairs_is_told_in_the_language_of_the_page(browser: Browser) -> None:
    line = RepairLine(
        topic="ORDERS",
        group="billing",
        unique_key=KEYS[0],
        verdict="LOST_CONFIRM",
        outcome="held",
        rung="end",
        reason=HELD_FIRST(by=("HOLD",), then=ANSWERED_WITH(outcome="NO_ANSWER", said=HOSTILE)),
    )
    report = ManualRepairReport(keys=(line,), dry_run=True, notes=(JUDGED_FIRST(judged=1, lines=7),), lines=7)
    chosen = {"all": True, "topic": None, "group": None, "verdict": None}
    keep(browser, REPAIR, report.as_dict() | {"chosen": chosen, "lines": 7})
    connections = browser.world.connections
    job = place_repair(connections, KEYS[:6], topic=None, group=None, reason="", by="anna")
    claimed = connections.ledger.jobs.claim(browser.world.settings.environment, token="t", lease_seconds=60)
    assert claimed is not None
    connections.ledger.jobs.change(claimed, JobChange(done=1, total=6, lines=[line.as_dict()]), lease_seconds=60)
    browser.language = "zh"
    outcome = browser.get("/acts/{act}/{key}", act="repair", key="k1").body.decode()
    assert "7 个中的前 1 个" in outcome
    for page in (outcome, browser.get("/jobs/{job_id}", job_id=job.job_id).body.decode()):
        assert "已暂停" in page
        assert "held: " not in page
        assert "<script>alert" not in page


def test_a_preview_of_what_has_its_effect_says_so_and_offers_no_dismissal(browser: Browser) -> None:
    document = dismissal({"state": "committed", "can_be_closed": False, "closed": False}, dry_run=True)
    line = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "outcome": "has its effect"}
    keep(browser, DISMISS, document | {"keys": [line | {"told": f"it took effect {HOSTILE}"}], "exit_code": 5})
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "has its effect: it took effect" in told
    assert "<script>alert" not in told
    assert 'action="/dismissals"' not in told


def test_a_dismissal_of_what_has_changed_leads_back_to_the_message(browser: Browser) -> None:
    of = Subscription(environment=browser.world.settings.environment, topic="ORDERS", group="billing")
    given_up = VerdictEntry(
        unique_key=KEYS[0],
        verdict=Verdict.QUARANTINED,
        evidence={},
        first_seen_ms=1,
        state=CandidateState.QUARANTINED,
        wait_seconds=0.0,
    )
    browser.world.connections.ledger.candidates.record(Shard(subscription=of, number=0), [given_up])
    form = {"keys": KEYS[0], "reason": "paid by hand", "seen": f"{KEYS[0]}=another"}
    answer = browser.post("/dismissals", form)
    assert answer.status is HTTPStatus.CONFLICT
    told = answer.body.decode()
    assert "It is not what you saw" in told
    assert f"{KEYS[0]} of ORDERS, billing: QUARANTINED as QUARANTINED" in told
    assert f'href="/messages/{KEYS[0]}"' in told
    assert browser.post("/holds", {"topic": "ORDERS", "reason": "r"}, key="k2").status is HTTPStatus.SEE_OTHER


def test_a_half_that_was_closed_is_told_with_the_dismissal(browser: Browser) -> None:
    half = {"state": "ended", "can_be_closed": False, "closed": True}
    keep(browser, DISMISS, dismissal(half, dry_run=False))
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "What came of the dismissal" in told
    assert "its half is " in told
    assert 'action="/dismissals"' not in told


def test_a_dismissal_tells_each_groups_outcome(browser: Browser) -> None:
    line = {"topic": "ORDERS", "group": "billing", "unique_key": KEYS[0], "outcome": "dismissed"}
    keep(browser, DISMISS, {"keys": [line], "exit_code": 0})
    told = browser.get("/acts/{act}/{key}", act="dismiss", key="k1").body.decode()
    assert "dismissed" in told
    assert "What came of the dismissal" in told
