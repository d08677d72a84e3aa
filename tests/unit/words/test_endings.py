"""Whatever waits for a person tells, in the command and in the console, the act that ends it, or that there is none."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import typer

from reconciler.cli.app import app
from reconciler.contract.tables import CandidateState, RepairState
from reconciler.contract.verdicts import ENDINGS, LOSSES, QUARANTINING, SETTLING, WAITING, Verdict, what_ends
from reconciler.policy.evidence import Lookup, Presence, WitnessAnswer
from reconciler.telling.life_story import GOES_ON, NEEDS_A_PERSON, NOT_REPAIRED
from reconciler.telling.ports.reports import LedgerLife
from reconciler.words import LANGUAGES, said
from reconciler.words.catalogue import sentences
from tests.unit.service.test_life_story import ABSENT, BILLING, CANDIDATE, KEY, RECORDED, REPAIR, story

#: What is done where no act of the reconciler ends it.
NO_ACT = {
    "en": r"No act of the reconciler|the group has the effect|correct `tags`|an earlier `since`",
    "zh": r"对账器没有能|已生效|改正其 \[\[subscriptions\]\] 段的 `tags`|更早的 `since`",
}

#: Lines of `status` and of the console's first page, by their rooms.
ROOMS = ("status.", "account.", "lag.", "undecided.")
#: A fact, or somebody's text, in such a place tells what to do.
CARRIED = ("{why}", "{cause}", "{remedy}", "{step}", "{trouble}", "{needs}", "{groups}", "{outboxes}")
#: Acts that no command does, in the words of each language.
BY_WORDS = {
    "account.no-reader": ("must be the same", "必须相同"),
    "account.no-verdict": ("their log says why", "原因见日志"),
    "account.unheard": ("is unique_key_topic the same", "unique_key_topic 是否相同"),
    "account.unreadable-time": ("mend the value", "请改正该值"),
    "lag.deserted": ("start its consumers", "请启动它的消费者"),
    "lag.waiting": ("No act of the reconciler", "对账器没有能"),
    "status.before-since": ("nothing is sent for it alone", "不会单独为它发送"),
    "status.damaged-repairs": ("mend the value", "改正该值"),
    "status.damaged-verdicts": ("mend the value", "改正该值"),
    "status.effect-after-dismissal": ("undo one of the two", "撤销其中一次"),
    "status.misshapen-members": ("mend what the group adds", "请改正该组写入"),
    "status.rejected": ("does [[producers]] name every service", "[[producers]] 是否"),
    "status.renamed-group-has-members": ("stop them", "请停止它们"),
    "status.standing-check-service": ("see to the exception", "请处理它日志中的异常"),
    "status.two-effects": ("undo one effect", "撤销其中一次的业务结果"),
    "status.unrepaired": ("the log of `run` says why", "见 `run` 的日志"),
    "status.unswept": ("give it a section", "为它加一段"),
}
#: Nothing that waits for a person: what goes on by itself, what is so, and what has happened.
WAITS_FOR_NOBODY = {
    "account.passed", "account.until", "account.announced-until", "account.well", "account.lost",
    "lag.none", "lag.waits", "lag.read",
    "status.rounds-follow", "status.rounds-wait", "status.acknowledged",
    "status.no-outbox", "status.no-inbox", "status.by-query", "status.by-halves", "status.effects-by-query",
}  # fmt: skip


def commands() -> dict[str, set[str]]:
    """Each command with its options; of a group of commands each one by both names."""
    click = typer.main.get_command(app)
    found: dict[str, set[str]] = {}
    for name, command in click.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        named = {f"{name} {one}": it for one, it in below.items()} if below else {name: command}
        found |= {full: {text for option in it.params for text in option.opts} for full, it in named.items()}
    return found


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("verdict", Verdict)
def test_a_verdict_names_an_act_that_there_is_or_says_that_there_is_none(verdict: Verdict, language: str) -> None:
    sentence = said(what_ends(verdict, KEY), language)
    known = commands()
    acts = re.findall(r"`reconciler ([^`]+)`", sentence)
    for act in acts:
        words = act.replace(KEY, "KEY").split(" ")
        name = next(" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in known)
        assert {word for word in words if word.startswith("--")} <= known[name]
    assert acts or re.search(NO_ACT[language], sentence)


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_line_of_status_and_of_the_first_page_has_an_act_or_waits_for_nobody(language: str) -> None:
    known = commands()
    lines = {code: text for code, text in sentences(language).items() if code.startswith(ROOMS)}
    assert BY_WORDS.keys() | WAITS_FOR_NOBODY <= lines.keys()
    without = []
    for code, text in lines.items():
        acts = re.findall(r"`reconciler ([a-z]+)", text)
        assert set(acts) <= {name.split(" ")[0] for name in known}, text
        if code in BY_WORDS:
            is_told = BY_WORDS[code][list(LANGUAGES).index(language)] in text
        else:
            is_told = bool(acts) or code in WAITS_FOR_NOBODY or any(place in text for place in CARRIED)
        without += [] if is_told else [code]
    assert without == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_outlook_of_a_message_that_waits_says_what_ends_it(language: str) -> None:
    for code in (*NEEDS_A_PERSON, GOES_ON):
        assert "{ending}" in sentences(language)[code.name]
    assert "`reconciler resume {topic}`" in sentences(language)[NOT_REPAIRED.name]


def test_every_verdict_has_one() -> None:
    assert ENDINGS.keys() == set(Verdict)
    assert set(Verdict) == QUARANTINING | LOSSES | WAITING | SETTLING


@pytest.mark.parametrize("verdict", sorted(QUARANTINING | WAITING | LOSSES))
def test_what_comes_next_of_a_message_names_what_ends_it(verdict: Verdict) -> None:
    """`reconciler explain` and the page of a message show this line; a group that lags is WAITING."""
    state = CandidateState.QUARANTINED if verdict in QUARANTINING else CandidateState.OPEN
    row = replace(CANDIDATE, verdict=verdict, state=state)
    ledger = LedgerLife(candidates=(row,), repairs=(), rounds=())
    (line,) = story(inboxes={BILLING: ABSENT}, ledger=ledger).outlook
    for language in LANGUAGES:
        assert said(what_ends(verdict, KEY), language) in said(line, language)


def test_a_repair_that_has_failed_waits_for_a_person_whatever_its_verdict() -> None:
    failed = replace(REPAIR, state=RepairState.FAILED)
    ledger = LedgerLife(candidates=(CANDIDATE,), repairs=(failed,), rounds=())
    (line,) = story(inboxes={BILLING: ABSENT}, ledger=ledger).outlook
    assert said(what_ends(Verdict.QUARANTINED, KEY)) in said(line)


def test_an_inbox_row_that_is_incomplete_names_what_ends_it() -> None:
    half = WitnessAnswer(witness="billing", presence=Presence.UNKNOWN, detail="half", is_incomplete=True)
    inbox: Lookup[object] = Lookup(presence=Presence.UNKNOWN, answers=(half,))
    (line,) = story(outbox=RECORDED, inboxes={BILLING: inbox}).outlook
    assert f"reconciler incomplete accept {KEY}" in said(line)
