"""What `reconciler dismiss` asks before it writes, and what it tells: inboxes, halves, exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from reconciler.cli.app import run
from reconciler.commands.acts.dismiss import DismissalLine, DismissalReport, dismiss_keys, take_back_dismissals
from reconciler.commands.acts.dismissed_halves import HalfLine
from reconciler.contract import outcomes
from reconciler.contract.outcomes import DISMISSAL_HAS_EFFECT, HALF_NONE
from reconciler.contract.subscription import Shard, Subscription
from reconciler.contract.tables import CandidateState, RepairState, Rung
from reconciler.contract.verdicts import QUARANTINING, Verdict
from reconciler.errors import InvalidValue
from reconciler.policy.evidence import as_foreign
from reconciler.policy.open_halves import HalfState
from reconciler.policy.ports.ledger import VerdictEntry
from reconciler.settings.file import load_settings
from reconciler.sql.tables import inbox, ledger_metadata
from reconciler.wiring.connections import Connections
from reconciler.words import said
from tests.engines import make_tables
from tests.unit.consumers.messages import inbox_engine

EXAMPLE = Path(__file__).parents[3] / "config" / "reconciler.toml"
KEYS = [f"{number:032X}" for number in range(3)]
GROUPS = ("billing", "shipping")
TOOK_EFFECT = 1_700_000_000_000

Captured = pytest.CaptureFixture[str]


def inbox_of(group: str, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/{group}.db"


@pytest.fixture
def connections(tmp_path: Path) -> Iterator[Connections]:
    """Two groups, each with an inbox without a row; no broker and no outbox answers."""
    ledger = f"sqlite:///{tmp_path}/ledger-of-dismissals.db"
    make_tables(ledger, ledger_metadata)
    sections = [{"topic": "ORDERS", "group": g, "inbox_url": inbox_of(g, tmp_path)} for g in GROUPS]
    for group in GROUPS:
        with inbox_engine(inbox_of(group, tmp_path)):
            pass
    producers = [{"group": "shop", "topics": ["ORDERS"], "outbox_url": f"sqlite:///{tmp_path}/nowhere.db"}]
    given = {
        "RECONCILER_SUBSCRIPTIONS": json.dumps(sections),
        "RECONCILER_PRODUCERS": json.dumps(producers),
        "RECONCILER_LEDGER__URL": ledger,
        "RECONCILER_ROCKETMQ__NAME_SERVERS": "127.0.0.1:1",
    }
    with Connections(load_settings(EXAMPLE, given)) as opened:
        yield opened


def give_up(
    connections: Connections,
    keys: Sequence[str] = KEYS[:1],
    state: CandidateState | None = None,
    given_up_as: Verdict = Verdict.QUARANTINED,
    topic: str = "ORDERS",
) -> None:
    verdict = Verdict.LOST_CONFIRM if state is CandidateState.OPEN else given_up_as
    verdicts = [
        VerdictEntry(
            unique_key=key,
            verdict=verdict,
            evidence={},
            first_seen_ms=1,
            state=state or CandidateState.QUARANTINED,
            wait_seconds=0.0,
        )
        for key in keys
    ]
    for group in GROUPS:
        of = Subscription(environment=connections.settings.environment, topic=topic, group=group)
        connections.ledger.candidates.record(Shard(subscription=of, number=0), verdicts)


def apply(group: str, tmp_path: Path) -> None:
    """Check-back has delivered the first message meanwhile, and the group has applied it."""
    with inbox_engine(inbox_of(group, tmp_path)) as engine, engine.begin() as connection:
        row = {"consumer_group": group, "unique_key": KEYS[0], "topic": "ORDERS", "source": "consumer"}
        connection.execute(sa.insert(inbox).values(**row, applied_at_ms=TOOK_EFFECT))


def dismiss(connections: Connections, keys: Sequence[str] = KEYS[:1], **options: Any) -> DismissalReport:
    wanted = {"topic": None, "group": None, "reason": "paid by hand", "by": "operator anna"} | options
    return dismiss_keys(connections, keys, **wanted)


def states(connections: Connections, key: str = KEYS[0]) -> dict[str, CandidateState]:
    rows = connections.ledger.reports.life(connections.settings.environment, key).candidates
    return {row.subscription.group: row.state for row in rows}


def test_a_key_that_has_its_effect_is_not_dismissed_and_the_command_says_so(
    connections: Connections, tmp_path: Path
) -> None:
    give_up(connections)
    for group in GROUPS:
        apply(group, tmp_path)
    for report in (
        dismiss(connections, dry_run=True),
        dismiss(connections, roll_back_half=True),
        dismiss(connections),
    ):
        assert [line.outcome for line in report.keys] == ["has its effect", "has its effect"]
        assert report.exit_code == 5
        assert all(
            line.told
            == DISMISSAL_HAS_EFFECT(effect=outcomes.TOOK_EFFECT(at_ms=TOOK_EFFECT), unique_key=line.unique_key)
            for line in report.keys
        )
        assert all(line.now is not None for line in report.keys)
    assert set(states(connections).values()) == {CandidateState.QUARANTINED}
    actions = connections.ledger.reports.actions(connections.settings.environment, limit=9).rows
    assert "billing: has its effect, shipping: has its effect" in {action.result for action in actions}


def test_the_group_that_lacks_the_effect_is_dismissed_beside_one_that_has_it(
    connections: Connections, tmp_path: Path
) -> None:
    give_up(connections)
    apply("billing", tmp_path)
    report = dismiss(connections)
    assert {line.group: line.outcome for line in report.keys} == {"billing": "has its effect", "shipping": "dismissed"}
    assert report.exit_code == 5
    assert states(connections) == {"billing": CandidateState.QUARANTINED, "shipping": CandidateState.SETTLED}
    assert dismiss(connections, group="shipping").exit_code == 0


def test_a_repair_of_the_same_key_in_another_topic_stops_no_dismissal(connections: Connections) -> None:
    give_up(connections)
    repairs, environment = connections.ledger.repairs, connections.settings.environment
    repairs.open(environment, "REFUNDS", KEYS[0], rung=Rung.END)
    report = dismiss(connections)
    assert [line.outcome for line in report.keys] == ["dismissed", "dismissed"]
    (other,) = repairs.of_keys(environment, "REFUNDS", KEYS[:1])[KEYS[0]]
    assert other.state is RepairState.OPEN


def test_an_inbox_that_is_away_is_told_and_stops_no_dismissal(connections: Connections, tmp_path: Path) -> None:
    give_up(connections)
    (tmp_path / "billing.db").unlink()
    report = dismiss(connections)
    assert (report.exit_code, states(connections)["billing"]) == (0, CandidateState.SETTLED)
    told = {line.group: line.told for line in report.keys}
    assert told["billing"] is not None
    assert said(told["billing"]).startswith("whether it took effect is not known: inbox")
    assert told["shipping"] is None


def test_brokers_that_are_away_are_told_once_and_stop_no_dismissal(connections: Connections) -> None:
    give_up(connections, KEYS)
    report = dismiss(connections, KEYS)
    assert [(half.unique_key, half.state) for half in report.halves] == [(KEYS[0], HalfState.UNKNOWN)]
    assert (report.exit_code, report.halves_left_out) == (0, 2)
    assert all(states(connections, key)["billing"] is CandidateState.SETTLED for key in KEYS)


def test_a_half_whose_topic_the_settings_do_not_name_is_closed_in_silence(connections: Connections) -> None:
    give_up(connections, topic="REFUNDS")
    report = dismiss(connections, roll_back_half=True)
    assert [(half.topic, half.unique_key, half.state) for half in report.halves] == [
        ("REFUNDS", KEYS[0], HalfState.UNKNOWN)
    ]
    assert report.exit_code == 4


def test_an_open_key_is_told_with_what_a_person_can_do(connections: Connections) -> None:
    give_up(connections, state=CandidateState.OPEN)
    report = dismiss(connections)
    assert (report.exit_code, [line.outcome for line in report.keys]) == (4, ["OPEN", "OPEN"])
    assert all("`reconciler hold ORDERS` stops its repair" in line.sentence for line in report.keys)


@pytest.mark.parametrize(
    ("state", "is_to_be_closed", "code"),
    [
        (HalfState.COMMITTED, True, 5),
        (HalfState.COMMITTED, False, 0),
        (HalfState.OPEN, True, 4),
        (HalfState.OPEN, False, 0),
        (HalfState.NONE, True, 0),
    ],
)
def test_a_half_that_was_to_be_closed_and_is_not_makes_the_exit_code(
    state: HalfState, is_to_be_closed: bool, code: int
) -> None:
    line = DismissalLine(topic="ORDERS", group="billing", unique_key=KEYS[0], outcome="dismissed")
    half = HalfLine(topic="ORDERS", unique_key=KEYS[0], state=state, told=HALF_NONE())
    assert DismissalReport(keys=(line,), halves=(half,), roll_back_half=is_to_be_closed).exit_code == code


def test_what_a_line_means_is_printed_above_the_table_and_is_bounded(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        DismissalLine(
            topic="ORDERS", group=f"group-{n}", unique_key=KEYS[0], outcome="OPEN", told=as_foreign(f"sentence {n}")
        )
        for n in range(25)
    ]
    report = DismissalReport(keys=tuple(lines))
    monkeypatch.setattr("reconciler.commands.acts.dismiss.dismiss_keys", lambda *_args, **_options: report)
    assert run(["dismiss", KEYS[0], "--reason", "paid", "--config", str(EXAMPLE)]) == 4
    told = capsys.readouterr().out
    assert "halves not looked at: 1; `reconciler dismiss KEY --dry-run` tells of each" in told
    assert f"{KEYS[0]} of ORDERS, group-19: sentence 19" in told
    assert "sentence 20" not in told
    assert "5 more are told with --output json" in told
    assert "Dismissed" not in told


def test_the_way_back_is_told_and_walked_on_the_command_line(
    connections: Connections, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_up(connections)
    assert dismiss(connections).exit_code == 0
    report = take_back_dismissals(
        connections, KEYS[:1], topic=None, group="billing", reason="not paid", by="operator bert"
    )
    (line,) = report.keys
    assert line.outcome == "taken back"
    assert line.sentence == (
        f"{KEYS[0]} of ORDERS, billing: it waits for a person again, and nothing is sent by itself: `reconciler "
        f"repair {KEYS[0]}` looks, and sends it if it is still lost"
    )
    assert report.exit_code == 0
    assert states(connections) == {"billing": CandidateState.QUARANTINED, "shipping": CandidateState.SETTLED}
    again = take_back_dismissals(connections, KEYS[:1], topic=None, group=None, reason="not paid", by="operator bert")
    assert [line.outcome for line in again.keys] == ["not dismissed", "taken back"]
    assert again.exit_code == 0
    monkeypatch.setattr("reconciler.commands.acts.dismiss.take_back_dismissals", lambda *_args, **_options: report)
    assert run(["dismiss", KEYS[0], "--take-back", "--reason", "not paid", "--config", str(EXAMPLE)]) == 0
    told = capsys.readouterr().out
    assert "halves not looked at" not in told
    assert "nothing is sent by itself" in told
    assert run(["dismiss", KEYS[0], "--take-back", "--dry-run", "--config", str(EXAMPLE)]) == 2
    assert run(["dismiss", KEYS[0], "--take-back", "--config", str(EXAMPLE)]) == 2


@pytest.mark.parametrize(
    ("answer", "more", "code", "left"),
    [
        (None, ("--reason", "paid"), 2, 3),
        (False, ("--reason", "paid"), 4, 3),
        (True, ("--reason", "paid"), 0, 1),
        (None, ("--reason", "paid", "--yes"), 0, 0),
        (None, ("--dry-run",), 0, 3),
        (None, ("--reason", "paid", "--yes", "--group", "nobody"), 2, 3),
        (None, ("--reason", "paid", "--yes", "--take-back"), 2, 3),
        (None, ("--reason", "paid", "--yes", "--roll-back-half"), 2, 3),
        (None, ("--reason", "paid", "--yes", KEYS[0]), 2, 3),
        (None, ("--yes",), 2, 3),
    ],
)
def test_all_that_waits_is_dismissed_after_a_look_and_what_comes_meanwhile_is_left(
    connections: Connections,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    answer: bool | None,
    more: Sequence[str],
    code: int,
    left: int,
) -> None:
    give_up(connections, KEYS[:2])
    questions: list[str] = []

    def asked(question: str) -> bool | None:
        questions.append(question)
        give_up(connections, KEYS[2:3])
        return answer

    if "--yes" in more or "--dry-run" in more:
        give_up(connections, KEYS[2:3])
    monkeypatch.setattr("reconciler.cli.act_commands.ask", asked)
    monkeypatch.setattr("reconciler.cli.act_commands.read_settings", lambda _: connections.settings)
    assert run(["dismiss", "--all", *more]) == code
    told = capsys.readouterr()
    waiting = [key for key in KEYS[:3] if CandidateState.QUARANTINED in states(connections, key).values()]
    assert len(waiting) == left, told
    assert questions == (["Dismiss these 2 messages? [y/N]: "] if more == ("--reason", "paid") else [])
    assert ("Would be dismissed" in told.err) is bool(questions)


@pytest.mark.parametrize("verdict", sorted(QUARANTINING - {Verdict.QUARANTINED}))
def test_after_a_dismissal_of_what_is_never_repaired_is_taken_back_no_repair_is_promised(
    connections: Connections, verdict: Verdict
) -> None:
    give_up(connections, given_up_as=verdict)
    assert dismiss(connections).exit_code == 0
    report = take_back_dismissals(
        connections, KEYS[:1], topic=None, group="billing", reason="not paid", by="operator bert"
    )
    (line,) = report.keys
    assert line.told is not None
    assert said(line.told) == (
        f"it waits for a person again, and nothing is sent by itself: what is {verdict} is no loss that rounds repair. "
        f"`reconciler repair {KEYS[0]}` judges it again, and settles it if an inbox or an effect query shows its "
        f"effect. If none can show it, `reconciler dismiss {KEYS[0]}` closes it"
    )


def test_a_key_that_differs_in_case_alone_is_named_where_nothing_has_the_one_that_was_typed(
    connections: Connections,
) -> None:
    known = "0" * 30 + "AB"
    give_up(connections, [known])
    with pytest.raises(InvalidValue, match=f"no verdict has it: .*; case counts, and this is known: {known}"):
        dismiss(connections, [known.lower()])
