"""No text from outside is markup of any channel: judged by parsers that this project did not write."""

from __future__ import annotations

import html.parser
import json
from collections.abc import Iterator
from dataclasses import replace
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reconciler.channels.dingtalk import dingtalk_body
from reconciler.channels.feishu import feishu_card
from reconciler.channels.mail import mail_message
from reconciler.channels.slack import HEADER_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, slack_body
from reconciler.channels.texts import NoticeTexts
from reconciler.channels.wecom import escape_wecom, wecom_body
from reconciler.words import LANGUAGES
from tests.examples import examples
from tests.unit.channels.hostile import hostile_texts
from tests.unit.channels.notices import AT_MS, CONSOLE_URL, hostile_notice, notice

# Parsers of Markdown and cards, hundreds of times.
pytestmark = pytest.mark.unmeasured

WECOM_BYTES_MAX = 4_096
TEXTS = {language: NoticeTexts(language, console_url=CONSOLE_URL) for language in LANGUAGES}
any_texts = st.sampled_from(list(TEXTS.values()))
#: Without a bound on nesting, and with HTML: what a careless client might use.
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["strikethrough", "table"])


def tokens(markdown: str) -> Iterator[Token]:
    for token in MARKDOWN.parse(markdown):
        yield token
        yield from token.children or ()


def links(markdown: str) -> list[str]:
    return [str(token.attrs["href"]) for token in tokens(markdown) if token.type == "link_open"]


def shown_lines(markdown: str) -> list[str]:
    """What a reader sees: each block's text."""
    blocks = []
    for token in MARKDOWN.parse(markdown):
        if token.type == "inline":
            told = "".join("\n" if c.type == "softbreak" else c.content for c in token.children or ())
            blocks += told.split("\n")
    return blocks


@given(hostile_texts(), any_texts)
@settings(max_examples=examples(60), deadline=None)
def test_dingtalk_shows_the_text_as_it_is(hostile: str, texts: NoticeTexts) -> None:
    text = texts.of(hostile_notice(hostile))
    message = json.loads(dingtalk_body(text))
    markdown = message["markdown"]["text"]
    allowed = {"heading_open", "heading_close", "paragraph_open", "paragraph_close", "inline", "text", "text_special"}
    assert {token.type for token in tokens(markdown)} <= allowed | {"link_open", "link_close"}
    assert links(markdown) == [link for _, link in text.links]
    assert shown_lines(markdown) == [text.title, *text.lines, *(label for label, _ in text.links)]
    assert "@" not in markdown
    assert message["at"] == {"atMobiles": [], "atUserIds": [], "isAtAll": False}
    assert len(dingtalk_body(text)) < 20_000


@given(hostile_texts(), any_texts)
@settings(max_examples=examples(60), deadline=None)
def test_wecom_shows_the_text_with_wide_signs(hostile: str, texts: NoticeTexts) -> None:
    text = texts.of(hostile_notice(hostile))
    markdown = json.loads(wecom_body(text))["markdown"]["content"]
    allowed = {"paragraph_open", "paragraph_close", "inline", "text", "softbreak", "strong_open", "strong_close"}
    assert {token.type for token in tokens(markdown)} <= allowed | {"link_open", "link_close"}
    assert links(markdown) == [link for _, link in text.links]
    wide = [escape_wecom(line) for line in (text.title, *text.lines)]
    assert shown_lines(markdown) == [*wide, *(label for label, _ in text.links)]
    told = markdown
    for label, link in text.links:
        told = told.replace(f"[{label}]({link})", "")
    assert not set("<>@&") & set(told)
    assert len(markdown.encode()) <= WECOM_BYTES_MAX


def test_the_longest_notice_has_a_place_in_wecom() -> None:
    for texts in TEXTS.values():
        for character in ("😀", "@", "\x00", "消"):
            long = replace(hostile_notice(character * 10_000), count=10**12)
            content = json.loads(wecom_body(texts.of(long)))["markdown"]["content"]
            assert len(content.encode()) <= WECOM_BYTES_MAX


def test_a_topic_can_be_copied_from_wecom() -> None:
    assert escape_wecom("Topic: PAY_ORDERS") == "Topic: PAY_ORDERS"
    assert escape_wecom("_x_ a__b") == "_x_ a__b".replace("_", "\uff3f")


def text_objects(place: Any) -> Iterator[dict[str, Any]]:
    if isinstance(place, dict):
        if "text" in place and isinstance(place["text"], str) and "type" in place:
            yield place
        for value in place.values():
            yield from text_objects(value)
    elif isinstance(place, list):
        for value in place:
            yield from text_objects(value)


def unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


@given(hostile_texts(), any_texts)
@settings(max_examples=examples(60), deadline=None)
def test_slack_shows_the_text_as_it_is(hostile: str, texts: NoticeTexts) -> None:
    text = texts.of(hostile_notice(hostile))
    message = json.loads(slack_body(text))
    *plain, page, runbook = text_objects(message["blocks"])
    for one, (label, link) in zip((page, runbook), text.links, strict=True):
        assert one == {"type": "mrkdwn", "text": one["text"], "verbatim": True}
        assert unescaped(one["text"]) == f"<{link}|{label}>"
    assert {one["type"] for one in plain} == {"plain_text"}
    assert not any(one["emoji"] for one in plain)
    told = [line for one in plain for line in unescaped(one["text"]).split("\n")]
    assert told == [text.title, *text.lines]
    for one in (*(one["text"] for one in plain), message["text"]):
        rest = one.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "")
        assert not set("<>&") & set(rest)
        assert len(one) <= TEXT_CHARACTERS_MAX
    header = message["blocks"][0]
    assert header["type"] == "section" or len(header["text"]["text"]) <= HEADER_CHARACTERS_MAX
    assert (message["mrkdwn"], message["link_names"], message["unfurl_links"]) == (False, False, False)


@given(hostile_texts(), any_texts)
@settings(max_examples=examples(60), deadline=None)
def test_feishu_shows_the_text_as_it_is(hostile: str, texts: NoticeTexts) -> None:
    text = texts.of(hostile_notice(hostile))
    card = feishu_card(text, "red")["card"]
    body, action = card["elements"]
    assert card["header"]["title"] == {"tag": "plain_text", "content": text.title}
    assert body == {"tag": "div", "text": {"tag": "plain_text", "content": "\n".join(text.lines)}}
    assert [button["url"] for button in action["actions"]] == [link for _, link in text.links]
    assert len(json.dumps(card).encode()) < 20_000


class Page(html.parser.HTMLParser):
    """What a reader sees, and what is markup."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.told = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.told += data


@given(hostile_texts(), any_texts)
@settings(max_examples=examples(30), deadline=None)
def test_no_header_and_no_tag_of_a_mail_is_forged(hostile: str, texts: NoticeTexts) -> None:
    # The settings let no environment have a space or a sign.
    one = replace(hostile_notice(hostile), environment="prod-1")
    sent = mail_message(texts, one, sender="a@example.com", recipients=["b@example.com"], at_ms=AT_MS)
    text = texts.of(one)
    arrived = message_from_bytes(sent.as_bytes(), policy=default)
    assert list(arrived) == [
        "Subject",
        "From",
        "To",
        "Date",
        "Message-ID",
        "Auto-Submitted",
        "MIME-Version",
        "Content-Type",
        "Content-Language",
    ]
    assert arrived["Subject"] == text.title
    assert arrived["To"] == "b@example.com"
    plain, page = arrived.iter_parts()
    assert plain.get_content().splitlines()[: len(text.lines)] == list(text.lines)
    seen = Page(page.get_content())
    paragraphs = ["p", "strong", *["p"] * len(text.lines), *["p", "a"] * len(text.links), "p", "small"]
    assert seen.tags == ["html", "head", "meta", "body", *paragraphs]
    hrefs = [("href", link) for _, link in text.links]
    assert seen.attributes == [("lang", text.language), ("charset", "utf-8"), *hrefs]
    told = [line for line in seen.told.splitlines() if line][: -1 - len(text.links)]
    assert told == [text.title, *text.lines]


@pytest.mark.parametrize("identity", ["01JDHQZX8M4T6W2C9V3B5N7K1R", "a b\r\nBcc: x", "é", "x" * 500])
def test_every_try_of_a_notice_is_one_mail(identity: str) -> None:
    one = replace(notice(), notice_id=identity)
    texts = TEXTS["en"]
    first, second = (
        mail_message(texts, one, sender="a@example.com", recipients=["b@example.com"], at_ms=at)["Message-ID"]
        for at in (AT_MS, AT_MS + 60_000)
    )
    assert first == second
    assert len(first.splitlines()) == 1
    assert len(first) < 100
