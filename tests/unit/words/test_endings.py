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
from reconciler.policy.ports import LedgerLife
from reconciler.words import LANGUAGES, said
from tests.unit.service.test_life_story import ABSENT, BILLING, CANDIDATE, KEY, RECORDED, REPAIR, story

#: What is done where no act of the reconciler ends it.
NO_ACT = {
    "en": r"No act of the reconciler|the group has the effect|correct `tags`|an earlier `since`",
    "zh": r"对账器没有能|已生效|更正其 \[\[subscriptions\]\] 段的 `tags`|更早的 `since`",
}


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
