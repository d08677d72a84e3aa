"""Alerts: each fires on its accident and is silent in calm, names metrics that exist, and has a runbook that helps."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from reconciler.cli.app import app
from reconciler.commands.status import accounting
from reconciler.contract.answers import PROBE_TOPIC_MISSING
from reconciler.contract.facts import Code
from reconciler.contract.subscription import Subscription
from reconciler.contract.verdicts import LOSSES
from reconciler.instrumentation.metrics import catalogue as c
from reconciler.instrumentation.metrics.book import MetricBook
from reconciler.instrumentation.metrics.catalogue import LABELS, METRICS
from reconciler.instrumentation.metrics.events import EventMetrics
from reconciler.telling import account, undecided_keys
from tests.services.requirements import promtool_missing, require
from tests.unit.metrics.measured_world import scraped

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/rules.yml"
RUNBOOKS = ROOT / "docs/runbooks"
RUNBOOK_PARTS = runpy.run_path(str(ROOT / "docs/runbooks.py"))
PROOFS = ROOT / "tests/alerts"
TEXT = RULES.read_text(encoding="utf-8")
ALERTS = re.findall(r"^ +- alert: (\w+)$", TEXT, re.MULTILINE)
PLACE = '{topic="ORDERS",consumer_group="billing"}'
OF = {"topic": "ORDERS", "consumer_group": "billing"}
TOPIC = '{topic="ORDERS"}'
#: A value that is the time of each scrape, and one that stands still at 0.
NOW, STANDS = "0+60x120", "0x120"


@dataclass(frozen=True)
class Case:
    """Series of an accident and of calm, a value a minute; the labels and the summary of the alert after an hour."""

    accident: dict[str, str]
    calm: dict[str, str]
    labels: dict[str, str]
    summary: str


def of_place(name: str, accident: str, calm: str, summary: str) -> Case:
    series = f"{name}{PLACE}"
    return Case({series: accident}, {series: calm}, OF, f"ORDERS/billing: {summary}")


def of_topic(name: str, more: str, accident: str, calm: str, summary: str) -> Case:
    series = f'{name}{{topic="ORDERS"{more}}}'
    return Case({series: accident}, {series: calm}, {"topic": "ORDERS"}, f"ORDERS: {summary}")


LOOK_UPS = 'reconciler_lookups_total{topic="ORDERS",kind="half",outcome="%s"}'
UNSENT = f'{c.OLDEST_NOTICE.name}{{job="%s",notifier="on-call"}}'
CASES = {
    "AccountedUntilStale": of_place(
        c.ACCOUNTED_UNTIL.name, STANDS, NOW,
        "commits of the last 1h 0m 0s are not accounted for",
    ),
    "RoundStale": of_place(c.LAST_ROUND.name, STANDS, NOW, "no round for 1h 0m 0s"),
    "SweepStale": Case(
        {c.LAST_SWEEP.name: STANDS}, {c.LAST_SWEEP.name: NOW}, {},
        "no sweep finished every outbox for 1h 0m 0s",
    ),
    "LostMessages": of_place(c.LOST.name, "3x120", STANDS, "3 lost messages have not arrived for 10 minutes"),
    "WronglyRolledBack": Case(
        {f'{c.LOSSES.name}{{topic="ORDERS",consumer_group="billing",verdict="rolled_back_wrongly"}}': "0x50 2x70"},
        {f'{c.LOSSES.name}{{topic="ORDERS",consumer_group="billing",verdict="lost_confirm"}}': "0x50 2x70"}, OF,
        "ORDERS/billing: 2 committed messages were rolled back at the broker within an hour",
    ),
    "OldestPendingHigh": of_place(
        c.OLDEST_PENDING.name, "7200x120", "60x120", "the oldest key without a consumption waits for 2h 0m 0s"
    ),
    "RepairFailing": of_topic(
        c.REPAIR_ROWS.name, ',rung="end",state="failed"', "2x120", STANDS,
        "2 repairs have failed and are not tried again",
    ),
    "BreakerOpen": of_topic(
        c.BREAKER_OPEN.name, "", "1x120", STANDS, "the circuit breaker is open, or was within 10 minutes (openings: 1)"
    ),
    "RedisDown": Case(
        {f'{c.DEPENDENCY_UP.name}{{job="run",dependency="redis"}}': STANDS},
        {f'{c.DEPENDENCY_UP.name}{{job="run",dependency="redis"}}': "1x120"}, {"job": "run"},
        "run: Redis does not answer (up: 0), and rounds pause",
    ),
    "RedisMemoryLost": Case(
        {f'{c.OUTAGES.name}{{reason="memory_lost"}}': "0x50 1x70", f"{c.ROUNDS_VOIDED.name}{PLACE}": STANDS},
        {f'{c.OUTAGES.name}{{reason="away"}}': "0x50 1x70", f"{c.ROUNDS_VOIDED.name}{PLACE}": STANDS}, {},
        "Redis lost what it had acknowledged: 1 outages and voided rounds within an hour",
    ),
    "LookupsUnknown": Case(
        {LOOK_UPS % "unknown": "0+60x120", LOOK_UPS % "absent": "0+20x120"},
        {LOOK_UPS % "unknown": "0+20x120", LOOK_UPS % "absent": "0+60x120"}, {"topic": "ORDERS"},
        "ORDERS: 75% of the look-ups at brokers are unknown, and losses stay unproved",
    ),
    "WatermarkStuck": Case(
        {f"{c.WATERMARK.name}{PLACE}": STANDS, f"{c.PENDING.name}{PLACE}": "5x120"},
        {f"{c.WATERMARK.name}{PLACE}": STANDS, f"{c.PENDING.name}{PLACE}": STANDS}, OF,
        "ORDERS/billing: the group's watermark is 1h 40m 0s old and keys wait behind it",
    ),
    "Quarantined": of_place(c.QUARANTINED.name, "4x120", STANDS, "4 keys wait for a person"),
    "BacklogGrowing": of_place(
        c.PENDING.name, "10000+100x120", "20000x120", "20k keys are pending, and more come than go"
    ),
    "NoticesUnsent": Case(
        {UNSENT % "run": "0+60x120", UNSENT % "sweep": "0+60x50"}, {UNSENT % "run": "60x120", UNSENT % "sweep": STANDS},
        {"notifier": "on-call"}, "on-call: a message to people has been due for 1h 0m 0s, and could not be sent",
    ),
}  # fmt: skip
#: Minutes at which the alert is looked at.
AT = dict.fromkeys(CASES, 60) | {"WatermarkStuck": 100, "BacklogGrowing": 100}


def one_test(name: str, series: dict[str, str], *, fires: bool) -> dict[str, object]:
    severity = re.search(rf"alert: {name}\n.*?severity: (\w+)", TEXT, re.DOTALL)
    assert severity is not None
    expected = {
        "exp_labels": CASES[name].labels | {"severity": severity[1]},
        "exp_annotations": {"summary": CASES[name].summary, "runbook_url": f"docs/runbooks/{name}.md"},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{AT[name]}m", "alertname": name, "exp_alerts": [expected] if fires else []}
        ],
    }


def promtool(*arguments: str) -> str:
    require(promtool_missing())
    ran = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def test_the_rules_can_be_loaded() -> None:
    assert promtool("check", "rules", str(RULES)) == ""


@pytest.mark.parametrize("fires", [True, False], ids=["accident", "calm"])
@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_on_its_accident_and_is_silent_in_calm(name: str, fires: bool, tmp_path: Path) -> None:
    case = CASES[name]
    test = one_test(name, case.accident if fires else case.calm, fires=fires)
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    assert promtool("test", "rules", str(file)) == ""


OPENINGS = f"{c.BREAKER_OPENINGS.name}{TOPIC}"


@pytest.mark.parametrize(("name", "series", "summary"), [
    ("RoundStale", {f"{c.OUTAGE_OPEN.name}": STANDS}, "no process shows a round"),
    ("SweepStale", {f"{c.OUTAGE_OPEN.name}": STANDS}, "no process shows a sweep"),
    ("AccountedUntilStale", {f"{c.LOST.name}{PLACE}": "5x120"}, "ORDERS/billing: it is not known until when"),
    ("AccountedUntilStale", {f'{c.STATE_UP.name}{{job="run"}}': STANDS}, "run: it is not known until when"),
    ("BreakerOpen", {OPENINGS: "0x55 1x60"}, "(openings: 1)"),
    ("BreakerOpen", {OPENINGS: "0x52 1x2 2x2 3x60", f"{c.BREAKER_OPEN.name}{TOPIC}": "1x120"}, "(openings: 3)"),
])  # fmt: skip
def test_silence_and_what_was_short_are_no_calm(
    name: str, series: dict[str, str], summary: str, tmp_path: Path
) -> None:
    """Absent values fire, and what was there between two scrapes; the number is none that stands in for silence."""
    test = one_test(name, series, fires=False)
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}))
    told = promtool("test", "rules", str(file))
    assert f"alertname: {name}" in told
    assert summary in told


def test_the_command_of_the_rules_makes_each_link_lead_to_the_console() -> None:
    command = re.search(r"sed '[^']+'", TEXT)
    assert command is not None
    assert command[0] in (ROOT / "docs/how-to/console.md").read_text(encoding="utf-8")
    made = subprocess.run([*shlex.split(command[0]), RULES], capture_output=True, text=True, check=True).stdout
    links = re.findall(r"^ +runbook_url: (.*)$", made, re.MULTILINE)
    assert links == [f"https://reconciler.example/docs/runbooks/{name}.md" for name in ALERTS]


def test_every_expression_names_metrics_and_labels_that_exist() -> None:
    named = set(re.findall(r"\breconciler_\w+", TEXT))
    assert named <= {metric.name for metric in METRICS}
    matched = set(re.findall(r"(\w+)=\"", TEXT)) | set(re.findall(r"\$labels\.(\w+)", TEXT))
    assert matched <= set(LABELS), "`job` is Prometheus' own, too"
    values = re.findall(r"verdict=\"(\w+)\"", TEXT)
    assert values
    assert set(values) <= {verdict.value.lower() for verdict in LOSSES}


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_all_that_the_woken_person_needs(name: str) -> None:
    rule = TEXT.split(f"- alert: {name}\n", 1)[1].split("- alert:")[0]
    for field in ("expr:", "for:", "severity:", "summary:", f"runbook_url: docs/runbooks/{name}.md"):
        assert field in rule
    assert "$value" in rule.split("summary:", 1)[1]


#: Headings of a runbook, in their order.
PARTS = {
    "docs/runbooks": ["Now", "Look", "Do", "Done when"],
    "docs/zh/runbooks": ["现状", "查看", "处理", "完成的标志"],
}
WORDS_MAX = 250
PAGES = [f"{folder}/{name}.md" for folder in PARTS for name in ALERTS]
#: How to run a command, which is the same on each page, and what the console shows in another way.
_REPEATED = re.compile(r"<!-- (prefix|live\b.*?) -->.*?<!-- /\w+ -->\n", re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_a_runbook_fits_one_screen_and_says_what_it_is_what_to_look_at_what_to_do_and_when_it_is_over(
    page: str,
) -> None:
    folder, _, name = page.removesuffix(".md").rpartition("/")
    text = _REPEATED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == PARTS[folder]
    severity = re.search(rf"- alert: {name}\n.*?severity: (\w+)", TEXT, re.DOTALL)
    _, told, meaning, _ = text.split("\n\n", 3)
    assert severity is not None
    assert told.startswith(f"**{severity[1]}**")
    assert len(re.findall(r"\.(?= |$)|。", " ".join(meaning.split()))) == 2, (
        "what it means, and whether it ends by itself"
    )
    assert len(re.findall(r"^```bash\n.*\n```$", text, re.MULTILINE)) == 1, "one command tells the reason"
    assert len(re.findall(r"^\| ", text, re.MULTILINE)) >= 4
    assert words(text) <= WORDS_MAX


def words(text: str) -> float:
    """Of what a person reads; what is quoted from the program, or typed, is one; two Chinese characters are one."""
    prose = re.sub(r"<!--.*?-->|```.*?```|\]\([^)]*\)", "", text, flags=re.DOTALL)
    return len(re.findall(r"`[^`]+`|[A-Za-z\d'-]+", prose)) + len(re.findall(r"[\u4e00-\u9fff]", prose)) / 2


def led_to(page: Path) -> list[str]:
    """The pages that rows of a runbook lead to."""
    rows = re.findall(r"^\| .*", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [link for row in rows for link in re.findall(r"\]\(([^)#]+)", row)]


@pytest.mark.parametrize("page", PAGES)
def test_an_alert_ends_within_two_pages_since_a_runbook_that_a_row_leads_to_leads_no_further(page: str) -> None:
    folder = (ROOT / page).parent
    assert not [link for link in led_to(ROOT / page) if "/" not in link and led_to(folder / link)]


@pytest.mark.parametrize("page", PAGES)
def test_what_a_runbook_tells_people_to_look_for_is_said_by_the_program(page: str) -> None:
    rows = re.findall(r"^\| (.*?) \|", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    quoted = [one for row in rows for one in re.findall(r"`([^`]+)`", row) if not one.startswith("reconciler ")]
    parts = [part.strip(" :") for one in quoted for part in re.split(r"\.\.\.|: ", one)]
    assert not [part for part in parts if part not in product()]


@cache
def product() -> str:
    files = [
        one
        for folder in ("reconciler", "consumers")
        for kind in ("py", "toml")
        for one in ROOT.glob(f"{folder}/**/*.{kind}")
    ]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def test_every_cause_of_a_late_account_is_in_its_runbook() -> None:
    """A cause is a code that a function which makes a link calls, or one that it asks; a code's remedy is none."""
    listed = {code for codes, *_ in RUNBOOK_PARTS["CAUSES"] for code in codes}
    made = {cause for module in (account, accounting, undecided_keys) for cause in causes_in(module)}
    assert listed == made | {PROBE_TOPIC_MISSING}, "which a probe's answer also tells"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_who_looks_a_cause_up_by_its_words_stops_at_no_row_of_shorter_words(language: str) -> None:
    told = [re.findall(r"`([^`]+)`", row.split("|")[1]) for row in RUNBOOK_PARTS["causes"](language)][2:]
    assert len(told) > 10
    rows = [(row, one) for row, words in enumerate(told) for one in words]
    assert not [
        (one, other) for row, one in rows for later, other in rows if later >= row and one != other and one in other
    ]


def causes_in(module: ModuleType) -> Iterator[Code]:
    functions = [one for one in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(one, ast.FunctionDef)]
    called = {
        one.name: {ast.unparse(node.func) for node in ast.walk(one) if isinstance(node, ast.Call)} for one in functions
    }
    for names in called.values():
        if "Link" in names:
            asked = set().union(names, *(called.get(name, ()) for name in names))
            codes = [code for name in asked if isinstance(code := vars(module).get(name), Code)]
            yield from (code for code in codes if code not in NO_CAUSES)


#: No link is held by the first; the others are told within a cause.
NO_CAUSES = (account.PASSED, account.NO_READER, account.NO_ANNOUNCEMENT_CONSUMER)


def test_the_list_of_alerts_cases_and_runbooks_is_one() -> None:
    assert len(ALERTS) == len(set(ALERTS)) == 15
    assert set(ALERTS) == set(CASES) == {page.stem for page in RUNBOOKS.glob("*.md")}


def test_every_alert_is_proved_by_an_accident_with_processes() -> None:
    """What `proving` names has to fire within its block, and to end after it (tests/alerts/world.py)."""
    assert set(proved()) == set(ALERTS)


def proved() -> Iterator[str]:
    """Every text that an argument of `world.proving(...)` is."""
    for file in sorted(PROOFS.glob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "proving":
                yield from (ast.literal_eval(argument) for argument in node.args)


def commands() -> list[tuple[str, str]]:
    found = []
    for page in sorted(RUNBOOKS.glob("*.md")):
        text = _REPEATED.sub("", page.read_text(encoding="utf-8"))
        (block,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        lines = [*block.splitlines(), *re.findall(r"`(reconciler [^`]+)`", text)]
        found += [(page.stem, line) for line in lines]
    return found


@pytest.mark.parametrize(("page", "line"), commands())
def test_a_command_of_a_runbook_is_understood(page: str, line: str) -> None:
    program, name, *arguments = shlex.split(line)
    assert program == "reconciler"
    group = typer.main.get_command(app)
    command = group.commands[name]  # type: ignore[attr-defined]  # a typer group
    context = command.make_context(name, arguments, resilient_parsing=False)
    assert context.params, (page, line)


def test_the_first_loss_and_the_first_outage_are_an_increase() -> None:
    book = MetricBook("run")
    EventMetrics(book).begin([Subscription(environment="test", topic="ORDERS", group="billing")])
    page = scraped(book)
    place = "consumer_group=billing,topic=ORDERS"
    assert page[f"reconciler_losses_total{{{place},verdict=rolled_back_wrongly}}"] == 0
    assert page["reconciler_outages_total{reason=memory_lost}"] == 0
    assert page["reconciler_breaker_openings_total{topic=ORDERS}"] == 0
    assert page[f"reconciler_voided_rounds_total{{{place}}}"] == 0
