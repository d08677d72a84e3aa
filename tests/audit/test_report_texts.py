"""The report in each language: every text is in the catalogue, and nothing else but the words changes."""

# ruff: noqa: RUF001  (Chinese punctuation is what it is about)

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from reconciler.audit.errors import ReasonWithheld
from reconciler.audit.output.writing import write_output
from reconciler.audit.report.page import report_html
from reconciler.audit.report.series import COLUMNS, SERIES
from reconciler.audit.report.texts import REPORT_LANGUAGES, Texts
from reconciler.audit.result.classes import RULES
from reconciler.audit.result.documents import result_document
from reconciler.audit.result.sentences import SENTENCES, sentence
from reconciler.audit.result.values import LATENCIES, EngineKind, NoAnswer, UncheckedRule
from reconciler.contract.visible_text import visible
from tests.audit import judged_samples
from tests.audit.test_report import Element, Page
from tests.unit.words.test_catalogue import entries, places

REPORT = Path(__file__).parents[2] / "reconciler/audit/report"
TEXTS = {code.removeprefix("report."): entry for code, entry in entries("audit_report.toml")}
_HAN = re.compile("[\u4e00-\u9fff]")
#: What every language writes alike: units, names of files, commands and times.
_ALIKE = re.compile(
    r"UTC|SHA-256|Spark|--engine here|result\.json|late_after_seconds|Asia/Shanghai|\b(?:ms|s|min|h|d)\b|[\dA-F]{16,}"
)
every_sample = pytest.mark.parametrize("name", judged_samples.SAMPLES)


def asked_for() -> Iterator[tuple[re.Pattern[str], frozenset[str], bool]]:
    """Pattern of a code, the places that are filled, and whether all of them are named."""
    for path in REPORT.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call) or ast.unparse(call.func) not in {"texts", "texts.marked"}:
                continue
            if isinstance(code := call.args[0], ast.JoinedStr):
                parts = [re.escape(str(of.value)) if isinstance(of, ast.Constant) else r"[\w -]+" for of in code.values]
            elif isinstance(code, ast.Constant):
                parts = [re.escape(str(code.value))]
            else:
                continue
            given = frozenset(one.arg for one in call.keywords if one.arg)
            yield re.compile("".join(parts)), given, all(one.arg for one in call.keywords)


def test_every_text_that_the_report_asks_for_is_there_with_its_places() -> None:
    for pattern, given, is_whole in asked_for():
        found = [entry["en"] for code, entry in TEXTS.items() if pattern.fullmatch(code)]
        assert found, pattern.pattern
        assert not is_whole or all(set(places(text)) == given for text in found), pattern.pattern


def test_no_text_is_left_that_the_report_does_not_ask_for() -> None:
    patterns = [pattern for pattern, _, _ in asked_for()]
    by_code = re.compile(r'"((?:lines|until)[\w.-]*)"')
    named = {code for path in REPORT.glob("*.py") for code in by_code.findall(path.read_text())}
    families = re.compile(r"fact\.\w+|count\.\w+\.(?:one|many)|said\.[\w.-]+")
    assert not [
        code
        for code in TEXTS
        if code not in named
        and not families.fullmatch(code)
        and not any(pattern.fullmatch(code) for pattern in patterns)
    ]


def test_what_stands_elsewhere_in_english_too_is_the_same_there() -> None:
    """Rules and latencies are in documents that are signed."""
    for rule in RULES:
        for what in ("rule", "meaning", "example"):
            assert TEXTS[f"{what}.{rule.name}"]["en"] == getattr(rule, what)
    for name, meaning in LATENCIES.items():
        assert TEXTS[f"latency-of.{name}"]["en"] == meaning
    for code, entry in TEXTS.items():
        if code.startswith("fact."):
            assert entry["en"] == code.removeprefix("fact.").removesuffix("_ms").replace("_", " ")


def test_every_sentence_of_a_result_is_in_the_catalogue_as_it_is_signed() -> None:
    said = {code.removeprefix("said."): entry["en"] for code, entry in TEXTS.items() if code.startswith("said.")}
    assert said == SENTENCES


def test_a_chinese_page_says_the_sentences_of_a_result_in_chinese_and_the_signed_document_in_english() -> None:
    why = sentence("both", first=sentence("no-snapshot"), second=sentence("no-history"))
    unchecked = UncheckedRule(topic="ORDERS", group="billing", class_name="UNACCOUNTED", why=why)
    shown = {"subscription": "ORDERS/billing", "stream": "round", "start": "A", "end": "B"}
    judged = replace(
        judged_samples.no_answer(),
        not_checked=(unchecked,),
        notes=(sentence("doubled", table="outbox", count=12), "of an older release"),
        no_answer=NoAnswer(reason="gap", message=sentence("gap", **shown, why=sentence("no-round"))),
    )
    chinese, english = (report_html(judged, language=language).decode() for language in ("zh", "en"))
    assert "历史中没有这段时间的待匹配快照；没有历史" in chinese
    assert "outbox：有 12 条记录不止一次出现，只计一次" in chinese
    assert "ORDERS/billing 的历史缺少 A 至 B 的 round 记录（一轮也没有）；请审计没有缺口的时间窗。" in chinese
    assert '<span lang="en">of an older release</span>' in chinese
    signed = json.dumps(result_document(judged, "UTC", "here"))
    for told in (
        "there is no history",
        "outbox: 12 rows were there",
        "rows of round from A to B (no round came); audit",
    ):
        assert (told in signed, told in english, told in chinese) == (True, True, False)


@pytest.mark.parametrize("language", REPORT_LANGUAGES)
def test_every_value_of_a_closed_list_has_a_text(language: str) -> None:
    texts = Texts(language)
    families = {
        "reason": get_args(ReasonWithheld),
        "engine": get_args(EngineKind),
        "page-title": ("clean", "violations", "no answer"),
        "series": SERIES,
        "of-series": COLUMNS,
        "latency-name": LATENCIES,
    }
    for family, names in families.items():
        assert all(texts(f"{family}.{name}") for name in names)


def test_every_fact_of_a_finding_has_a_text_and_no_other() -> None:
    tree = ast.parse((REPORT.parent / "judge/findings.py").read_text())
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    made = {str(given.arg) for one in calls if ast.unparse(one.func).endswith("].update") for given in one.keywords}
    places_of = [
        one for one in ast.walk(tree) if isinstance(one, ast.Subscript) and ast.unparse(one.value) == "evidence"
    ]
    made |= {str(one.slice.value) for one in places_of if isinstance(one.slice, ast.Constant)}
    assert {code.removeprefix("fact.") for code in TEXTS if code.startswith("fact.")} == made


def words_of(element: Element) -> Iterator[str]:
    """Texts that people read and the catalogue says: not code, not names from outside, not what is quoted."""
    if element.name in {"code", "bdi", "script", "style"} or element.attributes.get("lang") == "en":
        return
    for name in ("aria-label", "placeholder", "data-label"):
        if element.attributes.get(name):
            yield str(element.attributes[name])
    for one in element.content:
        if isinstance(one, str):
            yield one
        else:
            yield from words_of(one)


def bare(text: str) -> str:
    """Without what is alike in each language, class names and codes in capitals."""
    return re.sub(r"[A-Z_]{4,}|`[^`]*`", "", _ALIKE.sub("", text))


@every_sample
def test_a_chinese_page_says_nothing_in_english_but_names_and_what_was_signed(name: str) -> None:
    judged = judged_samples.SAMPLES[name]()
    chinese = Page(report_html(judged, zone="Asia/Shanghai", language="zh"))
    (page,) = chinese.all("html")
    assert page.attributes["lang"] == "zh"
    texts = [text for text in words_of(page) if judged.environment not in text]
    assert any(_HAN.search(text) for text in texts)
    left = [text for text in texts if re.search(r"[a-z]{3,}", bare(text)) and not _HAN.search(text)]
    values = {str(value) for one in judged.findings for value in one.evidence.values()}
    # Of the samples; each that the audit makes has a text.
    strange = {fact for one in judged.findings for fact in one.evidence if f"fact.{fact}" not in TEXTS}
    values |= {Texts().fact(fact) for fact in strange}
    assert [text for text in left if text.strip() not in set(map(visible, values))] == []


@every_sample
def test_pages_of_both_languages_have_the_same_parts(name: str) -> None:
    judged = judged_samples.SAMPLES[name]()
    english, chinese = (Page(report_html(judged, language=language)) for language in REPORT_LANGUAGES)
    for tag in ("section", "table", "th", "td", "h2", "h3", "svg", "rect", "a", "code"):
        assert len(english.all(tag)) == len(chinese.all(tag)), tag


def test_the_number_of_rows_that_a_filter_shows_is_told_in_the_language_of_the_page() -> None:
    english, chinese = (
        report_html(judged_samples.violations(), language=language).decode() for language in REPORT_LANGUAGES
    )
    assert "`${shown} of ${rows.length} shown`" in english
    assert "`显示 ${rows.length} 项中的 ${shown} 项`" in chinese


def test_of_an_output_the_page_alone_has_a_language(tmp_path: Path) -> None:
    english, chinese = (
        write_output(judged_samples.violations(), tmp_path / language, language=language)
        for language in REPORT_LANGUAGES
    )
    files = sorted(path.relative_to(english) for path in english.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(chinese) for path in chinese.rglob("*") if path.is_file())
    other = {str(one) for one in files if (english / one).read_bytes() != (chinese / one).read_bytes()}
    assert {one for one in other if not one.startswith("statement")} == {"report.html"}
