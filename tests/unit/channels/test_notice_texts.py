"""What notices say: who is on call at night reads it once, in their own language."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from reconciler.channels.texts import (
    DETAIL_CHARACTERS_MAX,
    RUNBOOKS,
    NoticeText,
    NoticeTexts,
)
from reconciler.contract.tables import NoticeKind
from reconciler.telling.account import SHARDS_WITHOUT_ROUND
from reconciler.words import LANGUAGES
from tests.examples import examples
from tests.unit.channels.hostile import hostile_texts
from tests.unit.channels.notices import CONSOLE_URL, assert_golden, every_notice, hostile_notice, notice
from tests.unit.words.test_catalogue import entries

ROOT = Path(__file__).parents[3]
_HAN = re.compile("[\u4e00-\u9fff]")
#: Code without its room -> its texts by language.
TEXTS = {code.removeprefix("notice."): entry for code, entry in entries("notices.toml")}
ENGLISH = NoticeTexts("en", console_url=CONSOLE_URL)


def test_nothing_is_left_in_english() -> None:
    assert {key for key, text in TEXTS.items() if not _HAN.search(text["zh"])} == {
        "form.title",
        "form.fact",
        "form.docs",
    }


def test_every_kind_has_its_texts_and_there_are_no_others() -> None:
    families = {key.rpartition(".")[0] for key in TEXTS if key.startswith(("begins.", "ends."))}
    assert families == {f"{when}.{kind}" for when in ("begins", "ends") for kind in NoticeKind}
    assert {key.removeprefix("detail.") for key in TEXTS if key.startswith("detail.")} == set(NoticeKind)


def test_no_text_is_left_that_no_notice_asks_for() -> None:
    asked = (ROOT / "reconciler/channels/texts.py").read_text() + (ROOT / "reconciler/channels/mail.py").read_text()
    single = [key for key in TEXTS if key.startswith(("form.", "label."))]
    assert not [key for key in single if f'"notice.{key}"' not in asked]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_change_of_what_people_read_is_seen(language: str) -> None:
    texts = NoticeTexts(language, zone="Asia/Shanghai", console_url=CONSOLE_URL)
    pages = [as_page(texts.of(one)) for one in every_notice()]
    assert_golden(f"texts.{language}.txt", "\n\n".join(pages).encode() + b"\n")


def as_page(text: NoticeText) -> str:
    return "\n".join((text.title, *text.lines, *(f"{label}: {link}" for label, link in text.links or [("", "")])))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_names_commands_that_there_are(language: str) -> None:
    told = " ".join(text[language] for key, text in TEXTS.items() if key.endswith(".next"))
    named = set(re.findall(r"reconciler ([a-z]+)", told))
    source = "".join(path.read_text() for path in (ROOT / "reconciler/cli").glob("*.py"))
    assert named
    assert not [name for name in named if not re.search(rf'command\("{name}"|def {name}\(|name="{name}"', source)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_runbook_is_there_in_the_language_of_the_notice(language: str) -> None:
    assert set(RUNBOOKS) == set(NoticeKind)
    texts = NoticeTexts(language)
    pages = [re.sub(r"^.*(?=docs/)", "", texts.of(notice(kind)).references[0]) for kind in NoticeKind]
    assert not [page for page in pages if not (ROOT / page).is_file()]
    tree = "docs" if language == "en" else f"docs/{language}"
    assert {page.rpartition("/")[0] for page in pages} == {f"{tree}/runbooks", f"{tree}/reference"}


@pytest.mark.parametrize(
    ("zone", "shown"),
    [
        ("UTC", "Since: 2026-11-25 03:02:05Z"),
        ("Asia/Shanghai", "Since: 2026-11-25 11:02:05+08:00"),
        ("America/St_Johns", "Since: 2026-11-24 23:32:05-03:30"),
    ],
)
def test_no_time_is_told_without_its_zone(zone: str, shown: str) -> None:
    assert shown in NoticeTexts("en", zone=zone).of(notice()).facts


def test_a_time_that_no_calendar_has_costs_no_notice() -> None:
    damaged = replace(notice(), since_ms=10**18)
    assert "Since: 1000000000000000000 ms" in NoticeTexts("en", zone="Asia/Shanghai").of(damaged).facts


@pytest.mark.parametrize(
    ("kind", "count", "title"),
    [
        (NoticeKind.LOSS_PROVED, 100_000, "Messages are lost: 100000 (prod)"),
        (NoticeKind.LOSS_PROVED, 100_001, "Messages are lost: more than 100000 (prod)"),
        (NoticeKind.QUARANTINED, 10_000, "Keys wait for a person: 10000 (prod)"),
        (NoticeKind.QUARANTINED, 10_001, "Keys wait for a person: more than 10000 (prod)"),
    ],
)
def test_a_number_that_stands_for_more_says_so(kind: NoticeKind, count: int, title: str) -> None:
    assert ENGLISH.of(replace(notice(kind), count=count)).title == title


def test_a_reminder_never_tells_of_no_loss_as_a_loss() -> None:
    assert ENGLISH.of(replace(notice(), count=0)).title == "Messages are still lost (prod)"


def test_losses_that_were_repaired_before_they_were_told_are_told_once() -> None:
    settled = replace(notice(is_over=True), count=3)
    assert ENGLISH.of(settled).title == "Messages were lost, and all are repaired: 3 (prod)"


def test_a_test_never_looks_like_an_alarm() -> None:
    text = ENGLISH.of(replace(notice(), is_test=True))
    assert text.title == "Test: nothing has happened (prod)"
    assert text.links == ()
    assert text.next_step == ""
    assert (text.facts, text.references) == ((), ("Notice: 01JDHQZX8M4T6W2C9V3B5N7K1R",))


def test_what_is_not_known_makes_no_empty_line() -> None:
    bare = replace(notice(NoticeKind.ACCOUNTED_UNTIL_STALE), topic=None, group="", detail=" \t", until_ms=None)
    assert [fact.partition(":")[0] for fact in ENGLISH.of(bare).facts] == ["Since"]


def test_a_cause_is_told_in_the_language_of_the_notifier() -> None:
    cause = SHARDS_WITHOUT_ROUND(shards=("3",))
    late = replace(notice(NoticeKind.ACCOUNTED_UNTIL_STALE, detail="no round"), cause=cause)
    told = {language: NoticeTexts(language).of(late).facts[-1] for language in LANGUAGES}
    assert told["en"].startswith("Held back by: shards 3 never had a round")
    assert told["zh"].startswith("卡在：分片 3 从未有过对账轮")  # noqa: RUF001  (Chinese punctuation)


def test_a_long_reason_is_cut_where_everybody_sees_it() -> None:
    (fact,) = [one for one in ENGLISH.of(notice(detail="x" * 10**6)).facts if one.startswith("First key")]
    assert fact == f"First key: {'x' * DETAIL_CHARACTERS_MAX}… (cut: 1000000 characters)"


@pytest.mark.parametrize(
    "address",
    ["https://evil.example/a", "dingtalk://x", "HTTP:\\\\evil", "www.evil.example", "WWW.evil.example", "mailto:a@b.c"],
)
def test_no_client_makes_a_link_of_a_text_from_outside(address: str) -> None:
    text = ENGLISH.of(notice(detail=f"see {address} now"))
    told = " ".join(text.facts)
    assert address not in told
    assert "[:]" in told or "[.]" in told


@given(hostile_texts())
@settings(max_examples=examples(100), deadline=None)
def test_a_text_from_outside_stays_in_its_line(hostile: str) -> None:
    text = ENGLISH.of(hostile_notice(hostile))
    for line in (text.title, *text.lines):
        assert len(line.splitlines()) == 1
        assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        assert "://" not in line
        assert len(line) < 1_000
    assert text.facts[0].startswith("Since: 2026-11-25")
    assert len(text.facts) <= 5


@pytest.mark.parametrize("url", ['https://c/x)"><b>|*`\\ é', "https://c/a b"])
def test_no_address_of_a_console_ends_its_link(url: str) -> None:
    links = NoticeTexts("en", console_url=url).of(notice()).links
    assert len(links) == 2
    for _, link in links:
        assert not set('()"<>|*`\\ ') & set(link)
        assert link.isascii()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_notice_names_the_business_id_of_its_first_key(language: str) -> None:
    *others, named = NoticeTexts(language).of(replace(notice(), business_id="order-7")).facts
    assert named.startswith(TEXTS["label.business_id"][language])
    assert named.endswith("order-7")
    assert tuple(others) == NoticeTexts(language).of(notice()).facts
